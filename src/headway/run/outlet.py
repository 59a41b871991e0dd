"""The last slot of a run without a sink: whoever takes its values.

An outlet is a worker whose function is the consumer: a job is done when its values were taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout, Kept, handed_over
from headway.run.worker import Events

T = TypeVar("T")


_MAY_BE_KEPT = frozenset((Kept, list))


class _Untimed:
    """What a worker tells of its call, where that is the consumer's."""

    name = "the consumer"

    def running(self) -> tuple[int, float, float | None] | None:
        """What a consumer takes its time for is never limited."""
        return None

    def where(self) -> tuple[int, int, int] | None:
        """Nor is it a stall."""
        return None

    def stack(self, timeout_s: float) -> str:
        """It is the user's own."""
        return ""

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """Never called."""


class Discard(_Untimed):
    """Takes and drops every value; with `into`, keeps them in that list."""

    def __init__(self, into: list[Any] | None = None) -> None:
        self._into = into
        self.events: Events

    def start(self) -> None:
        """Nothing is to be opened."""
        self.events.ready(self)

    def submit(self, job: Job) -> None:
        """Take all values at once."""
        now = perf_counter()
        if self._into is not None:
            kept = not _MAY_BE_KEPT.isdisjoint(map(type, job.values))
            self._into.extend(map(handed_over, job.values) if kept else job.values)
        self.events.answered(self, Answer(job.ticket, len(job.values), started=now, stopped=perf_counter()))

    def resume(self, ticket: int, limit: int) -> None:
        """Never called: an outlet expands nothing."""

    def recall(self, ticket: int) -> None:
        """Too late: every job is answered within its dispatch."""

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Nothing is to be closed."""

    async def join(self, timeout_s: float) -> bool:
        """Nothing runs."""
        return True


class Outlet(_Untimed):
    """Gives values to a consumer that asks for them one by one, on a thread of its own or on a loop."""

    def __init__(self) -> None:
        self.events: Events
        self._job: Job | None = None
        self._next = 0
        self._started = 0.0
        self._left = False

    def start(self) -> None:
        """Nothing is to be opened."""
        self.events.ready(self)

    def submit(self, job: Job) -> None:
        """Offer a job to the consumer."""
        self._put(job)

    def resume(self, ticket: int, limit: int) -> None:
        """Never called: an outlet expands nothing."""

    def recall(self, ticket: int) -> None:
        """The consumer answers when it leaves or has taken all."""

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Tell the consumer that nothing more comes."""
        self._put(None)

    async def join(self, timeout_s: float) -> bool:
        """Nothing runs."""
        return True

    def _put(self, job: Job | None) -> None:
        raise NotImplementedError

    def _pop(self) -> Any:
        """The next value of the job in hand; IndexError at its end. What was taken is not held any longer."""
        job = self._job
        if job is None or self._next >= len(job.values):
            raise IndexError
        value = job.values[self._next]
        if type(value) is not Kept:  # the engine counts those when the job is answered
            job.values[self._next] = None
        self._next += 1
        return handed_over(value)

    def _begin(self, job: Job) -> None:
        self._job, self._next, self._started = job, 0, perf_counter()

    def answer(self) -> None:
        """Answer for the job in hand: what was taken of it is done."""
        if self._job is not None:
            answer = Answer(self._job.ticket, self._next, started=self._started, stopped=perf_counter())
            self._job = None
            self.events.answered(self, answer)


class ThreadOutlet(Outlet):
    """For a consumer on another thread than the loop: `take` blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def _put(self, job: Job | None) -> None:
        self._jobs.put(job)

    def take(self) -> Any:
        """The next value. Raises IndexError when the run has no more."""
        while True:
            try:
                return self._pop()
            except IndexError:
                self.answer()
                job = self._jobs.get()
                if job is None:
                    self._jobs.put(None)
                    raise
                self._begin(job)


class LoopOutlet(Outlet):
    """For a consumer on the loop itself: `take` waits."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: deque[Job | None] = deque()
        self._come = asyncio.Event()

    def _put(self, job: Job | None) -> None:
        self._jobs.append(job)
        self._come.set()

    async def take(self) -> Any:
        """The next value. Raises IndexError when the run has no more."""
        while True:
            try:
                return self._pop()
            except IndexError:
                self.answer()
                while not self._jobs:
                    self._come.clear()
                    await self._come.wait()
                job = self._jobs[0]
                if job is None:
                    raise
                self._jobs.popleft()
                self._begin(job)


async def take_one(values: AsyncIterator[T], hand: list[T]) -> bool:
    """Put the next of `values` into `hand`; whether there was one. No reference to it stays behind."""
    try:
        hand.append(await anext(values))
    except StopAsyncIteration:
        return False
    return True
