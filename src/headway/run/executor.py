"""Workers on a `concurrent.futures.Executor` that the user made and keeps: its threads or processes run the jobs.

The executor is never shut down here. A job that its processes have begun cannot be cut. What a slot opens,
pauses or keeps has no home in somebody else's pool: see `check_executor`.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from functools import partial
from time import perf_counter, thread_time
from typing import Any

from headway.call import Caller, drive, is_async, raised
from headway.claim import Cell
from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout, PlanError, WorkerDied
from headway.run.pipe import Message, Part
from headway.run.thread import JobQueue
from headway.run.wire import pack_answer, pack_job, unpack_answer, unpack_job
from headway.run.worker import Events, Recipe


def check_executor(recipe: Recipe, *, remote: bool) -> None:
    """Raise PlanError for what a stage cannot have on an executor of the user's own; `remote`: of processes."""
    for wanted, what, instead in (
        (recipe.setup is not None, "setup=", "the executor's own initializer"),
        (recipe.kind == "flat_map", "flat_map", 'on="thread" or on="process"'),
        (recipe.is_sink, "a Sink object", "a function"),
        (is_async(recipe.fn), "an async function", 'on="task"'),
        (
            remote and recipe.timed,
            "a time limit",
            'on="process", whose workers can be killed, not an executor of processes',
        ),
        (remote and recipe.kind == "scan", "scan", 'on="process" with workers=1, not an executor of processes'),
    ):
        if wanted:
            raise PlanError(f"stage {recipe.name!r}: {what} does not go with this executor; use {instead}")


class ExecutorWorker:
    """One slot of a stage on an executor: a job at a time is submitted."""

    def __init__(
        self,
        recipe: Recipe,
        packed: bytes | None,
        events: Events,
        name: str,
        executor: Executor,
        context: contextvars.Context,
    ) -> None:
        self.name = name
        self._recipe, self._packed, self._events, self._executor = recipe, packed, events, executor
        self._caller, self._context = _caller(recipe), context
        self._queue = JobQueue()
        self._lock = threading.Lock()
        self._future: Future[Any] | None = None
        self._left = False

    def start(self) -> None:
        """The executor is there already."""
        self._events.ready(self)

    def submit(self, job: Job) -> None:
        """Hand a job to the executor as soon as it has done the one before."""
        if self._left:
            self._events.answered(self, Answer(job.ticket, 0))
            return
        self._queue.add(job)
        self._next()

    def _next(self) -> None:
        with self._lock:
            if self._future is not None:
                return
            taken = self._queue.take()
            if not isinstance(taken, tuple):
                future = None
            else:
                future = self._future = self._submit(taken[0], taken[1])
        if isinstance(taken, Answer):
            self._events.answered(self, taken)
            self._next()
        elif future is not None and isinstance(taken, tuple):
            future.add_done_callback(partial(self._done, taken[0], taken[1]))

    def _submit(self, job: Job, cell: Cell) -> Future[Any]:
        try:
            if self._packed is not None:
                batched = self._recipe.kind == "map_batches"
                data = pack_job(job, list(map(len, job.values)) if batched else None)
                return self._executor.submit(_run_packed, self._packed, data)
            context = self._context.copy()
            return self._executor.submit(lambda: context.run(drive, self._caller.run(job, cell)))
        except RuntimeError as error:  # it was shut down, or its pool is broken
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def _done(self, job: Job, cell: Cell, future: Future[Any]) -> None:
        with self._lock:
            self._future = None
        try:
            result = future.result()
            answer = result if isinstance(result, Answer) else unpack_answer(Message.of(result))
        except CancelledError:
            answer = Answer(job.ticket, 0)
        except BaseException as error:
            self._left = True
            self._events.died(self, raised(_death(self._recipe.name, error)), None, 0)
            return
        if self._queue.settle(job, answer):
            self._events.answered(self, answer)
            self._queue.forget()
        else:
            self._events.zombie(self, alive=False)
        self._next()

    def recall(self, ticket: int) -> None:
        """Take a job back that the executor has not begun; on threads also the rest of one that it has."""
        answer = self._queue.recall(ticket)
        if answer is not None:
            self._events.answered(self, answer)
        elif self._future is not None and self._queue.ticket == ticket and self._queue.cell.job is None:
            self._future.cancel()

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs now, where the stage is timed; unknown of an executor's processes."""
        return self._queue.running()

    def where(self) -> tuple[int, int, int] | None:
        """What is in hand; unknown of an executor's processes."""
        return self._queue.cell.where()

    def stack(self, timeout_s: float) -> str:
        """Which of the executor's threads it is, is not known."""
        return ""

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """Leave the executor's thread to its call, and submit nothing more."""
        answers = self._queue.give_up(ticket, why)
        if not answers:
            return
        self._left = True
        self._events.zombie(self, alive=True)
        for answer in answers:
            self._events.answered(self, answer)

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Take back what has not begun."""
        self._queue.cell.cut()
        if self._future is not None:
            self._future.cancel()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the call that runs."""
        deadline = perf_counter() + timeout_s
        while self._future is not None and perf_counter() < deadline:  # noqa: ASYNC110 - the pool is not ours to be told by
            await asyncio.sleep(0.002)
        return self._future is None


def _caller(recipe: Recipe) -> Caller:
    return Caller(
        recipe.kind, recipe.fn, size=recipe.size, halts=recipe.halts, timed=recipe.timed, initial=recipe.initial,
        states=recipe.states, run=recipe.run, clock=perf_counter, cpu_clock=thread_time,
    )  # fmt: skip


def wants_bytes(executor: Executor) -> bool:
    """Whether jobs leave this process, so that they travel as bytes."""
    return isinstance(executor, ProcessPoolExecutor)


_callers: dict[bytes, Caller] = {}


def _run_packed(packed: bytes, data: list[Part]) -> list[Part]:
    """In a process of the executor: run a job with the function that came with it, which is kept for the next."""
    caller = _callers.get(packed)
    if caller is None:
        _callers.clear()
        caller = _callers[packed] = _caller(pickle.loads(packed))
    job, mend = unpack_job(Message.of(data))
    answer = drive(caller.run(job, Cell()))
    return pack_answer(mend(answer) if mend is not None else answer)


def _death(stage: str, error: BaseException) -> WorkerDied:
    died = WorkerDied(f"the executor could not run the job ({type(error).__name__}: {error})", stage=stage)
    died.__cause__ = error
    return died
