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

    def recall(self, ticket: int) -> None:
        """Too late: every job is answered within its dispatch."""

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Nothing is to be closed."""

    async def join(self, timeout_s: float) -> bool:
        """Nothing runs."""
        return True


class _Hand:
    """A job that the consumer takes value by value.

    Values are claimed from one iterator, whose steps are atomic: whoever exhausts it first has taken the rest,
    exactly. ``open`` holds one token, taken by whoever answers.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.items, self.open = job, iter(job.values), deque([True])
        self.next, self.started = 0, perf_counter()

    def pop(self) -> Any:
        """The next value; IndexError at the end. What was taken is not held any longer."""
        try:
            value = next(self.items)
        except StopIteration:
            raise IndexError from None
        if type(value) is not Kept:  # the engine counts those when the job is answered
            self.job.values[self.next] = None
        self.next += 1
        return handed_over(value)

    def close(self) -> Answer | None:
        """End it here: the answer for what was taken, once."""
        rest = len(list(self.items))
        try:
            self.open.pop()
        except IndexError:
            return None
        taken = len(self.job.values) - rest
        return Answer(self.job.ticket, taken, started=self.started, stopped=perf_counter())


class Outlet(_Untimed):
    """Gives values to a consumer that asks for them one by one, on a thread of its own or on a loop."""

    def __init__(self) -> None:
        self.events: Events
        self._given: _Hand | None = None
        self._hand: _Hand | None = None

    def start(self) -> None:
        """Nothing is to be opened."""
        self.events.ready(self)

    def submit(self, job: Job) -> None:
        """Offer a job to the consumer."""
        self._given = _Hand(job)
        self._put(self._given)

    def recall(self, ticket: int) -> None:
        """Take back what the consumer has not taken yet."""
        if self._given is not None and self._given.job.ticket == ticket:
            self._answer(self._given)

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Tell the consumer that nothing more comes."""
        self._put(None)

    async def join(self, timeout_s: float) -> bool:
        """Nothing runs."""
        return True

    def _put(self, hand: _Hand | None) -> None:
        raise NotImplementedError

    def _pop(self) -> Any:
        if self._hand is None:
            raise IndexError
        return self._hand.pop()

    def _answer(self, hand: _Hand) -> None:
        answer = hand.close()
        if answer is not None:
            self.events.answered(self, answer)

    def answer(self) -> None:
        """Answer for the job in hand: what was taken of it is done."""
        hand, self._hand = self._hand, None
        if hand is not None:
            self._answer(hand)


class ThreadOutlet(Outlet):
    """For a consumer on another thread than the loop: `take` blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._hands: SimpleQueue[_Hand | None] = SimpleQueue()

    def _put(self, hand: _Hand | None) -> None:
        self._hands.put(hand)

    def take(self) -> Any:
        """The next value. Raises IndexError when the run has no more."""
        while True:
            try:
                return self._pop()
            except IndexError:
                self.answer()
                self._hand = self._hands.get()
                if self._hand is None:
                    self._hands.put(None)
                    raise


class LoopOutlet(Outlet):
    """For a consumer on the loop itself: `take` waits."""

    def __init__(self) -> None:
        super().__init__()
        self._hands: deque[_Hand | None] = deque()
        self._come = asyncio.Event()

    def _put(self, hand: _Hand | None) -> None:
        self._hands.append(hand)
        self._come.set()

    async def take(self) -> Any:
        """The next value. Raises IndexError when the run has no more."""
        while True:
            try:
                return self._pop()
            except IndexError:
                self.answer()
                while not self._hands:
                    self._come.clear()
                    await self._come.wait()
                if self._hands[0] is None:
                    raise
                self._hand = self._hands.popleft()


async def take_one(values: AsyncIterator[T], hand: list[T]) -> bool:
    """Put the next of `values` into `hand`; whether there was one. No reference to it stays behind."""
    try:
        hand.append(await anext(values))
    except StopAsyncIteration:
        return False
    return True
