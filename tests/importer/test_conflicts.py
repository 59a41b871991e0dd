"""Who loses a conflict, where keys mostly ascend: the same as one after the other would find."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import Pipeline, SQLiteSink
from headway.importer.batches import Batch, Sources
from headway.importer.conflicts import Refusals
from headway.io.chunk import ArrowColumn
from headway.io.columns import Int
from headway.io.table import Column, Table
from headway.io.target import Target
from support.importing import query

TABLE = Table("t", (Column("k", Int()),), ("k",), "fail")


class Held:
    """A target of one column of numbers, of which it tells what it is asked; `arrow`: as Arrow holds them."""

    def __init__(self, numbers: Iterable[int], *, arrow: bool) -> None:
        self.numbers, self._arrow = set(numbers), arrow

    def values(self, batch: list[Any], positions: Sequence[int]) -> Sequence[Any]:
        return ArrowColumn(pa.array(batch, pa.int64())) if self._arrow else batch

    def highest(self, table: str, column: str) -> int | None:
        return max(self.numbers, default=None)

    def existing(
        self, table: Table, columns: Sequence[str], values: Iterable[Any], keys: Collection[Any] = ()
    ) -> dict[Any, Any]:
        assert not len(keys), "no row of this table is overwritten"
        return dict.fromkeys(self.numbers.intersection(values))


def plainly(before: set[int], commits: Sequence[Sequence[int | None]]) -> list[set[int]]:
    """Give the rows of each commit that lose, taken one after the other."""
    held, lost = set(before), []
    for numbers in commits:
        lost.append({index for index, number in enumerate(numbers) if number in held or number in numbers[:index]})
        lost[-1] = {index for index in lost[-1] if numbers[index] is not None}
        held.update(number for number in numbers if number is not None)
    return lost


STEPS = st.lists(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 7, 0, -1, -5, -40]), max_size=60)
PLACES = st.lists(st.tuples(st.integers(0, 59), st.one_of(st.none(), st.integers(-5, 80))), max_size=3)


@settings(max_examples=500, deadline=None)
@given(
    before=st.frozensets(st.integers(-3, 60), max_size=8),
    commits=st.lists(st.tuples(STEPS, PLACES), min_size=1, max_size=4),
    arrow=st.booleans(),
)
def test_keys_that_mostly_ascend_lose_as_one_after_the_other(
    before: frozenset[int], commits: list[tuple[list[int], list[tuple[int, int | None]]]], arrow: bool
) -> None:
    at, given_in = 0, list[list[int | None]]()
    for steps, places in commits:
        numbers = list[int | None]()
        for step in steps:
            at += step
            numbers.append(at)
        for index, number in places:
            if index < len(numbers):
                numbers[index] = number
        given_in.append(numbers)
    target = Held(before, arrow=arrow)
    refusals = Refusals(cast("Target", target))
    for numbers, expected in zip(given_in, plainly(set(before), given_in), strict=True):
        sources = Sources()
        sources.extend(0, array("q", range(len(numbers))))
        lost = refusals.losers([Batch(TABLE, numbers, sources)])
        assert lost.keys() == expected
        target.numbers |= {number for index, number in enumerate(numbers) if index not in lost and number is not None}


def test_a_row_of_sqlite_may_only_refer_to_one_before_it(tmp_path: Path) -> None:
    target = str(tmp_path / "bank.db")
    query(target, "CREATE TABLE t (id INTEGER PRIMARY KEY, above INTEGER REFERENCES T (id))")
    given_in = [(1, None), (2, 3), (3, 1), (4, 3), (5, 99)]
    report = Pipeline(given_in, on_error="dead_letter").to(SQLiteSink(target, "t")).run()
    assert [failure.value[0] for failure in report.dead_letters] == [2, 5]
    assert query(target, "SELECT id FROM t ORDER BY id") == [(1,), (3,), (4,)]
