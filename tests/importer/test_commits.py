"""How much an import commits at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.io.duckdb import DuckDBTarget
from headway.io.target import Address


@pytest.mark.parametrize(
    ("rows", "ranges", "enough"),
    [
        (4 * 14_000, 4, False),  # a group and a half is within reach
        (12 * 14_000, 12, False),  # a group, and less than half of another
        (14 * 14_000, 14, True),
        (122_881, 9, False),
        (245_760, 9, False),  # two groups, and then one of a few rows
        (245_759, 9, True),
        (16 * 12_000, 16, True),
        (130_000, 16, True),  # as many ranges as there may be
        (3 * 100_000, 3, False),
        (3 * 8_000, 3, False),
        (4 * 8_000, 4, True),  # rows so wide that no group would fill
        (0, 4, True),
    ],
)
def test_duckdb_waits_for_groups_that_are_within_reach(tmp_path: Path, rows: int, ranges: int, enough: bool) -> None:
    target = DuckDBTarget(tmp_path / "a.duckdb")
    try:
        assert target.enough(rows, ranges) is enough
    finally:
        target.close()


@pytest.mark.parametrize("kind", ["sqlite:///a", "postgresql://nowhere/a"])
def test_other_databases_take_four_ranges(kind: str) -> None:
    assert Address.parse(kind).ranges_a_commit == 4
