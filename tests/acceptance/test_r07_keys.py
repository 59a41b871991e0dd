"""R07: order by key: 50 keys, 40 items each, one key slow."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import MODES, iterate
from headway import DROP, Pipeline

KEYS, EACH, WORKERS = 50, 40, 4
ROWS = [(key, n) for n in range(EACH) for key in range(KEYS)]
"""Each key's items in turn: every key is spread over the whole input."""


def key_of(row: Any) -> int:
    return row[0]


def noting(folder: Path, slow_s: float, fast_s: float) -> Any:
    """A function that notes when a key's call begins and ends, in whichever process it runs."""

    def work(row: tuple[int, int]) -> tuple[int, int]:
        with (folder / f"{row[0]}").open("a") as file:
            file.write(f"+{row[1]}\n")
            file.flush()
            time.sleep(fast_s if row[0] else slow_s)  # the scenario's service times; calls note where they overlap
            file.write(f"-{row[1]}\n")
        return row

    return work


def check_lanes(folder: Path, keys: int, each: int) -> None:
    """One item of a key at a time, in input order."""
    for key in range(keys):
        lines = (folder / f"{key}").read_text().split()
        assert lines == [f"{sign}{n}" for n in range(each) for sign in "+-"]


def by_key(rows: Any) -> dict[int, list[int]]:
    lists: dict[int, list[int]] = collections.defaultdict(list)
    for key, n in rows:
        lists[key].append(n)
    return lists


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("slow_s", "each"), [(0.003, 12), pytest.param(0.05, EACH, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_each_key_s_outputs_come_in_input_order_and_no_two_of_its_items_run_at_once(tmp_path, mode, slow_s, each):
    rows = [(key, n) for n in range(each) for key in range(KEYS)]
    outputs: list[Any] = []
    pipeline = (
        Pipeline(rows, window=256)
        .map(noting(tmp_path, slow_s, 0.0005), on=mode, workers=WORKERS, key=key_of, queue=4)
        .ordered("key")
    )
    iterate(pipeline, mode, outputs.append)
    assert by_key(outputs) == {key: list(range(each)) for key in range(KEYS)}
    check_lanes(tmp_path, KEYS, each)


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_key_that_does_not_move_holds_no_other_key(mode):
    """The 49 other keys end while key 0 stands at its first item: stronger than any bound on the time."""
    go = threading.Event()
    others = KEYS * EACH - EACH

    def wait(row: Any) -> Any:
        if row[0] == 0 and row[1] == 0:
            assert go.wait(60)
        return row

    async def wait_async(row: Any) -> Any:
        return await asyncio.to_thread(wait, row) if row == (0, 0) else row

    outputs: list[Any] = []

    def look(row: Any) -> None:
        outputs.append(row)
        if len(outputs) == others:
            assert all(key for key, _ in outputs)
            go.set()

    # What waits for its key counts against the window alone.
    pipeline = Pipeline(ROWS, window=256).map(
        wait_async if mode == "task" else wait, on=mode, workers=WORKERS, key=key_of, queue=4
    )
    iterate(pipeline.ordered("key"), mode, look)
    assert by_key(outputs) == {key: list(range(EACH)) for key in range(KEYS)}


@pytest.mark.parametrize("mode", MODES)
def test_keys_are_named_by_a_function_an_item_or_an_attribute(mode):
    rows = [{"account": n % 3, "n": n} for n in range(60)]
    pipeline = Pipeline(rows).map(lambda row: row, on=mode, workers=4, key="account").ordered("key")
    outputs = pipeline.collect()
    assert by_key((row["account"], row["n"]) for row in outputs) == {
        k: [n for n in range(60) if n % 3 == k] for k in range(3)
    }


@pytest.mark.parametrize("mode", MODES)
def test_two_keyed_stages_a_filter_and_an_expansion_keep_each_key_s_order(mode):
    def odd(row: Any) -> Any:
        return row if row[1] % 2 else DROP

    def twice(row: Any) -> Any:
        return [(row[0], row[1] * 10), (row[0], row[1] * 10 + 1)]

    pipeline = (
        Pipeline(ROWS, window=256)
        .map(odd, on=mode, workers=3, key=key_of)
        .flat_map(twice, on="thread", workers=2, key=key_of)
        .map(lambda row: row, on="thread", workers=4, key=key_of)
        .ordered("key", key=key_of)
    )
    expected = [n * 10 + child for n in range(EACH) if n % 2 for child in (0, 1)]
    assert by_key(pipeline.collect()) == dict.fromkeys(range(KEYS), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_may_hold_several_items_of_a_key_and_keeps_their_order(mode):
    batches: list[list[Any]] = []
    pipeline = (
        Pipeline(ROWS, window=256)
        .map(lambda row: row, on=mode, workers=WORKERS, key=key_of)
        .batch(64)
        .to(batches.append, order="key", key=key_of)
    )
    report = pipeline.run()
    assert report.items.written == len(ROWS)
    assert by_key(row for batch in batches for row in batch) == {key: list(range(EACH)) for key in range(KEYS)}
    assert any(len({key for key, _ in batch}) < len(batch) for batch in batches)


@pytest.mark.parametrize("mode", MODES)
def test_a_failing_item_of_a_key_passes_or_blocks_or_halts_as_asked(mode):
    rows = [(n % 2, n) for n in range(20)]

    def check(row: Any) -> Any:
        if row == (0, 6):
            raise ValueError("bad")
        return row

    def outcome(policy: Any) -> Any:
        letters: list[Any] = []
        pipeline = Pipeline(rows, on_error="dead_letter").map(
            check, on=mode, workers=2, key=key_of, on_key_failure=policy
        )
        outputs = pipeline.ordered("key").collect(dead_letters=letters)
        return by_key(outputs), sorted((f.seq, type(f.error).__name__) for f in letters)

    whole = {1: list(range(1, 20, 2))}
    assert outcome("continue") == (whole | {0: [n for n in range(0, 20, 2) if n != 6]}, [(6, "ValueError")])
    assert outcome("block_key") == (
        whole | {0: [0, 2, 4]},
        [(6, "ValueError"), *((n, "PredecessorFailed") for n in range(8, 20, 2))],
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_state_of_each_key_is_that_of_a_plain_loop(mode):
    def add(total: int, row: Any) -> Any:
        return total + row[1], (row[0], total)

    workers = 1 if mode == "process" else WORKERS
    pipeline = Pipeline(ROWS, window=256).scan(add, 0, on=mode, workers=workers, key=key_of).ordered("key")
    report = Pipeline(ROWS, window=256).scan(add, 0, on=mode, workers=workers, key=key_of, name="sum").run()
    assert by_key(pipeline.collect()) == {key: [sum(range(n)) for n in range(EACH)] for key in range(KEYS)}
    assert report.states["sum"] == {key: sum(range(EACH)) for key in range(KEYS)}


def test_the_silent_reorder_is_silent_no_more():
    """Account 42: row 7 sets the balance to 100 and is slow, row 8 sets it to 250."""
    balance: dict[int, int] = {}
    behind = threading.Event()

    def look_up(row: Any) -> Any:
        if row[1] == 100:
            behind.wait(0.05)
        return row

    def write(row: Any) -> None:
        balance[row[0]] = row[1]

    rows = [*((n, 1) for n in range(7)), (42, 100), (42, 250), *((n, 2) for n in range(9, 20))]
    for order, key in (("input", None), ("key", key_of)):
        Pipeline(rows).map(look_up, workers=2, key=key).to(write, order=order, key=key).run()  # type: ignore[arg-type]
        assert balance[42] == 250
        balance.clear()
