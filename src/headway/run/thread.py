"""Workers on daemon threads of their own: a call that hangs never keeps the interpreter from ending."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from time import thread_time
from typing import Any

from headway.call import Cell, drive, raised
from headway.core.ticket import Answer, Job
from headway.run.worker import Events, Recipe, Session


class JobQueue:
    """Jobs in the hands of one worker: taken one by one, or recalled before they start."""

    def __init__(self, new_cell: Callable[[], Cell] = Cell) -> None:
        self._new_cell = new_cell
        self._jobs: deque[tuple[Job, bool]] = deque()
        self._recalled: set[int] = set()
        self._ticket = -1
        self._cell = Cell()

    def add(self, job: Job, *, resumed: bool = False) -> None:
        """Queue a job; `resumed`: it continues a paused expansion."""
        self._jobs.append((job, resumed))

    def take(self) -> tuple[Job, bool, Cell] | None:
        """The next job and the cell that a recall reaches it by; None if it was recalled meanwhile."""
        try:
            job, resumed = self._jobs.popleft()
        except IndexError:
            return None
        self._cell = cell = self._new_cell()
        self._ticket = job.ticket
        if job.ticket in self._recalled:
            self._recalled.discard(job.ticket)
            cell.stop = True
        return job, resumed, cell

    def recall(self, ticket: int) -> Answer | None:
        """Stop the job of `ticket`. If it has not started, the answer is ready at once."""
        self._recalled.add(ticket)
        for item in list(self._jobs):
            if item[0].ticket == ticket and not item[1]:
                try:
                    self._jobs.remove(item)
                except ValueError:  # it has just been taken
                    break
                self._recalled.discard(ticket)
                return Answer(ticket, 0)
        if self._ticket == ticket:
            self._cell.stop = True
        return None


class ThreadWorker:
    """One thread, one session."""

    def __init__(self, recipe: Recipe, events: Events, name: str, context: contextvars.Context) -> None:
        self._recipe, self._events = recipe, events
        self._queue = JobQueue()
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._ending: tuple[BaseException | None, bool] = (None, False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=context.run, args=(self._main,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._queue.add(job)
        self._tokens.put(True)

    def resume(self, ticket: int, limit: int) -> None:
        """Queue a paused expansion."""
        self._queue.add(Job(ticket, [], (), limit), resumed=True)
        self._tokens.put(True)

    def recall(self, ticket: int) -> None:
        """Stop a job."""
        answer = self._queue.recall(ticket)
        if answer is not None:
            self._events.answered(self, answer)

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """End after the running call."""
        self._ending = error, commit
        self._tokens.put(False)

    async def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end."""
        if not self._thread.ident:
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause = 0.0005
        while not self._ended.is_set() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        if self._ended.is_set():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def name(self) -> str:
        """The thread's name."""
        return self._thread.name

    def _main(self) -> None:
        try:
            serve(self._recipe, self._events, self, self._queue, self._tokens, lambda: self._ending)
        finally:
            self._ended.set()


def serve(
    recipe: Recipe,
    events: Events,
    worker: Any,
    queue: JobQueue,
    tokens: SimpleQueue[bool],
    ending: Callable[[], tuple[BaseException | None, bool]],
) -> None:
    """Open a session, run jobs until a token says to end, close. The body of thread and child workers."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = drive
    runner: asyncio.Runner | None = None
    session: Session | None = None
    try:
        try:
            session = Session(recipe, thread_time)
            if session.asynchronous:
                runner = asyncio.Runner()
                run = runner.run
            run(session.open())
        except BaseException as error:
            events.broken(worker, raised(error))
            session = None
        else:
            events.ready(worker)
        while tokens.get():
            taken = queue.take()
            if taken is None or session is None:
                continue
            job, resumed, cell = taken
            try:
                events.answered(
                    worker, run(session.resume(job.ticket, job.limit, cell) if resumed else session.run(job, cell))
                )
            except BaseException as error:  # a sink's commit; user functions never raise here
                events.broken(worker, raised(error))
    finally:
        if session is not None:
            error_, commit = ending()
            try:
                run(session.close(error_, commit=commit))
            except BaseException as error:
                events.broken(worker, raised(error))
        if runner is not None:
            runner.close()
