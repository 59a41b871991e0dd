"""Keeps the fast suite fast: starting processes is what takes long in these scenarios."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALL_FAST = {"test_r09_killed_worker.py", "test_r10_time_limit.py", "test_r13_ctrl_c.py", "test_r21_processes.py"}
"""Scenarios about processes themselves."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the other scenarios' process variants the first of each file is fast; `make accept` runs all."""
    seen: set[Path] = set()
    for item in items:
        if item.path.parent != HERE or item.path.name in ALL_FAST:
            continue
        if re.search(r"[\[-]process(?=[\]-])", item.nodeid):
            if item.path in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(item.path)
