"""What input order costs: two stages of eight workers, where one item in a hundred takes 200 ms.

The ideal is the recurrence of a greedy tandem of two FIFO stages with unbounded queues and the same
drawn service times. Re-sequencing at the end changes when a value leaves, not when the last one is
done, so an engine that keeps all workers fed reaches it.

A sleep of the event loop ends up to a millisecond late, whoever asked for it. So the recurrence is also
computed for the times that the calls really took; the ratio to that one is what the engine adds.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from headway import Pipeline
from measure import Table, interleave, median

ITEMS = 1_000
WORKERS = 8
UNBOUNDED = 10 * ITEMS
"""A window that never fills."""

WINDOW = 256
UNBOUNDED_TARGET = 1.05
WINDOW_TARGET = 1.10

Times = list[tuple[float, float]]
"""Service times in seconds of both stages, per item."""


def draw(seed: int) -> Times:
    """Service times in seconds of both stages, per item."""
    rng = random.Random(seed)
    return [
        (0.2 if rng.random() < 0.01 else rng.uniform(0.004, 0.012), rng.uniform(0.004, 0.012)) for _ in range(ITEMS)
    ]


def ideal(times: Times) -> float:
    """When the last item leaves the tandem."""
    arrivals = [0.0] * len(times)
    for stage in range(2):
        free = [0.0] * WORKERS
        done = [0.0] * len(times)
        for item in sorted(range(len(times)), key=lambda item: arrivals[item]):
            start = max(heapq.heappop(free), arrivals[item])
            done[item] = start + times[item][stage]
            heapq.heappush(free, done[item])
        arrivals = done
    return max(arrivals)


class Result(NamedTuple):
    """How long each call really took, and how many items the gate held at most."""

    took: Times
    peak_held: int


def sleeper(times: Times, took: list[list[float]], stage: int) -> Callable[[int], Awaitable[int]]:
    """Make a stage that sleeps for the drawn time and notes the real one."""

    async def sleep(item: int) -> int:
        start = time.perf_counter()
        await asyncio.sleep(times[item][stage])
        took[stage][item] = time.perf_counter() - start
        return item

    return sleep


def by_hand(times: Times) -> Result:
    """Run both stages on unbounded asyncio queues, without any order."""
    took = [[0.0] * ITEMS, [0.0] * ITEMS]

    async def run() -> None:
        first: asyncio.Queue[int] = asyncio.Queue()
        second: asyncio.Queue[int] = asyncio.Queue()

        async def serve(
            stage: Callable[[int], Awaitable[int]], inbox: asyncio.Queue[int], outbox: asyncio.Queue[int] | None
        ) -> None:
            while True:
                item = await stage(await inbox.get())
                if outbox is not None:
                    outbox.put_nowait(item)
                inbox.task_done()

        for item in range(ITEMS):
            first.put_nowait(item)
        tasks = [asyncio.create_task(serve(sleeper(times, took, 0), first, second)) for _ in range(WORKERS)]
        tasks += [asyncio.create_task(serve(sleeper(times, took, 1), second, None)) for _ in range(WORKERS)]
        await first.join()
        await second.join()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    return Result(list(zip(*took, strict=True)), 0)


def headway(times: Times, window: int) -> Result:
    """Run both stages as a pipeline whose sink is in input order."""
    took = [[0.0] * ITEMS, [0.0] * ITEMS]
    written: list[int] = []
    report = (
        Pipeline(range(ITEMS), window=window)
        .map(sleeper(times, took, 0), workers=WORKERS, name="first")
        .map(sleeper(times, took, 1), workers=WORKERS, name="second")
        .to(written.append)
        .run()
    )
    if written != list(range(ITEMS)):
        raise AssertionError("the sink was not in input order")
    return Result(list(zip(*took, strict=True)), max(gate.peak_held for gate in report.reorder))


def bench() -> Table:
    """Measure all variants in turn."""
    times = draw(seed=15)
    bound = ideal(times)
    windows = {"headway, window unbounded": UNBOUNDED, f"headway, window {WINDOW}": WINDOW}
    hand = "asyncio.Queue by hand, unordered"
    variants = {hand: partial(by_hand, times)} | {
        name: partial(headway, times, window) for name, window in windows.items()
    }
    samples = interleave(variants, rounds=5)
    table = Table(
        f"Order: 2 stages of {WORKERS} tasks, {ITEMS} items, 1% take 200 ms; ideal {bound:.3f} s",
        ("variant", "seconds", "x ideal", "x ideal of real sleeps", "x by hand", "peak held"),
    )
    wall = {name: median(sample.wall for sample in found) for name, found in samples.items()}
    for name, found in samples.items():
        added = median(sample.wall / ideal(sample.result.took) for sample in found)
        held = max(sample.result.peak_held for sample in found)
        table.row(name, wall[name], wall[name] / bound, added, wall[name] / wall[hand], held)
        if name in windows:
            target = UNBOUNDED_TARGET if windows[name] == UNBOUNDED else WINDOW_TARGET
            table.judge(f"{name}: time", wall[name] / bound, target, " x ideal")
            table.judge(f"{name}: time, against real sleeps", added, target, " x ideal")
        if name in windows and windows[name] == WINDOW:
            table.judge(f"{name}: held", held, WINDOW - 1, " items")
    return table
