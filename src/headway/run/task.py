"""Workers on the run's own event loop: one persistent task for each slot."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque

from headway.call import Cell, is_async, raised
from headway.core.ticket import Answer, Job
from headway.run.worker import Events, Recipe, Session

HOLDS_LOOP_S = 0.1
"""A plain function that holds the loop for longer is warned of, once."""


def _cancelled() -> bool:
    """Whether the task that runs was told to end; user code can raise CancelledError without that."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TaskWorker:
    """One task, one session."""

    def __init__(self, recipe: Recipe, events: Events, name: str, warned: set[str]) -> None:
        self._recipe, self._events, self.name, self._warned = recipe, events, name, warned
        self._jobs: deque[tuple[Job, bool]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._ending: tuple[BaseException | None, bool] | None = None
        self._cell, self._ticket = Cell(), -1
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._main(), name=self.name)

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append((job, False))
        self._notify()

    def resume(self, ticket: int, limit: int) -> None:
        """Queue a paused expansion."""
        self._jobs.append((Job(ticket, [], (), limit), True))
        self._notify()

    def recall(self, ticket: int) -> None:
        """Stop a job."""
        for item in self._jobs:
            if item[0].ticket == ticket and not item[1]:
                self._jobs.remove(item)
                self._events.answered(self, Answer(ticket, 0))
                return
        if self._ticket == ticket:
            self._cell.stop = True

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """End: a call that waits is cancelled."""
        self._ending = error, commit
        if self._task is not None and self._ticket >= 0:
            self._cell.passes = (asyncio.CancelledError,)
            self._task.cancel()
        self._notify()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the task to end; one that swallows its cancellation is left behind."""
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        if done and not self._task.cancelled() and self._task.exception() is not None:
            raise self._task.exception()  # type: ignore[misc]
        return bool(done)

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
        self._events.ready(self)
        asynchronous = is_async(self._recipe.fn) or self._recipe.asynchronous
        try:
            while self._ending is None:
                if not self._jobs:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
                    continue
                job, resumed = self._jobs.popleft()
                self._cell, self._ticket = Cell(), job.ticket
                answer = await (
                    session.resume(job.ticket, job.limit, self._cell) if resumed else session.run(job, self._cell)
                )
                self._ticket = -1
                self._events.answered(self, answer)
                if not asynchronous:
                    self._check(answer)
                del answer  # its values are to go when the consumer lets go of them
                await asyncio.sleep(0)  # other slots, the driver and the user's own tasks get their turn
        except BaseException as error:
            if not _cancelled():  # a sink's commit; user functions never raise here
                self._events.broken(self, raised(error))
                self._ending = error, False
        error_, commit = self._ending or (None, False)
        try:
            await session.close(error_, commit=commit)
        except BaseException as error:
            self._events.broken(self, raised(error))

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
