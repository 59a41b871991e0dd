"""R04: capacities are exact and memory is flat."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from acceptance.scenario import MODES, Tally
from headway import Pipeline

KINDS = ("task", "thread")
MEASURE = """
import resource, sys
from headway import Pipeline
mode, count = sys.argv[1], int(sys.argv[2])
rows = (bytes(1024) + str(n).encode() for n in range(count))
stages = Pipeline(rows)
for _ in range(2):
    stages = stages.map(lambda row: row[1:] + b"x", on=mode)
seen = 0
for row in stages:
    seen += 1
assert seen == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Live:
    """How many items are between the first function and the end of the last."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:
            self.now += change
            self.peak = max(self.peak, self.now)


@pytest.mark.parametrize("mode", KINDS)
def test_three_stages_of_capacity_one_never_hold_more_than_their_places(mode):
    live = Live()
    pause = threading.Event()

    def first(value: int) -> int:
        live.add(1)
        return value

    def last(value: int) -> int:
        pause.wait(0.005)
        live.add(-1)
        return value

    options: dict[str, Any] = {"on": mode, "workers": 1, "queue": 1}
    pipeline = Pipeline(range(100)).map(first, **options).map(lambda value: value, **options).map(last, **options)
    assert pipeline.collect() == list(range(100))
    assert live.now == 0
    assert live.peak <= 3 + 3 + 1


def test_three_stages_in_processes_never_hold_more_than_their_places_either(tmp_path):
    entered, left = Tally(tmp_path / "entered"), Tally(tmp_path / "left")

    def first(value: int) -> int:
        entered.bump()
        live = entered.count - left.count
        with (tmp_path / "live").open("a") as file:
            file.write(f"{live}\n")
        return value

    def last(value: int) -> int:
        time.sleep(0.05)  # the scenario's last stage of 50 ms
        left.bump()
        return value

    options: dict[str, Any] = {"on": "process", "workers": 1, "queue": 1}
    pipeline = Pipeline(range(50)).map(first, **options).map(lambda value: value, **options).map(last, **options)
    assert pipeline.collect() == list(range(50))
    assert max(map(int, (tmp_path / "live").read_text().split())) <= 3 + 3 + 1


def peak_kb(mode: str, count: int) -> int:
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, mode, str(count)], capture_output=True, text=True, check=True, timeout=900
    )
    return int(out.stdout)


@pytest.mark.parametrize("mode", KINDS)
def test_ten_times_the_items_need_no_more_memory(mode):
    assert peak_kb(mode, 100_000) - peak_kb(mode, 10_000) <= 10 * 1024


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_a_million_items_need_no_more_memory_than_a_hundred_thousand(mode):
    assert peak_kb(mode, 1_000_000) - peak_kb(mode, 100_000) <= 10 * 1024


class Value:
    """Can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


def dies(ref: weakref.ref[Any]) -> bool:
    """Whether the value goes without the consumer taking another; the thread that gave it may still be on its way back."""
    on_its_way = threading.Event()
    for _ in range(400):
        if ref() is None:
            return True
        on_its_way.wait(0.005)
    return False


@pytest.mark.parametrize("mode", MODES)
def test_an_output_dies_as_soon_as_the_consumer_drops_it(mode):
    def watch(pipeline: Pipeline[Any]) -> list[int]:
        left = []
        for value in pipeline:
            number, ref = value.number, weakref.ref(value)
            del value
            if not dies(ref):
                left.append(number)
        return left

    assert watch(Pipeline(range(500)).map(Value, on=mode, workers=4)) == []


def test_an_output_dies_as_soon_as_the_consumer_on_the_loop_drops_it():
    async def watch() -> list[int]:
        left = []
        async with Pipeline(range(500)).map(Value, on="task", workers=4).open() as run:
            async for value in run:
                number, ref = value.number, weakref.ref(value)
                del value
                if ref() is not None:
                    left.append(number)
        return left

    assert asyncio.run(watch()) == []


def test_an_output_of_an_inline_run_dies_as_soon_as_the_consumer_drops_it():
    refs = []
    for value in Pipeline(range(500), mode="inline").map(Value):
        refs.append(weakref.ref(value))
        del value
        assert refs[-1]() is None
    assert len(refs) == 500


STAGES: dict[str, Any] = {
    "map": lambda rows, mode: rows.map(lambda value: value, on=mode, workers=4, queue=2),
    "filter": lambda rows, mode: rows.filter(lambda value: True, on=mode, workers=4, queue=2),
    "flat_map": lambda rows, mode: rows.flat_map(lambda value: [value], on=mode, workers=2),
    "scan": lambda rows, mode: rows.scan(lambda state, value: (state, value), 0, on=mode),
    "map_batches": lambda rows, mode: rows.map_batches(lambda values: values, 5, on=mode),
    "key": lambda rows, mode: rows.map(lambda value: value, on=mode, workers=3, key=lambda value: value.number % 3),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", KINDS)
def test_nothing_of_an_item_that_has_left_waits_for_the_garbage_collector(mode, stage):
    refs: list[weakref.ref[Any]] = []

    def rows() -> Any:
        for number in range(50):
            values = [Value(number)]
            refs.append(weakref.ref(values[0]))
            yield values.pop()

    gc.disable()
    try:
        for value in STAGES[stage](Pipeline(rows, window=16), mode):
            number = value.number
            del value
            assert dies(refs[number]), number
        assert [ref() for ref in refs] == [None] * 50
    finally:
        gc.enable()
