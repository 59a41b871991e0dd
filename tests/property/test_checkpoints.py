"""Runs that end anywhere and go on: what a transactional sink holds at the end is what one undisturbed run gives (I9).

A crash is drawn: at a commit, before or after it took effect, or an abort at a write. Commits follow each
other as fast as they can. `run_one(seed)` replays what was drawn; threads still take their own turns.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from headway import DROP, Pipeline, RunError
from headway.run import commits, inline


class Crash(Exception):
    pass


class Table:
    """What a database holds: rows and the state that was committed with them."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.state: dict[str, Any] | None = None
        self.held = False


class Sink:
    """A transactional sink over a `Table`, which crashes at the event number `at`."""

    def __init__(self, table: Table, at: int, how: str) -> None:
        self.table, self.at, self.how = table, at, how
        self.events = 0
        self.open_rows: list[Any] = []
        self.abort: Any = None

    def load(self, job: str) -> dict[str, Any] | None:
        assert not self.table.held
        self.table.held = True
        return self.table.state

    def open(self, resume: dict[str, Any] | None) -> None:
        assert resume == self.table.state

    def _due(self, how: str) -> bool:
        self.events += how == self.how
        return how == self.how and self.events == self.at

    def write(self, items: Any) -> None:
        if self._due("write") and self.abort is not None:
            self.abort()
        self.open_rows += items

    def commit(self, state: dict[str, Any]) -> None:
        if self._due("before"):
            raise Crash
        self.table.rows += self.open_rows
        self.table.state, self.open_rows = state, []
        if self._due("after"):
            raise Crash

    def close(self, error: BaseException | None) -> None:
        self.table.held = False


class Positions:
    """A `Source` that can be asked for its position."""

    def __init__(self, count: int) -> None:
        self.at, self.count = 0, count

    def read(self, n: int) -> list[int]:
        rows = list(range(self.at, min(self.at + min(n, 7), self.count)))
        self.at += len(rows)
        return rows

    def position(self) -> dict[str, int]:
        return {"row": self.at}

    def seek(self, position: dict[str, int]) -> None:
        self.at = position["row"]

    def fingerprint(self) -> str:
        return f"{self.count} numbers"


def keep(value: int) -> Any:
    if value % 11 == 3:
        raise ValueError(value)
    return DROP if value % 7 == 1 else value


def children(value: int) -> Any:
    for number in range(value % 4 * (40 if value % 29 == 0 else 1)):
        yield value, number


def grandchildren(pair: tuple[int, int]) -> Any:
    return [(*pair, number) for number in range(sum(pair) % 3)]


def reference(count: int, depth: int) -> list[Any]:
    out: list[Any] = [value for value in range(count) if value % 11 != 3 and value % 7 != 1]
    if depth > 0:
        out = [pair for value in out for pair in children(value)]
    if depth > 1:
        out = [triple for pair in out for triple in grandchildren(pair)]
    return out


def pipeline(seed: int, count: int, depth: int, order: str, sink: Sink) -> Pipeline[Any]:
    rng = random.Random(seed)
    source: Any = rng.choice([lambda: range(count), lambda: Positions(count), lambda: iter(range(count))])
    made: Pipeline[Any] = Pipeline(source, on_error="skip", window=rng.choice([None, 40, 200]))
    made = made.map(keep, workers=rng.choice([1, 3]))
    if depth > 0:
        made = made.flat_map(children, workers=rng.choice([1, 3]))
    if depth > 1:
        made = made.flat_map(grandchildren)
    if rng.random() < 0.4:
        made = made.map_batches(list, 5, workers=rng.choice([1, 2]))
    if rng.random() < 0.3:
        made = made.batch(4)
    return made.to(sink, order=order)


def run_one(seed: int, mode: str) -> int:
    """The number of runs that it took."""
    rng = random.Random(seed)
    count, depth, order = rng.choice([0, 1, 60, 300]), rng.choice([0, 0, 1, 2]), rng.choice(["input", "none"])
    table = Table()
    for runs in range(1, 60):
        sink = Sink(table, rng.randint(1, 4) if runs < 40 else 0, rng.choice(["before", "after", "write"]))
        made = pipeline(seed, count, depth, order, sink)
        try:
            if mode == "inline":
                report = made.run(job="j", mode="inline")
            else:
                with made.open(job="j") as run:
                    sink.abort = run.abort
                    report = run.wait()
        except RunError as error:
            if error.__cause__ is not None and not isinstance(error.__cause__, Crash):
                raise
            continue
        assert report.complete, seed
        assert table.state is not None
        assert table.state["finished"], seed
        break
    wanted = reference(count, depth)
    assert Counter(table.rows) == Counter(wanted), f"seed {seed}: {Counter(table.rows) - Counter(wanted)} too many"
    if order == "input":
        assert table.rows == wanted, f"seed {seed}"
    assert table.state == table.state | {"watermark": count, "done": [], "written": len(wanted)}, seed
    again = pipeline(seed, count, depth, order, Sink(table, 0, "")).run(job="j")
    assert again.job.already_finished
    assert again.items.read == 0
    return runs


def run_many(mode, seeds, monkeypatch):
    monkeypatch.setattr(commits, "COMMIT_S", 0.0)
    monkeypatch.setattr(inline, "COMMIT_S", 0.0)
    assert sum(run_one(seed, mode) for seed in seeds) > 3 * len(seeds) // 2, "runs were ended"


@pytest.mark.parametrize("mode", ["inline", "threads"])
def test_whatever_ends_a_run_the_next_one_goes_on_and_no_row_is_lost_or_doubled(mode, monkeypatch):
    run_many(mode, range(8), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8, 208, 20))
@pytest.mark.parametrize("mode", ["inline", "threads"])
def test_the_same_for_many_more(mode, first, monkeypatch):
    run_many(mode, range(first, first + 20), monkeypatch)
