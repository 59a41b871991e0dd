"""What it costs to hand an item on: four trivial stages, in input order, with all counters running.

The figure is CPU time of the whole process per item and stage, the call of the function included.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from headway import Pipeline
from measure import Table, interleave, median

STAGES = 4
ITEMS = 400_000
ITEMS_ONE_BY_ONE = 20_000
"""Fewer for the variants that pay a queue operation for every item; costs are per item."""

ASYNC_TARGET_US = 0.25
THREAD_TARGET_US = 0.3
END = object()


def same(value: int) -> int:
    """Return the value."""
    return value


async def async_same(value: int) -> int:
    """Return the value."""
    return value


def plain_loop() -> int:
    """Call the functions directly."""
    count = 0
    for item in range(ITEMS):
        value = item
        for _ in range(STAGES):
            value = same(value)
        count += 1
    return count


def plain_async_loop() -> int:
    """Await the coroutine functions directly."""

    async def run() -> int:
        count = 0
        for item in range(ITEMS):
            value = item
            for _ in range(STAGES):
                value = await async_same(value)
            count += 1
        return count

    return asyncio.run(run())


def queue_threads() -> int:
    """One thread per stage, joined by bounded queues."""
    queues: list[queue.Queue[Any]] = [queue.Queue(1024) for _ in range(STAGES + 1)]

    def feed() -> None:
        for item in range(ITEMS_ONE_BY_ONE):
            queues[0].put(item)
        queues[0].put(END)

    def serve(inbox: queue.Queue[Any], outbox: queue.Queue[Any]) -> None:
        while (item := inbox.get()) is not END:
            outbox.put(same(item))
        outbox.put(END)

    threads = [threading.Thread(target=feed)]
    threads += [threading.Thread(target=serve, args=queues[at : at + 2]) for at in range(STAGES)]
    for thread in threads:
        thread.start()
    count = 0
    while queues[-1].get() is not END:
        count += 1
    for thread in threads:
        thread.join()
    return count


def queue_tasks() -> int:
    """One task per stage, joined by bounded queues."""

    async def run() -> int:
        queues: list[asyncio.Queue[Any]] = [asyncio.Queue(1024) for _ in range(STAGES + 1)]

        async def feed() -> None:
            for item in range(ITEMS_ONE_BY_ONE):
                await queues[0].put(item)
            await queues[0].put(END)

        async def serve(inbox: asyncio.Queue[Any], outbox: asyncio.Queue[Any]) -> None:
            while (item := await inbox.get()) is not END:
                await outbox.put(await async_same(item))
            await outbox.put(END)

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            for at in range(STAGES):
                group.create_task(serve(queues[at], queues[at + 1]))
            count = 0
            while await queues[-1].get() is not END:
                count += 1
        return count

    return asyncio.run(run())


def headway(on: Literal["task", "thread", "process"], workers: int = 1) -> int:
    """The same four stages as a pipeline; the consumer is in input order."""
    pipeline: Pipeline[int] = Pipeline(range(ITEMS))
    for _ in range(STAGES):
        pipeline = pipeline.map(same, on=on, workers=workers)
    return int(pipeline.run().items.written)


def headway_async() -> int:
    """The same with coroutine functions on tasks."""
    pipeline: Pipeline[int] = Pipeline(range(ITEMS))
    for _ in range(STAGES):
        pipeline = pipeline.map(async_same)
    return int(pipeline.run().items.written)


def bench() -> Table:
    """Measure all variants in turn."""
    variants: dict[str, tuple[int, Callable[[], int]]] = {
        "plain loop, def": (ITEMS, plain_loop),
        "plain loop, async def": (ITEMS, plain_async_loop),
        "queue.Queue, 4 threads": (ITEMS_ONE_BY_ONE, queue_threads),
        "asyncio.Queue, 4 tasks": (ITEMS_ONE_BY_ONE, queue_tasks),
        "headway task, async def": (ITEMS, headway_async),
        "headway task, def": (ITEMS, partial(headway, "task")),
        "headway thread": (ITEMS, partial(headway, "thread")),
        "headway thread x 2, re-sequenced": (ITEMS, partial(headway, "thread", 2)),
    }
    samples = interleave({name: run for name, (_, run) in variants.items()}, rounds=5)
    cpu: dict[str, float] = {}
    table = Table(
        f"Hand-off: {STAGES} trivial stages, input order, counters on",
        ("variant", "CPU µs / item and stage", "wall µs", "x plain loop", "x queue.Queue", "x asyncio.Queue"),
    )
    for name, (items, _) in variants.items():
        for sample in samples[name]:
            if sample.result != items:
                raise AssertionError(f"{name}: {sample.result} of {items} items arrived")
        cpu[name] = median(sample.cpu for sample in samples[name]) / (items * STAGES) * 1e6
    for name, (items, _) in variants.items():
        wall = median(sample.wall for sample in samples[name]) / (items * STAGES) * 1e6
        base = "plain loop, async def" if "async def" in name else "plain loop, def"
        table.row(
            name,
            cpu[name],
            wall,
            cpu[name] / cpu[base],
            cpu[name] / cpu["queue.Queue, 4 threads"],
            cpu[name] / cpu["asyncio.Queue, 4 tasks"],
        )
    table.judge("async, per item and stage", cpu["headway task, async def"], ASYNC_TARGET_US, " µs")
    table.judge("thread, per item and stage", cpu["headway thread"], THREAD_TARGET_US, " µs")
    return table
