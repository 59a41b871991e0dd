"""Workers on the run's own event loop: one persistent task for each slot."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections import deque
from time import perf_counter
from types import FrameType
from typing import Any

from headway.call import is_async, raised, unstarted
from headway.claim import Cell, user_frames
from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout
from headway.run.worker import Events, Recipe, Session

HOLDS_LOOP_S = 0.1
"""A plain function that holds the loop for longer is warned of, once."""


def _cancelled() -> bool:
    """Whether the task that runs was told to end; user code can raise CancelledError without that."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TaskWorker:
    """One task, one session."""

    def __init__(
        self, recipe: Recipe, events: Events, name: str, warned: set[str], context: contextvars.Context
    ) -> None:
        self._recipe, self._events, self.name, self._warned = recipe, events, name, warned
        self._context = context
        self._jobs: deque[Job] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._ending: tuple[BaseException | None, bool] | None = None
        self._cell, self._ticket, self._seen = Cell(), -1, 0.0
        self._open = False
        self._halted = self._epoch = -1
        self._task: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._left = self._commits = False
        self._gone: asyncio.Future[None]

    def start(self) -> None:
        """Start the task."""
        self._gone = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._main(), name=self.name, context=self._context)

    def submit(self, job: Job) -> None:
        """Queue a job."""
        if self._left:
            self._events.answered(self, unstarted(job))
            return
        self._jobs.append(job)
        self._notify()

    def recall(self, ticket: int) -> None:
        """Stop a job."""
        for job in self._jobs:
            if job.ticket == ticket and not job.resumed:
                self._jobs.remove(job)
                self._events.answered(self, Answer(ticket, 0))
                return
        if self._ticket == ticket:
            self._cell.cut()

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs now, where the stage is timed."""
        running = self._cell.running()
        self._seen = running[1] if running is not None else 0.0
        return running

    def where(self) -> tuple[int, int, int] | None:
        """What is in hand."""
        return self._cell.where()

    def stack(self, timeout_s: float) -> str:
        """Where the coroutine of the job waits."""
        return user_frames(_frames(getattr(self._cell, "coroutine", None)))

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """Answer, and cancel the call; if it has not ended within the grace, leave the task to it.

        What is left of its job goes before what waits here, which is given back.
        """
        if self._ticket != ticket or self._task is None:
            return
        answer = self._cell.abandon(raised(why), self._seen, perf_counter())
        if answer is None:
            return
        answer.halted, self._halted = True, self._epoch
        self._task.cancel()
        self._grace = asyncio.get_running_loop().call_later(self._recipe.grace, self._leave)
        self._events.answered(self, answer)

    def _leave(self) -> None:
        """The call swallows its cancellation: start nothing more."""
        self._left = True
        self._cell.passes = (GeneratorExit,)  # whatever becomes of the call now, it is not an outcome
        if not self._gone.done():
            self._gone.set_result(None)
        self._events.zombie(self, alive=True)  # first, so that what is answered for meets another worker
        while self._jobs:
            self._events.answered(self, unstarted(self._jobs.popleft()))

    def commit(self) -> None:
        """Have the sink committed."""
        self._commits = True
        self._notify()

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """End: a call that waits is cancelled."""
        self._ending = error, commit and not self._left
        if self._task is not None and (self._ticket >= 0 or not self._open):
            self._cell.passes = (asyncio.CancelledError, GeneratorExit)
            self._task.cancel()
        self._notify()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the task to end; one that swallows its cancellation is left behind."""
        if self._task is None:
            return True
        await asyncio.wait([self._task, self._gone], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not (self._task.done() or self._gone.done()):  # it opens or closes something that does not come to an end
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._recipe.grace)
        done = self._task.done()
        if done and not self._task.cancelled() and self._task.exception() is not None:
            raise self._task.exception()  # type: ignore[misc]
        return done

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _main(self) -> None:
        session: Session | None = None
        try:
            session = Session(self._recipe, None)
            await session.open()
        except BaseException as error:
            if _cancelled():
                raise
            self._events.broken(self, raised(error))
            return
        self._open = True
        self._events.ready(self)
        try:
            await self._serve(session)
        except GeneratorExit:  # its loop is gone
            raise
        except BaseException as error:
            if not _cancelled():  # a sink's commit; user functions never raise here
                self._events.broken(self, raised(error))
                self._ending = error, False
        if self._grace is not None:
            self._grace.cancel()
        if self._left:
            self._events.zombie(self, alive=False)
            if self._recipe.is_sink:  # one object: it is its successor's to close
                return
        error_, commit = self._ending or (None, False)
        try:
            await session.close(error_, commit=commit)
        except BaseException as error:
            self._events.broken(self, raised(error))

    async def _serve(self, session: Session) -> None:
        asynchronous = is_async(self._recipe.fn) or self._recipe.asynchronous
        while self._ending is None and not self._left:
            if self._commits:
                self._commits = False
                self._events.committed(self, await session.commit())
            if not self._jobs:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
                continue
            job = self._jobs.popleft()
            if job.epoch <= self._halted and not job.resumed:
                self._events.answered(self, Answer(job.ticket, 0))
                continue
            self._cell, self._ticket, self._epoch = Cell(), job.ticket, job.epoch
            answer = await session.run(job, self._cell)
            self._ticket = -1
            if self._cell.abandoned:
                self._take_back()
            else:
                if answer.halted:
                    self._halted = max(self._halted, job.epoch)
                self._events.answered(self, answer)
                if not asynchronous:
                    self._check(answer)
                self._cell = Cell()
            del answer, job  # values are to go when the consumer lets go of them
            await asyncio.sleep(0)  # other slots, the driver and the user's own tasks get their turn

    def _take_back(self) -> None:
        """The call that was given up has ended: what cancelled it concerned it alone."""
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _check(self, answer: Answer) -> None:
        held = (answer.stopped - answer.started) / max(1, answer.taken)
        if held > HOLDS_LOOP_S and self._recipe.name not in self._warned:
            self._warned.add(self._recipe.name)
            warnings.warn(
                f"stage {self._recipe.name!r}: a plain function held the event loop for {held:.2f} s; "
                'give it on="thread", or make it async',
                RuntimeWarning,
                stacklevel=2,
            )


def _frames(waiting: Any) -> list[FrameType]:
    """The frames of a coroutine and of what it waits for, outermost first."""
    frames = []
    while waiting is not None:
        kind = next((k for k in ("cr", "gi", "ag") if hasattr(waiting, f"{k}_frame")), None)
        if kind is None:
            break
        if (frame := getattr(waiting, f"{kind}_frame")) is not None:
            frames.append(frame)
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return frames
