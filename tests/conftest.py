"""What every test is held to: after it, nothing that it started is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.census import Census
from support.targets import Targets, targets


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a thread, child, task, descriptor or segment, and name it."""
    before = Census()
    yield
    left = before.left()
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="session", name="targets")
def all_targets() -> Iterator[Targets]:
    """Databases of every kind, empty; a server runs for the whole session."""
    with targets() as made:
        yield made


@pytest.fixture
def target(request: pytest.FixtureRequest, targets: Targets, tmp_path: Path) -> str:
    """The address of an empty database; which, an indirect parameter says."""
    return targets.fresh(request.param, tmp_path)
