"""The staircase: Read 2, Parse 1, Process 4, Write 3 units, with time really spent.

Theory: the first row leaves after 10 units, then one row per period; the period is that of the
slowest stage. Three forms: as it is (4, Process limits), three Process workers (3, Write limits),
and two Write workers as well (2, Read limits).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from headway import Pipeline
from measure import Table, interleave, median

UNIT_S = 0.015
ROWS = 30
READ, PARSE, PROCESS, WRITE = 2, 1, 4, 3
ROW_UNITS = READ + PARSE + PROCESS + WRITE
FORMS = {"as it is": (1, 1, 4), "Process x 3": (3, 1, 3), "Process x 3, Write x 2": (3, 2, 2)}
"""Form -> Process workers, Write workers, period in units."""

THREAD_TARGET = 1.03
TASK_TARGET = 1.02
FIRST_TARGET = 1.1
END = object()


class Ends(NamedTuple):
    """Seconds from the start to the first row and to the last."""

    first: float
    last: float


def spend(units: int) -> Callable[[Any], Any]:
    """Make a stage that takes so many units."""

    def stage(row: Any) -> Any:
        time.sleep(units * UNIT_S)
        return row

    return stage


def spend_async(units: int) -> Callable[[Any], Any]:
    """Make an async stage that takes so many units."""

    async def stage(row: Any) -> Any:
        await asyncio.sleep(units * UNIT_S)
        return row

    return stage


def rows() -> Iterator[int]:
    """Read: each row takes its units."""
    for row in range(ROWS):
        time.sleep(READ * UNIT_S)
        yield row


async def rows_async() -> AsyncIterator[int]:
    """Read: each row takes its units."""
    for row in range(ROWS):
        await asyncio.sleep(READ * UNIT_S)
        yield row


def headway_threads(process: int, write: int) -> Ends:
    """Threads, by a pipeline."""
    start = time.perf_counter()
    pipeline = (
        Pipeline(rows)
        .map(spend(PARSE), name="parse")
        .map(spend(PROCESS), name="process", workers=process)
        .map(spend(WRITE), name="write", workers=write)
    )
    return _ends(start, [(time.perf_counter(), row) for row in pipeline])


def headway_tasks(process: int, write: int) -> Ends:
    """Tasks, by a pipeline."""

    async def run() -> Ends:
        start = time.perf_counter()
        pipeline = (
            Pipeline(rows_async)
            .map(spend_async(PARSE), name="parse")
            .map(spend_async(PROCESS), name="process", workers=process)
            .map(spend_async(WRITE), name="write", workers=write)
        )
        return _ends(start, [(time.perf_counter(), row) async for row in pipeline])

    return asyncio.run(run())


def hand_threads(process: int, write: int) -> Ends:
    """Threads and queue.Queue, by hand; unordered where workers are many."""
    start = time.perf_counter()
    queues: list[queue.Queue[Any]] = [queue.Queue(16) for _ in range(4)]

    def read() -> None:
        for row in rows():
            queues[0].put(row)

    def serve(stage: Callable[[Any], Any], inbox: queue.Queue[Any], outbox: queue.Queue[Any]) -> None:
        while (row := inbox.get()) is not END:
            outbox.put(stage(row))
        inbox.put(END)  # for the next worker of the stage

    stages = [(PARSE, 1), (PROCESS, process), (WRITE, write)]
    threads = [threading.Thread(target=read)]
    for at, (units, workers) in enumerate(stages):
        threads += [
            threading.Thread(target=serve, args=(spend(units), queues[at], queues[at + 1])) for _ in range(workers)
        ]
    for thread in threads:
        thread.start()
    found: list[tuple[float, int]] = []
    for _ in range(ROWS):
        row = queues[-1].get()
        found.append((time.perf_counter(), row))
    for inbox in queues[:-1]:
        inbox.put(END)
    for thread in threads:
        thread.join()
    return _ends(start, sorted(found))


def hand_tasks(process: int, write: int) -> Ends:
    """Tasks and asyncio.Queue, by hand; unordered where workers are many."""

    async def run() -> Ends:
        start = time.perf_counter()
        queues: list[asyncio.Queue[Any]] = [asyncio.Queue(16) for _ in range(4)]

        async def read() -> None:
            async for row in rows_async():
                await queues[0].put(row)

        async def serve(stage: Callable[[Any], Any], inbox: asyncio.Queue[Any], outbox: asyncio.Queue[Any]) -> None:
            while True:
                await outbox.put(await stage(await inbox.get()))

        tasks = [asyncio.create_task(read())]
        for at, (units, workers) in enumerate([(PARSE, 1), (PROCESS, process), (WRITE, write)]):
            stage = spend_async(units)
            tasks += [asyncio.create_task(serve(stage, queues[at], queues[at + 1])) for _ in range(workers)]
        found = []
        for _ in range(ROWS):
            row = await queues[-1].get()
            found.append((time.perf_counter(), row))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return _ends(start, sorted(found))

    return asyncio.run(run())


def _ends(start: float, found: list[tuple[float, int]]) -> Ends:
    if sorted(row for _, row in found) != list(range(ROWS)):
        raise AssertionError("rows are missing")
    return Ends(found[0][0] - start, found[-1][0] - start)


def bench() -> Table:
    """Measure all forms on both kinds in turn."""
    kinds = {
        "threads by hand": hand_threads,
        "headway thread": headway_threads,
        "tasks by hand": hand_tasks,
        "headway task": headway_tasks,
    }
    variants = {
        f"{kind}, {form}": partial(run, process, write)
        for form, (process, write, _) in FORMS.items()
        for kind, run in kinds.items()
    }
    samples = interleave(variants, rounds=3)
    table = Table(
        f"Staircase: {READ}/{PARSE}/{PROCESS}/{WRITE} units of {UNIT_S * 1e3:g} ms, {ROWS} rows",
        ("variant", "seconds", "x theory", "x by hand", "first row, in row times"),
    )
    for form, (_, _, period) in FORMS.items():
        theory = (ROW_UNITS + (ROWS - 1) * period) * UNIT_S
        last = {kind: median(sample.result.last for sample in samples[f"{kind}, {form}"]) for kind in kinds}
        first = {kind: median(sample.result.first for sample in samples[f"{kind}, {form}"]) for kind in kinds}
        for kind in kinds:
            hand = last["threads by hand" if "thread" in kind else "tasks by hand"]
            table.row(
                f"{kind}, {form}",
                last[kind],
                last[kind] / theory,
                last[kind] / hand,
                first[kind] / (ROW_UNITS * UNIT_S),
            )
        table.judge(f"threads, {form}", last["headway thread"] / theory, THREAD_TARGET, " x theory")
        table.judge(f"tasks, {form}", last["headway task"] / last["tasks by hand"], TASK_TARGET, " x by hand")
        for kind in ("headway thread", "headway task"):
            table.judge(f"{kind}, {form}: first row", first[kind] / (ROW_UNITS * UNIT_S), FIRST_TARGET, " row times")
    return table
