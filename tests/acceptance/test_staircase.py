"""The staircase for real: Read 2, Parse 1, Process 4, Write 3 units of sleep, and what each change of it gives.

This measures, and so is slow and asserts rates. A sleep ends late by what the machine decides; each worker takes
that off its next one, so that its calls last what they should on average. What other work on the machine takes
besides shows in the same line of threads and queues written by hand, which runs at the same time: where that
falls short of the theory, it is the measure. A rate that is too low is measured again, twice at most, and skipped
with its figure where the machine has more to run than it has cores. Which stage is named holds at every attempt.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headway import Pipeline
from headway.machine import cores

UNIT_S = 0.020
TIMES = {"read": 2.0, "parse": 1.0, "process": 4.0, "write": 3.0}
ROWS = 150
ATTEMPTS = 3
STEPS = [
    ({}, {}, 4.0, ["process"]),
    ({"parse": 0.5}, {}, 4.0, ["process"]),
    ({"read": 1.0}, {}, 4.0, ["process"]),
    ({"process": 3.0}, {}, 3.0, ["process", "write"]),  # which take the same
    ({}, {"process": 3}, 3.0, ["write"]),
    ({}, {"process": 3, "write": 2}, 2.0, ["read"]),
]
NAMES = ["as it is", "faster parse", "faster read", "faster process", "three process", "three process, two write"]


def sleeps(units: float) -> Callable[[int], int]:
    mine = threading.local()

    def call(row: int) -> int:
        start = time.perf_counter()
        due = start + units * UNIT_S - getattr(mine, "late", 0.0)
        time.sleep(max(0.0, due - start))  # the service time: real time is what is measured
        mine.late = time.perf_counter() - due
        return row

    return call


def sleeps_async(units: float) -> Callable[[int], Awaitable[int]]:
    late: list[float] = []

    async def call(row: int) -> int:
        start = time.perf_counter()
        due = start + units * UNIT_S - (late.pop() if late else 0.0)
        await asyncio.sleep(max(0.0, due - start))  # the service time: real time is what is measured
        late.append(time.perf_counter() - due)
        return row

    return call


@pytest.mark.slow
@pytest.mark.parametrize("on", ["thread", "task"])
@pytest.mark.parametrize(("changed", "workers", "period", "named"), STEPS, ids=NAMES)
def test_each_step_has_its_rate_within_three_percent_and_names_its_stage(
    on: str, changed: dict[str, float], workers: dict[str, int], period: float, named: list[str]
) -> None:
    theory, shares = 1 / (period * UNIT_S), list[float]()
    while len(shares) < ATTEMPTS and max(shares, default=0.0) < 0.97:
        with ThreadPoolExecutor(1) as beside:
            hand = beside.submit(rate_by_hand, TIMES | changed, workers)
            report = staircase(on, TIMES | changed, workers).run()
        assert report.items.written == ROWS
        assert report.bottleneck.verdict == "stage_limited"
        assert report.bottleneck.stage in named
        assert report.steady.rate <= 1.03 * theory
        shares.append(report.steady.rate / min(theory, hand.result()))
    if max(shares) < 0.97 and os.getloadavg()[0] > cores():
        pytest.skip(f"the machine is busy: {max(shares):.1%} of what it allows")
    assert max(shares) >= 0.97


def rate_by_hand(times: dict[str, float], workers: dict[str, int]) -> float:
    """Rows a second between the first and the last: a thread for each worker, and queues between them."""
    queues = [queue.Queue[Any](16) for _ in range(len(times) + 1)]
    done: list[float] = []

    def serve(call: Callable[[int], int], inbox: queue.Queue[Any], outbox: queue.Queue[Any]) -> None:
        while (row := inbox.get()) is not None:
            outbox.put(call(row))
        inbox.put(None)

    threads = [
        threading.Thread(target=serve, args=(sleeps(units), queues[at], queues[at + 1]))
        for at, (name, units) in enumerate(times.items())
        for _ in range(workers.get(name, 1))
    ]
    threads.append(threading.Thread(target=lambda: [queues[0].put(row) for row in range(ROWS)]))
    for thread in threads:
        thread.start()
    for _ in range(ROWS):
        queues[-1].get()
        done.append(time.perf_counter())
    for inbox in queues[:-1]:
        inbox.put(None)
    for thread in threads:
        thread.join()
    return (ROWS - 1) / (done[-1] - done[0])


def staircase(on: str, times: dict[str, float], workers: dict[str, int]) -> Pipeline[Any]:
    make: Any = sleeps if on == "thread" else sleeps_async
    pipeline: Pipeline[Any] = Pipeline(range(ROWS))
    for name, units in times.items():
        pipeline = pipeline.map(make(units), name=name, on=on, workers=workers.get(name, 1), queue=4)
    return pipeline
