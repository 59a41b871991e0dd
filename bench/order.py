"""What input order costs: two stages of eight workers, where one item in a hundred takes 200 ms.

The ideal is the recurrence of a greedy tandem of two FIFO stages with unbounded queues and the same
drawn service times. Re-sequencing at the end changes when a value leaves, not when the last one is
done, so an engine that keeps all workers fed reaches it.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from functools import partial

from headway import Pipeline, Report
from measure import Table, interleave, median

ITEMS = 1_000
WORKERS = 8
UNBOUNDED = 10 * ITEMS
"""A window that never fills."""

WINDOW = 256
UNBOUNDED_TARGET = 1.05
WINDOW_TARGET = 1.10


def draw(seed: int) -> list[tuple[float, float]]:
    """Service times in seconds of both stages, per item."""
    rng = random.Random(seed)
    return [
        (0.2 if rng.random() < 0.01 else rng.uniform(0.004, 0.012), rng.uniform(0.004, 0.012)) for _ in range(ITEMS)
    ]


def ideal(times: list[tuple[float, float]]) -> float:
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


def by_hand(times: list[tuple[float, float]]) -> list[int]:
    """The same with unbounded asyncio queues; gives the items in order of completion."""

    async def run() -> list[int]:
        first: asyncio.Queue[int] = asyncio.Queue()
        second: asyncio.Queue[int] = asyncio.Queue()
        done: list[int] = []

        async def serve(stage: int, inbox: asyncio.Queue[int], deliver: Callable[[int], object]) -> None:
            while True:
                item = await inbox.get()
                await asyncio.sleep(times[item][stage])
                deliver(item)
                inbox.task_done()

        for item in range(ITEMS):
            first.put_nowait(item)
        tasks = [asyncio.create_task(serve(0, first, second.put_nowait)) for _ in range(WORKERS)]
        tasks += [asyncio.create_task(serve(1, second, done.append)) for _ in range(WORKERS)]
        await first.join()
        await second.join()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    return asyncio.run(run())


def headway(times: list[tuple[float, float]], window: int) -> Report:
    """The same as a pipeline whose sink is in input order."""

    async def first(item: int) -> int:
        await asyncio.sleep(times[item][0])
        return item

    async def second(item: int) -> int:
        await asyncio.sleep(times[item][1])
        return item

    written: list[int] = []
    report = (
        Pipeline(range(ITEMS), window=window)
        .map(first, workers=WORKERS)
        .map(second, workers=WORKERS)
        .to(written.append)
        .run()
    )
    if written != list(range(ITEMS)):
        raise AssertionError("the sink was not in input order")
    return report


def bench() -> Table:
    """Measure all variants in turn."""
    times = draw(seed=15)
    bound = ideal(times)
    windows = {"headway, window unbounded": UNBOUNDED, f"headway, window {WINDOW}": WINDOW}
    variants: dict[str, Callable[[], object]] = {
        "asyncio.Queue by hand, unordered": partial(by_hand, times),
        **{name: partial(headway, times, window) for name, window in windows.items()},
    }
    samples = interleave(variants, rounds=5)
    table = Table(
        f"Order: 2 stages of {WORKERS} tasks, {ITEMS} items, 1% take 200 ms; ideal {bound:.3f} s",
        ("variant", "seconds", "x ideal", "x by hand", "peak held"),
    )
    wall = {name: median(sample.wall for sample in found) for name, found in samples.items()}
    hand = wall["asyncio.Queue by hand, unordered"]
    for name, seconds in wall.items():
        held = max((_peak_held(sample.result) for sample in samples[name]), default=0)
        table.row(name, seconds, seconds / bound, seconds / hand, held if name in windows else "-")
        if name in windows:
            target = UNBOUNDED_TARGET if windows[name] == UNBOUNDED else WINDOW_TARGET
            table.judge(f"{name}: time", seconds / bound, target, " x ideal")
            if windows[name] == WINDOW:
                table.judge(f"{name}: held", held, WINDOW - 1, " items")
    return table


def _peak_held(result: object) -> int:
    return max((gate.peak_held for gate in result.reorder), default=0) if isinstance(result, Report) else 0
