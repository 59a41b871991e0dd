"""Runs a pipeline on one thread, one call at a time, in the caller's own process: for a debugger.

The same engine decides what runs next, so outputs, order, failures and counts are those of a
concurrent run. There is no second thread, so a call is never cut or given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any

from headway.call import Cell, largest, sizes
from headway.core.block import Failure
from headway.core.engine import Engine
from headway.core.plan import Plan
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import InternalError, RunError, RunErrors, SinkError, SourceError, StageError, TooManyFailures
from headway.run.driver import Mode, recipe_of, stage_error
from headway.run.worker import Session


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
    ) -> None:
        self.engine = Engine(plan, self, perf_counter(), measure=partial(sizes, size=size))
        self._source, self._size, self._aside = source, size, set_aside
        self._work: deque[tuple[Slot, Job, bool]] = deque()
        self._outputs: deque[tuple[Job, list[Any]]] = deque()
        self._sessions: dict[tuple[int, int], Session] = {}
        self._errors: list[RunError | InternalError] = []
        self._offered = 0
        self._aborted = False

    @property
    def asynchronous(self) -> bool:
        """Whether it needs an event loop."""
        return hasattr(self._source, "__aiter__") or any(
            recipe_of(stage.plan, None, 1).asynchronous for stage in self.engine.stages if stage.spec.kind != "consume"
        )

    def ask(self, mode: Mode, timeout_s: float | None = None) -> None:
        """Stop: takes effect between two calls."""
        self.engine.stop(mode, perf_counter())
        self.engine.end(perf_counter())
        self._aborted = self._aborted or mode == "abort"

    def error(self) -> RunError | InternalError | None:
        """Why the run failed."""
        if len(self._errors) > 1:
            return RunErrors("several things failed", self._errors)
        return self._errors[0] if self._errors else None

    # ---- commands of the engine

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Queue a job."""
        self._work.append((slot, job, False))

    def resume(self, slot: Slot, ticket: int, limit: int) -> None:
        """Queue a paused expansion."""
        self._work.append((slot, Job(ticket, [], (), limit), True))

    def recall(self, slot: Slot, ticket: int) -> None:
        """Jobs that have not begun are not begun."""
        for item in [w for w in self._work if w[1].ticket == ticket and not w[2]]:
            self._work.remove(item)
            self.engine.done(ticket, Answer(ticket, 0), perf_counter())

    def replace(self, slot: Slot) -> None:
        """Nothing here dies alone."""

    def set_aside(self, failure: Failure) -> None:
        """Keep a dead letter."""
        refused = self._aside(failure)
        if refused is not None:
            self.engine.fail(failure, perf_counter(), refused)

    # ---- the run

    async def values(self) -> AsyncIterator[Any]:
        """Run, giving outputs one by one. Closing the generator is leaving early: a cancel."""
        rows = _Rows(self._source)
        try:
            await self._open()
            while not self.engine.finished:
                if self._work:
                    slot, job, resumed = self._work.popleft()
                    if slot.stage.spec.kind != "consume":
                        await self._call(slot, job, resumed)
                        continue
                    started, taken = perf_counter(), 0
                    try:
                        while taken < len(job.values):
                            value, taken = job.values[taken], taken + 1
                            if type(value) is not Failure:
                                job.values[taken - 1] = None
                            yield value
                            del value
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
                    session = Session(recipe_of(stage.plan, self._size, self.engine.window.budget), thread_time)
                    await session.open()
                except Exception as error:
                    self._broken(stage.spec.name, "set-up", stage.spec.kind == "sink", error)
                    return
                self._sessions[stage.index, slot.number] = session

    def _broken(self, name: str, what: str, sink: bool, error: Exception) -> None:
        text = f"the {what} of stage {name!r} failed: {type(error).__name__}: {error}"
        failed = SinkError(text) if sink else StageError(text, stage=name)
        failed.__cause__ = error
        self._errors.append(failed)
        self._aborted = True
        self.engine.stop("abort", perf_counter())

    async def _call(self, slot: Slot, job: Job, resumed: bool) -> None:
        session, cell = self._sessions[slot.stage.index, slot.number], Cell((KeyboardInterrupt,))
        try:
            answer = await (
                session.resume(job.ticket, job.limit, cell) if resumed else session.run(job, cell)
            )
        except Exception as error:
            self._broken(slot.stage.spec.name, "commit", True, error)
            return
        self.engine.done(job.ticket, answer, perf_counter())

    async def _read(self, rows: _Rows, want: int) -> None:
        try:
            # One row at a time: a call is made as soon as it can be, as with a slow source.
            got = await rows.read(1 if not self.engine.window.largest else want)
        except Exception as error:
            failed = SourceError(f"the source failed after {self._offered} rows: {type(error).__name__}: {error}")
            failed.position, failed.__cause__ = self._offered, error
            self._errors.append(failed)
            got = rows.partial
            self._offer(got)
            self.engine.end(perf_counter())
            return
        if got:
            self._offer(got)
        else:
            self.engine.end(perf_counter())

    def _offer(self, rows: list[Any]) -> None:
        if rows:
            self._offered += len(rows)
            self.engine.offer(rows, perf_counter(), sizes(rows, self._size), largest(rows, self._size))

    async def _close(self, rows: _Rows) -> None:
        engine = self.engine
        if engine.cause is not None:
            self._errors.insert(0, TooManyFailures(engine.too_many) if engine.too_many else stage_error(engine.cause))
        reason = self._errors[0] if self._errors else None
        try:
            await rows.close()
        except Exception as error:
            self._errors.append(SourceError(f"closing the source failed: {type(error).__name__}: {error}"))
        for (index, _), session in self._sessions.items():
            spec = engine.stages[index].spec
            try:
                await session.close(reason, commit=not self._aborted)
            except Exception as error:
                self._broken(spec.name, "clean-up", spec.kind == "sink", error)


class _Rows:
    """The source, read on the spot."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._sync = iter(source) if hasattr(source, "__iter__") else None
        self._async = source.__aiter__() if hasattr(source, "__aiter__") else None
        self.partial: list[Any] = []

    async def read(self, count: int) -> list[Any]:
        """Up to `count` rows; none at the end. What was read before an error is in ``partial``."""
        self.partial = rows = []
        if self._sync is None and self._async is None:
            return list(self._source.read(count))
        for _ in range(count):
            try:
                rows.append(next(self._sync) if self._sync is not None else await self._async.__anext__())  # type: ignore[union-attr]
            except (StopIteration, StopAsyncIteration):
                break
        return rows

    async def close(self) -> None:
        """Close what was opened."""
        if self._async is not None and hasattr(self._async, "aclose"):
            await self._async.aclose()
        close = getattr(self._sync if self._sync is not None else self._source, "close", None)
        if self._async is None and close is not None and (self._sync is None or hasattr(self._sync, "gi_frame")):
            close()

