"""What every test is held to: after it, nothing that it started is left."""

from __future__ import annotations

import re
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


ABOUT_PROCESSES = {"test_r09_killed_worker.py", "test_r10_time_limit.py", "test_r13_ctrl_c.py", "test_r21_processes.py"}


def pytest_collection_modifyitems(items):
    """Starting processes is what takes long: most process variants run in the slow suite (`make accept`).

    Of the acceptance scenarios the first of each file is fast, but for scenarios about processes themselves;
    of the conformance suite the first of each test.
    """
    seen = set()
    for item in items:
        folder = item.path.parent.name
        if folder not in ("acceptance", "conformance") or item.path.name in ABOUT_PROCESSES:
            continue
        if re.search(r"[\[-]process(?=[\]-])", item.nodeid):
            place = item.path if folder == "acceptance" else item.nodeid.partition("[")[0]
            if place in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(place)
