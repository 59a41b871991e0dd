"""Workers on daemon threads of their own: a call that hangs never keeps the interpreter from ending."""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from time import perf_counter, thread_time
from typing import Any

from headway.call import drive, raised, unstarted
from headway.claim import Cell, user_frames
from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout
from headway.run.worker import Events, Recipe, Session

COMMIT = "commit"
"""The token that has a sink committed; the others say whether there is another job."""


class JobQueue:
    """Jobs in the hands of one worker: taken one by one, recalled before they start, or given up while they run."""

    def __init__(self, new_cell: Callable[[Any], Cell] = Cell) -> None:
        self._lock, self._new_cell = threading.Lock(), new_cell
        self._jobs: deque[Job] = deque()
        self._recalled: set[int] = set()
        self._halted = -1
        self._seen: float | None = None
        self.ticket = -1
        """Of the job that runs, else -1."""
        self.cell = new_cell(threading.Lock())
        """Of the job that runs, or ran last."""

    def add(self, job: Job) -> None:
        """Queue a job."""
        with self._lock:
            self._jobs.append(job)

    def take(self) -> tuple[Job, Cell] | Answer | None:
        """The next job and its cell; its answer if it may not start; None if it was recalled meanwhile."""
        with self._lock:
            if not self._jobs:
                return None
            job = self._jobs.popleft()
            if job.epoch <= self._halted and not job.resumed:
                return Answer(job.ticket, 0)
            self.cell, self.ticket = self._new_cell(threading.Lock()), job.ticket
            if job.ticket in self._recalled:
                self._recalled.discard(job.ticket)
                self.cell.cut()
            return job, self.cell

    def settle(self, job: Job, answer: Answer) -> bool:
        """The job in hand has ended; whether its answer is still wanted."""
        with self._lock:
            self.ticket = -1
            if answer.halted:
                self._halted = max(self._halted, job.epoch)
            return not self.cell.abandoned

    def forget(self) -> None:
        """The job that ran last has been answered: do not hold its values."""
        self.cell = self._new_cell(threading.Lock())

    def recall(self, ticket: int) -> Answer | None:
        """Stop the job of `ticket`. If it has not started, the answer is ready at once."""
        with self._lock:
            if ticket == self.ticket:
                self.cell.cut()
            for job in self._jobs:
                if job.ticket == ticket:
                    if job.resumed:
                        self._recalled.add(ticket)
                        return None
                    self._jobs.remove(job)
                    return Answer(ticket, 0)
            return None

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs; `give_up` then means this one."""
        running = self.cell.running()
        self._seen = running[1] if running is not None else None
        return running

    def give_up(self, ticket: int, why: ItemTimeout) -> list[Answer]:
        """Take the job of `ticket` away from the call last seen, and all others with it; none if that has ended."""
        with self._lock:
            if ticket != self.ticket or self._seen is None:
                return []
            answer = self.cell.abandon(raised(why), self._seen, perf_counter())
            if answer is None:
                return []
            jobs = list(self._jobs)
            self._jobs.clear()
        return [answer, *map(unstarted, jobs)]


class ThreadWorker:
    """One thread, one session."""

    def __init__(self, recipe: Recipe, events: Events, name: str, context: contextvars.Context) -> None:
        self._recipe, self._events, self.name = recipe, events, name
        self._queue = JobQueue()
        self._tokens: SimpleQueue[bool | str] = SimpleQueue()
        self._ending: tuple[BaseException | None, bool] = (None, False)
        self._ended = threading.Event()
        self._left = False
        self._thread = threading.Thread(target=context.run, args=(self._main,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        if self._left:
            self._events.answered(self, unstarted(job))
            return
        self._queue.add(job)
        self._tokens.put(True)

    def recall(self, ticket: int) -> None:
        """Stop a job."""
        answer = self._queue.recall(ticket)
        if answer is not None:
            self._events.answered(self, answer)

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs now, where the stage is timed."""
        return self._queue.running()

    def where(self) -> tuple[int, int, int] | None:
        """What is in hand."""
        return self._queue.cell.where()

    def stack(self, timeout_s: float) -> str:
        """The stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - the documented way to it
        return user_frames([each for each, _ in traceback.walk_stack(frame)][::-1]) if frame is not None else ""

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """Leave the thread to its call: it starts nothing more, and ends when that does."""
        answers = self._queue.give_up(ticket, why)
        if not answers:
            return
        self._left = True
        self._events.zombie(self, alive=True)  # first, so that what is answered for meets another worker
        for answer in answers:
            self._events.answered(self, answer)
        self._tokens.put(False)

    def commit(self) -> None:
        """Have the sink committed."""
        self._tokens.put(COMMIT)

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """End after the running call."""
        self._ending = error, commit and not self._left
        self._tokens.put(False)

    async def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end."""
        if not self._thread.ident:
            return True
        import asyncio  # not by a child process, for which it is a large part of its start

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause = 0.0005
        while not self._ended.is_set() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        if self._ended.is_set():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

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
    tokens: SimpleQueue[bool | str],
    ending: Callable[[], tuple[BaseException | None, bool]],
) -> None:
    """Open a session, run jobs until a token says to end, close. The body of thread and child workers."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = drive
    runner: Any = None
    session: Session | None = None
    try:
        try:
            session = Session(recipe, thread_time)
            if session.asynchronous:
                import asyncio

                runner = asyncio.Runner()
                run = runner.run
            run(session.open())
        except BaseException as error:
            events.broken(worker, raised(error))
            session = None
        else:
            events.ready(worker)
        while token := tokens.get():
            if token is COMMIT:
                _commit(session, run, events, worker)
                continue
            taken = queue.take()
            if isinstance(taken, Answer):
                events.answered(worker, taken)
            if not isinstance(taken, tuple) or session is None:
                continue
            job, cell = taken
            try:
                answer = run(session.run(job, cell))
            except BaseException as error:  # user functions never raise here
                events.broken(worker, raised(error))
                continue
            if queue.settle(job, answer):
                events.answered(worker, answer)
                queue.forget()
            else:
                events.zombie(worker, alive=False)
            del answer, job, taken, cell  # values are to go when the consumer lets go of them
    finally:
        # A sink is one object: where this worker was given up, it is its successor's to close.
        if session is not None and not (queue.cell.abandoned and recipe.is_sink):
            error_, commit = ending()
            try:
                run(session.close(error_, commit=commit))
            except BaseException as error:
                events.broken(worker, raised(error))
        if runner is not None:
            runner.close()


def _commit(
    session: Session | None, run: Callable[[Coroutine[Any, Any, Any]], Any], events: Events, worker: Any
) -> None:
    if session is None:
        return
    try:
        events.committed(worker, run(session.commit()))
    except BaseException as error:
        events.broken(worker, raised(error))
