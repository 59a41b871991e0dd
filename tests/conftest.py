"""What every test is held to: after it, nothing that it started is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.census import Census


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a thread, child, task, descriptor or segment, and name it."""
    before = Census()
    yield
    left = before.left()
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
