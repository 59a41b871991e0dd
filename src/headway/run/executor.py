"""Workers on a `concurrent.futures.Executor` that the user made and keeps: its threads or processes run the jobs.

The executor is never shut down here. A job that it has begun cannot be cut. What a slot opens,
pauses or keeps has no home in somebody else's pool: see `check_executor`.
"""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from time import perf_counter, thread_time
from typing import Any

from headway.call import Caller, Cell, drive, is_async, raised
from headway.core.ticket import Answer, Job
from headway.errors import PlanError, WorkerDied
from headway.run.wire import pack_answer, pack_job, unpack_answer, unpack_job
from headway.run.worker import Events, Recipe


def check_executor(recipe: Recipe) -> None:
    """Raise PlanError for what a stage cannot have on an executor of the user's own."""
    for wanted, what, instead in (
        (recipe.setup is not None, "setup=", "the executor's own initializer"),
        (recipe.kind == "flat_map", "flat_map", 'on="thread" or on="process"'),
        (recipe.is_sink, "a Sink object", "a function"),
        (is_async(recipe.fn), "an async function", 'on="task"'),
    ):
        if wanted:
            raise PlanError(f"stage {recipe.name!r}: {what} does not go with an executor; use {instead}")


class ExecutorWorker:
    """One slot of a stage on an executor: a job at a time is submitted."""

    def __init__(self, recipe: Recipe, packed: bytes | None, events: Events, executor: Executor) -> None:
        self._recipe, self._packed, self._events, self._executor = recipe, packed, events, executor
        self._caller = _caller(recipe)
        self._jobs: dict[int, Future[Any]] = {}

    def start(self) -> None:
        """The executor is there already."""
        self._events.ready(self)

    def submit(self, job: Job) -> None:
        """Hand a job to the executor."""
        try:
            if self._packed is not None:
                batched = self._recipe.kind == "map_batches"
                data = pack_job(job, list(map(len, job.values)) if batched else None)
                future: Future[Any] = self._executor.submit(_run_packed, self._packed, data)
            else:
                future = self._executor.submit(lambda: drive(self._caller.run(job, Cell())))
        except RuntimeError as error:  # it was shut down, or its pool is broken
            future = Future()
            future.set_exception(error)
        self._jobs[job.ticket] = future

        def report(done: Future[Any]) -> None:
            self._jobs.pop(job.ticket, None)
            try:
                answer = done.result()
            except CancelledError:
                answer = Answer(job.ticket, 0)
            except BaseException as error:
                self._events.died(self, raised(_death(self._recipe.name, error)))
                return
            self._events.answered(self, unpack_answer(answer) if isinstance(answer, bytes) else answer)

        future.add_done_callback(report)

    def resume(self, ticket: int, limit: int) -> None:
        """Never called: expansions are refused."""

    def recall(self, ticket: int) -> None:
        """Take a job back that the executor has not begun."""
        future = self._jobs.get(ticket)
        if future is not None:
            future.cancel()

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Take back what has not begun."""
        for future in list(self._jobs.values()):
            future.cancel()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the calls that run."""
        deadline = perf_counter() + timeout_s
        while self._jobs and perf_counter() < deadline:  # noqa: ASYNC110 - the pool is not ours to be told by
            await asyncio.sleep(0.002)
        return not self._jobs


def _caller(recipe: Recipe) -> Caller:
    return Caller(
        recipe.kind, recipe.fn, size=recipe.size, halts=recipe.halts, clock=perf_counter, cpu_clock=thread_time
    )


def wants_bytes(executor: Executor) -> bool:
    """Whether jobs leave this process, so that they travel as bytes."""
    return isinstance(executor, ProcessPoolExecutor)


_callers: dict[bytes, Caller] = {}


def _run_packed(packed: bytes, data: bytes) -> bytes:
    """In a process of the executor: run a job with the function that came with it, which is kept for the next."""
    caller = _callers.get(packed)
    if caller is None:
        _callers.clear()
        caller = _callers[packed] = _caller(pickle.loads(packed))
    job, mend = unpack_job(data)
    answer = drive(caller.run(job, Cell()))
    return pack_answer(mend(answer) if mend is not None else answer)


def _death(stage: str, error: BaseException) -> WorkerDied:
    died = WorkerDied(f"the executor could not run the job ({type(error).__name__}: {error})", stage=stage)
    died.__cause__ = error
    return died
