"""Runs a pipeline on one thread, one call at a time, in the caller's own process: for a debugger.

The same engine decides what runs next, so outputs, order, failures and counts are those of a
concurrent run. There is no second thread, so a call is never cut or given up.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from time import perf_counter, thread_time
from typing import Any, TypeVar

from headway.call import drive, is_async
from headway.claim import Cell
from headway.core.engine import Engine
from headway.core.plan import Plan, StagePlan
from headway.core.spec import StageSpec
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import CheckpointError, Failure, InternalError, Kept, PlanError, handed_over
from headway.run.blame import Blamed, ending_error, one_error, source_error, worker_error
from headway.run.checkpoint import Checkpoint
from headway.run.commits import COMMIT_S, commits, count
from headway.run.crew import recipe_of
from headway.run.driver import Mode
from headway.run.source import READ_AT_ONCE, Start
from headway.run.worker import Recipe, Session
from headway.size import largest, sizes

T = TypeVar("T")


class InlineDriver:
    """One run. `values` gives the outputs as they come; with a sink there are none, and it ends at the end.

    It waits only where a stage or the source is async; else it can be driven without a loop.
    KeyboardInterrupt is not an item's failure here: it comes from the terminal.
    """

    def __init__(
        self,
        plan: Plan,
        source: Any,
        *,
        set_aside: Callable[[Failure], str | None],
        size: Callable[[Any], int] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.engine = Engine(plan, self, perf_counter(), measure=partial(sizes, size=size))
        self._source, self._size, self._aside = source, size, set_aside
        self._work: deque[tuple[Slot, Job]] = deque()
        self._outputs: deque[tuple[Job, list[Any]]] = deque()
        self._sessions: dict[tuple[int, int], Session] = {}
        self._errors: list[Blamed] = []
        self.unclosed: list[Blamed] = []
        """What could not be opened, committed or closed."""
        self._aborted = False
        self._checkpoint = checkpoint or Checkpoint()
        self._commits = commits(self.engine)
        self._committed_at = perf_counter()
        self._torn = False
        """the sink was given something of which nobody knows whether it took it"""

    @property
    def asynchronous(self) -> bool:
        """Whether it needs an event loop."""
        return hasattr(self._source, "__aiter__") or any(
            recipe_of(stage.plan, None, 1).asynchronous or (stage.spec.setup is not None and _waits(stage.spec.setup))
            for stage in self.engine.stages
            if stage.spec.kind != "consume"
        )

    def ask(self, mode: Mode, timeout_s: float | None = None) -> None:
        """Stop: takes effect between two calls."""
        self.engine.stop(mode, perf_counter())
        self.engine.end(perf_counter())
        self._aborted = self._aborted or mode == "abort"

    def error(self) -> Blamed | None:
        """Why the run failed."""
        return one_error(self._errors)

    # ---- commands of the engine

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Queue a job."""
        self._work.append((slot, job))

    def recall(self, slot: Slot, ticket: int) -> None:
        """Jobs that have not begun are not begun."""
        for item in [w for w in self._work if w[1].ticket == ticket and not w[1].resumed]:
            self._work.remove(item)
            self.engine.done(ticket, Answer(ticket, 0), perf_counter())

    def replace(self, slot: Slot) -> None:
        """Nothing here dies alone."""

    def retire(self, slot: Slot) -> None:
        """Nor is there more than one thread to give back."""

    def set_aside(self, failure: Failure) -> None:
        """Keep a dead letter."""
        refused = self._aside(failure)
        if refused is not None:
            self._checkpoint.frozen = True
            self.engine.fail(failure, perf_counter(), refused)

    # ---- the run

    async def values(self) -> AsyncGenerator[Any, None]:
        """Run, giving outputs one by one. Closing the generator is leaving early: a cancel."""
        hand: list[Any] = []
        rows = _Rows(self._source)
        try:
            await self._open()
            self._checkpoint.begin(self.engine, perf_counter())
            rows.start = self._checkpoint.start()
            self._checkpoint.warn()
            self.engine.times.asked(perf_counter())
            while not self.engine.finished:
                if self._work:
                    slot, job = self._work.popleft()
                    if slot.stage.spec.kind != "consume":
                        await self._call(slot, job, rows)
                        continue
                    started, taken = perf_counter(), 0
                    try:
                        while taken < len(job.values):
                            hand.append(handed_over(job.values[taken]))
                            if type(job.values[taken]) is not Kept:
                                job.values[taken] = None
                            taken += 1
                            yield hand.pop()
                    finally:
                        answer = Answer(job.ticket, taken, started=started, stopped=perf_counter())
                        self.engine.done(job.ticket, answer, perf_counter())
                elif (want := self.engine.wants()) > 0:
                    await self._read(rows, want)
                else:
                    due = self.engine.next_deadline()
                    if due is None:
                        raise InternalError("nothing runs and the run has not ended")
                    self.engine.tick(max(due, perf_counter()))
        except InternalError as error:
            self._errors.append(error)
            self._aborted = True
        except BaseException:
            self.engine.stop("cancel", perf_counter())
            raise
        finally:
            await self._close(rows)

    async def _open(self) -> None:
        for stage in self.engine.stages:
            if stage.spec.kind == "consume":
                continue
            for slot in stage.slots:
                try:
                    session = Session(self._recipe(stage.plan), thread_time)
                    await session.open()
                except BaseException as error:
                    self._broken(stage.spec, "set-up", error)
                    return
                self._sessions[stage.index, slot.number] = session

    def _recipe(self, stage: StagePlan) -> Recipe:
        engine = self.engine
        return recipe_of(stage, self._size, engine.window.budget, engine.plan.spec.name, self._checkpoint)

    def _broken(self, stage: StageSpec, what: str, error: BaseException) -> None:
        """A set-up, clean-up or commit failed: the run ends."""
        if isinstance(error, _not_the_users()):
            raise error
        self._errors.append(worker_error(stage, what, error))
        self.unclosed.append(self._errors[-1])
        self._aborted = True
        self.engine.stop("abort", perf_counter())

    async def _call(self, slot: Slot, job: Job, rows: _Rows) -> None:
        session, cell = self._sessions[slot.stage.index, slot.number], _Cell()
        self._torn = slot is self._commits
        try:
            answer = await session.run(job, cell)
        except BaseException as error:  # user functions never raise here
            self._broken(slot.stage.spec, "clean-up", error)
            return
        self._torn = False
        self.engine.done(job.ticket, answer, perf_counter())
        if slot.stage.index == len(self.engine.stages) - 1 and perf_counter() - self._committed_at >= COMMIT_S:
            await self._commit(rows, slot)

    async def _commit(self, rows: _Rows, slot: Slot) -> None:
        """Commit what was written, and save where the run stands."""
        try:
            if self._checkpoint.take(self.engine, rows.marks):
                if slot is self._commits:
                    count(slot, await self._sessions[slot.stage.index, slot.number].commit())
                self._checkpoint.save(self._checkpoint.current)
        except BaseException as error:
            self._broken(slot.stage.spec, "clean-up", error)
        self._committed_at = perf_counter()

    async def _read(self, rows: _Rows, want: int) -> None:
        # One row at a time: a call is made as soon as it can be, as with a slow source.
        try:
            got = await rows.read(1 if not self.engine.window.largest else want)
        except BaseException as error:
            if isinstance(error, _not_the_users()):
                raise
            self._offer(rows.partial)
            self._errors.append(source_error(self.engine.rows, error))
            self.engine.end(perf_counter())
            return
        if got:
            self._offer(got)
        else:
            self.engine.end(perf_counter())

    def _offer(self, rows: list[Any]) -> None:
        if rows:
            self.engine.offer(rows, perf_counter(), sizes(rows, self._size), largest(rows, self._size))

    async def _close(self, rows: _Rows) -> None:
        engine = self.engine
        ended = ending_error(engine)
        if ended is not None:
            self._errors.insert(0, ended)
        reason = self._errors[0] if self._errors else None
        done = engine.state == "done" and not self._errors
        commit = not self._aborted
        if self._checkpoint.job is not None:
            commit = commit and not (self._torn or self._checkpoint.already_finished)
        if commit:
            try:
                commit = self._checkpoint.take(engine, rows.marks, finished=done) or self._checkpoint.job is None
            except CheckpointError as error:
                self._errors.append(error)
                commit = False
        try:
            await rows.close()
        except Exception as error:
            self._errors.append(source_error(self.engine.rows, error))
            self.unclosed.append(self._errors[-1])
        for (index, _), session in self._sessions.items():
            try:
                await session.close(reason, commit=commit)
            except BaseException as error:
                self._broken(engine.stages[index].spec, "clean-up", error)
        if commit and not self._aborted:
            try:
                self._checkpoint.save(self._checkpoint.current)
            except CheckpointError as error:
                self._errors.append(error)
        self._checkpoint.close()
        if self._errors:
            engine.state = "failed"


class _Cell(Cell):
    """A cell whose job ends when the caller itself is interrupted or cancelled."""

    __slots__ = ()

    @property
    def passes(self) -> tuple[type[BaseException], ...]:
        return _not_the_users()

    @passes.setter
    def passes(self, _: object) -> None:
        """It depends on the moment alone."""


def _not_the_users() -> tuple[type[BaseException], ...]:
    """Exceptions that come from outside: Ctrl-C, and the cancellation of the task that runs all this."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None and task.cancelling():
        return KeyboardInterrupt, asyncio.CancelledError
    return (KeyboardInterrupt,)


def _waits(setup: Any) -> bool:
    """Whether what `setup` gives has to be awaited or entered with `async with`, as far as can be seen."""
    return is_async(inspect.unwrap(setup)) or hasattr(setup, "__aenter__")


class _Rows:
    """The source, read on the spot."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._sync: Any = None
        self._async: Any = None
        self.partial: list[Any] = []
        self.marks: deque[tuple[int, Any]] = deque()
        self.start, self._read = Start(), 0

    async def read(self, count: int) -> list[Any]:
        """Up to `count` rows; none at the end. What was read before an error is in ``partial``."""
        try:
            while (left := self.start.skip - self._read) > 0:
                if not await self._next(min(left, READ_AT_ONCE)):
                    raise self.start.missing(self._read)
        except BaseException:
            self.partial = []
            raise
        rows = await self._next(count)
        if self.start.notes:
            self.marks.append((self.start.row + self._read, self._source.position()))
        return rows

    async def _next(self, count: int) -> list[Any]:
        self.partial = rows = []
        if self._sync is None and self._async is None:
            if hasattr(self._source, "__aiter__"):
                self._async = self._source.__aiter__()
            elif hasattr(self._source, "__iter__"):
                self._sync = iter(self._source)
            else:
                if not self._read and self.start.seek is not None:
                    self._source.seek(*self.start.seek)
                rows += self._source.read(count)
        for _ in range(0 if self._sync is None and self._async is None else count):
            if self._sync is not None:
                try:
                    rows.append(next(self._sync))
                except StopIteration:
                    break
            else:
                try:
                    rows.append(await self._async.__anext__())
                except StopAsyncIteration:
                    break
        self._read += len(rows)
        return rows

    async def close(self) -> None:
        """Close what was opened."""
        if hasattr(self._async, "aclose"):
            await self._async.aclose()
        elif inspect.isgenerator(self._sync):
            self._sync.close()
        elif self._sync is None and hasattr(self._source, "close"):
            self._source.close()


def on_this_thread(values: AsyncGenerator[T, None], *, asynchronous: bool) -> Generator[T, None, None]:
    """Give `values` on the calling thread: without an event loop unless one is needed.

    Raises PlanError where one is needed and this thread has one that runs.
    """
    runner = None
    if asynchronous:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            runner = asyncio.Runner()
        else:
            raise PlanError(
                'mode="inline" with async stages cannot run here, inside a running event loop: '
                "use `await pipeline.arun(...)` or `async for`"
            )
    hand: list[T] = []
    step: Callable[[Any], T] = runner.run if runner is not None else drive
    try:
        while True:
            try:
                hand.append(step(values.__anext__()))
            except StopAsyncIteration:
                return
            yield hand.pop()
    finally:
        try:
            step(values.aclose())
        finally:
            if runner is not None:
                runner.close()


def ignored_by_inline(plan: Plan) -> list[str]:
    """What the stages ask for that one thread cannot give."""
    return [
        f"stage {stage.spec.name!r}: on={stage.spec.on!r} ran on the calling thread; a death of its worker is not contained"
        for stage in plan.stages
        if stage.spec.on == "process"
    ]
