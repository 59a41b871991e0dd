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


MOST = {"acceptance": 16, "conformance": 160, "chaos": 4}
"""Most tests of a file in the fast suite, by folder; the others run in `make accept`."""
MOST_OF = {"test_endings.py": 40, "test_torture.py": 200, "test_sources.py": 80, "test_fates.py": 80}
"""The same by file."""


def pytest_collection_modifyitems(items):
    """Starting processes and servers is what takes long: the fast suite has a sample of what does, evenly spread.

    Of process variants the first of each test is fast, of those on PostgreSQL the first of each file.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            files.setdefault(item.path, []).append(item)
    for path, mine in files.items():
        seen = set()
        for item in list(mine):
            process = re.search(r"[\[-]process(?=[\]-])", item.nodeid)
            place = item.nodeid.partition("[")[0] if process else path if "postgresql" in item.nodeid else None
            if place in seen:
                item.add_marker(pytest.mark.slow)
                mine.remove(item)
            seen.add(place)
            seen.discard(None)
        most = MOST_OF.get(path.name, MOST.get(path.parent.name))
        if most is not None and len(mine) > most:
            kept = {mine[at * len(mine) // most] for at in range(most)}
            for item in mine:
                if item not in kept:
                    item.add_marker(pytest.mark.slow)
