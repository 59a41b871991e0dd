"""A worker whose call is given up: what it answers, what it starts, when it is a zombie."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout
from headway.run.executor import ExecutorWorker
from headway.run.task import TaskWorker
from headway.run.thread import ThreadWorker
from headway.run.worker import Recipe

WHY = ItemTimeout("too long", stage="s")


class Log:
    """Events in order, and a way to wait for their number from a loop."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def ready(self, worker: Any) -> None:
        self.events.append("ready")

    def broken(self, worker: Any, why: Any) -> None:
        self.events.append(("broken", why.error))

    def died(self, worker: Any, why: Any, answer: Any, cursor: Any) -> None:
        self.events.append("died")

    def answered(self, worker: Any, answer: Answer) -> None:
        failed = [type(why.error).__name__ for _, why in answer.failed]
        self.events.append((answer.ticket, answer.taken, answer.values, failed))

    def zombie(self, worker: Any, *, alive: bool) -> None:
        self.events.append(("zombie", alive))

    async def until(self, number: int) -> None:
        while len(self.events) < number:  # noqa: ASYNC110 - some come from threads
            await asyncio.sleep(0)  # a turn of the loop


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)  # a turn of the loop


def job(ticket: int, *values: Any, epoch: int = 0) -> Job:
    return Job(ticket, list(values), range(len(values)), epoch=epoch)


def recipe(fn: Any, **more: Any) -> Recipe:
    return Recipe("map", "s", fn, timed=True, **more)


GONE = [("zombie", True), (1, 2, [0], ["ItemTimeout"]), (2, 0, [], [])]
"""What is told of a worker with jobs 1 and 2 that is left to its call."""


@pytest.mark.parametrize("kind", ["thread", "executor"])
def test_a_thread_is_left_to_its_call_and_starts_nothing_more(kind):
    inside, go_on, called = threading.Event(), threading.Event(), []

    def fn(value):
        called.append(value)
        if value == 1:
            inside.set()
            go_on.wait()
        return value

    async def main(pool):
        log = Log()
        context = contextvars.copy_context()
        if kind == "thread":
            worker: Any = ThreadWorker(recipe(fn), log, "w", context)
        else:
            worker = ExecutorWorker(recipe(fn), None, log, "w", pool, context)
        worker.start()
        worker.submit(job(1, 0, 1, 2))
        worker.submit(job(2, 3))
        await until(inside.is_set)
        assert worker.running()[0] == 1
        worker.give_up(1, WHY)
        assert worker.running() is None
        worker.submit(job(3, 4))
        told = [event for event in log.events if event != "ready"]
        assert told == [*GONE, (3, 0, [], [])]
        go_on.set()
        await log.until(len(log.events) + 1)
        assert log.events[-1] == ("zombie", False)
        worker.stop(None, commit=False)
        assert await worker.join(5)
        assert called == [0, 1]

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(main(pool))


def test_the_resource_of_a_thread_that_was_given_up_is_closed_when_its_call_ends():
    inside, go_on, closed = threading.Event(), threading.Event(), []

    class Connection:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            closed.append(True)

    def fn(value, connection):
        inside.set()
        go_on.wait()

    async def main():
        log = Log()
        worker = ThreadWorker(recipe(fn, setup=Connection), log, "w", contextvars.copy_context())
        worker.start()
        worker.submit(job(1, 0))
        await until(inside.is_set)
        worker.running()
        worker.give_up(1, WHY)
        assert not closed
        go_on.set()
        assert await worker.join(5)
        assert closed == [True]

    asyncio.run(main())


ENDINGS = ["cancelled", "swallows and returns", "raises something else", "swallows twice"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_takes_its_cancellation_costs_the_worker_nothing(ending):
    inside, called = asyncio.Event(), []

    async def fn(value):
        called.append(value)
        if value != 1:
            return value
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending == "swallows and returns":
                return "late"
            if ending == "raises something else":
                raise KeyError from None
            if ending == "swallows twice":
                await asyncio.sleep(0)  # a turn of the loop
                return "later"
            raise

    async def main():
        log = Log()
        worker = TaskWorker(recipe(fn, grace=60), log, "w", set(), contextvars.copy_context())
        worker.start()
        worker.submit(job(1, 0, 1, 2))
        worker.submit(job(2, 3))
        await inside.wait()
        worker.running()
        worker.give_up(1, WHY)
        assert log.events == ["ready", GONE[1]]
        await log.until(3)
        assert log.events[2:] == [(2, 0, [], [])], "what is left of the first job goes before it"
        assert called == [0, 1]
        for number in (3, 4):
            worker.submit(job(number, number, 5, epoch=1))
        await log.until(5)
        assert log.events[3:] == [(3, 2, [3, 5], []), (4, 2, [4, 5], [])]
        worker.stop(None, commit=False)
        assert await worker.join(5)

    asyncio.run(main())


def test_a_task_that_swallows_its_cancellation_is_left_after_the_grace():
    inside, go_on, called = asyncio.Event(), asyncio.Event(), []

    async def fn(value):
        called.append(value)
        inside.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()
        return value

    async def main():
        log = Log()
        worker = TaskWorker(recipe(fn, grace=0), log, "w", set(), contextvars.copy_context())
        worker.start()
        worker.submit(job(1, 0))
        worker.submit(job(2, 1))
        await inside.wait()
        worker.running()
        worker.give_up(1, WHY)
        await log.until(4)
        assert log.events[1:] == [(1, 1, [], ["ItemTimeout"]), ("zombie", True), (2, 0, [], [])]
        worker.stop(None, commit=False)
        assert not await worker.join(5)
        go_on.set()
        await log.until(5)
        assert log.events[-1] == ("zombie", False)
        assert called == [0]

    asyncio.run(main())


def test_after_a_failure_that_halts_jobs_of_its_epoch_are_given_back():
    def fn(value):
        if value == 1:
            raise ConnectionError
        return value

    async def afn(value):
        return fn(value)

    async def main():
        for kind in ("thread", "task"):
            log, context = Log(), contextvars.copy_context()
            worker: Any = (
                ThreadWorker(recipe(fn, halts=(ConnectionError,)), log, "w", context)
                if kind == "thread"
                else TaskWorker(recipe(afn, halts=(ConnectionError,)), log, "w", set(), context)
            )
            for each in (job(1, 0, 1, 2), job(2, 3), job(3, 4, epoch=1)):
                worker.submit(each)
            worker.start()
            await log.until(4)
            assert log.events == ["ready", (1, 2, [0], ["ConnectionError"]), (2, 0, [], []), (3, 1, [4], [])]
            worker.stop(None, commit=False)
            assert await worker.join(5)

    asyncio.run(main())


def test_an_expansion_that_goes_on_is_of_the_epoch_that_it_goes_on_in():
    def fn(value):
        yield value
        raise ConnectionError

    async def afn(value):
        yield value
        raise ConnectionError

    async def main():
        for kind in ("thread", "task"):
            log, context = Log(), contextvars.copy_context()
            expands = Recipe("flat_map", "s", fn if kind == "thread" else afn, halts=(ConnectionError,))
            worker: Any = (
                ThreadWorker(expands, log, "w", context)
                if kind == "thread"
                else TaskWorker(expands, log, "w", set(), context)
            )
            worker.start()
            worker.submit(Job(1, [7], (0,), 1, epoch=1))
            await log.until(2)
            worker.submit(Job(1, [], (), 1, epoch=2, resumed=1))
            worker.submit(Job(2, [8], (1,), 9, epoch=2))
            await log.until(4)
            assert log.events == ["ready", (1, 0, [7], []), (1, 1, [], ["ConnectionError"]), (2, 0, [], [])]
            worker.stop(None, commit=False)
            assert await worker.join(5)

    asyncio.run(main())
