"""R05: bounded by bytes. The memory is that of a fresh interpreter, measured around the run by a thread beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from acceptance.scenario import MODES, iterate
from headway import Pipeline

MB = 1 << 20
BUDGET, LARGE, SMALL = 64 * MB, 20 * MB, 1024

MEASURE = """
import gc, sys, threading
from pathlib import Path
from headway import Pipeline

mode, count = sys.argv[1], int(sys.argv[2])
MB = 1 << 20

def rss():
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmRSS")).split()[1]) // 1024

def rows(count):
    for n in range(count):
        yield b"x" * (20 * MB if n % 50 == 49 else 1024)  # bytes(n) would take no memory before it is written to

def same(row):
    return row

async def same_async(row):
    return row

def pipeline(count):
    fn = same_async if mode == "task" else same
    return Pipeline(rows(count), window=4096, window_bytes=64 * MB).map(fn, on=mode, workers=4, queue=4)

over, peak = threading.Event(), 0

def watch():
    global peak
    while not over.wait(0.001):
        peak = max(peak, rss())

for _ in pipeline(40):
    pass
gc.collect()
before = rss()
watcher = threading.Thread(target=watch)
watcher.start()
seen = 0
for value in pipeline(count):
    assert len(value) == (20 * MB if seen % 50 == 49 else 1024)
    seen += 1
    del value
over.set()
watcher.join()
print(seen, peak - before)
"""


RETURNED = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""glibc gives freed memory back at once: what it would keep for later is no item's."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_large_items_among_small_ones_take_no_more_memory_than_the_budget_and_two_of_them(mode, count):
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, mode, str(count)], capture_output=True, text=True, check=True, timeout=500,
        env=os.environ | RETURNED,
    )  # fmt: skip
    seen, growth = map(int, out.stdout.split())
    assert seen == count
    assert growth <= 64 + 2 * 20


class Budget:
    """Sums up the bytes that are between the source and the consumer."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes, self._lock = sizes, threading.Lock()
        self.now = self.peak = self.delivered = 0

    def rows(self) -> Any:
        for size in self._sizes:
            with self._lock:
                self.now += size
                self.peak = max(self.peak, self.now)
            yield bytes(size)

    def look(self, value: bytes) -> None:
        with self._lock:
            self.now -= len(value)
            self.delivered += 1


@pytest.mark.parametrize("mode", MODES)
def test_what_is_read_ahead_is_the_budget_and_an_item_or_two(mode):
    sizes = [200_000 if n % 50 == 49 else 1024 for n in range(1000)]
    budget = Budget(sizes)
    pipeline = Pipeline(budget.rows, window=4096, window_bytes=640_000).map(
        lambda row: row, on=mode, workers=4, queue=4
    )
    iterate(pipeline, mode, budget.look)
    assert budget.delivered == len(sizes)
    assert budget.peak <= 640_000 + 2 * 200_000


@pytest.mark.parametrize("mode", MODES)
def test_an_item_larger_than_the_budget_passes_alone(mode):
    sizes = [100, 100, 5_000_000, 100, 5_000_000, 5_000_000, *[100] * 50]
    budget = Budget(sizes)
    outputs: list[int] = []

    def look(value: bytes) -> None:
        budget.look(value)
        outputs.append(len(value))

    pipeline = Pipeline(budget.rows, window_bytes=1_000_000).map(lambda row: row, on=mode, workers=4)
    iterate(pipeline, mode, look)
    assert outputs == sizes
    # It has been read before its size is known; nothing more is read until it has left.
    assert budget.peak <= 5_000_000 + 1_000_000


@pytest.mark.parametrize("mode", MODES)
def test_the_size_can_be_given_as_a_function(mode):
    ahead = Budget([1] * 300)

    def rows() -> Any:
        for n, _ in enumerate(ahead.rows()):
            yield {"id": n}

    pipeline = Pipeline(rows, window=256, window_bytes=1000, size=lambda row: 100).map(
        lambda row: row, on=mode, workers=2
    )
    iterate(pipeline, mode, lambda row: ahead.look(b"x"))
    assert ahead.delivered == 300
    assert ahead.peak <= 10 + 2


@pytest.mark.parametrize("mode", MODES)
def test_items_that_grow_in_a_stage_hold_back_what_comes_behind(mode):
    read = Budget([1] * 200)

    def grow(row: bytes) -> bytes:
        return bytes(100_000)

    pipeline = Pipeline(read.rows, window=200, window_bytes=1_000_000).map(grow, on=mode, workers=2, queue=200)
    seen: list[int] = []

    def look(value: bytes) -> None:
        read.look(b"x")
        seen.append(len(value))

    iterate(pipeline, mode, look)
    assert seen == [100_000] * 200
