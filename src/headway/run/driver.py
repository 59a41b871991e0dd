"""Runs the engine on an asyncio loop: gives it the time, carries its commands to the workers and their answers back."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Any, Literal

from headway.core.engine import Engine
from headway.core.plan import Plan, StagePlan
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import Failure, InternalError, Raised, SinkError
from headway.run.blame import Blamed, ending_error, one_error, source_error, worker_error
from headway.run.mailbox import Mailbox
from headway.run.source import Reader, make_reader
from headway.run.task import TaskWorker
from headway.run.thread import ThreadWorker
from headway.run.worker import Recipe, Worker
from headway.size import largest, sizes
from headway.text import told

SOURCE_GRACE_S = 1.0
"""How long a drain waits for a read that is going on."""
LEFT_BEHIND_S = 1.0
"""How long the end of a run waits for a call that was given up."""
PATIENT_S = 24 * 3600.0
"""How long it waits for set-ups and sinks to close."""

Mode = Literal["drain", "cancel", "abort"]


def recipe_of(stage: StagePlan, size: Callable[[Any], int] | None, budget: int) -> Recipe:
    """What a worker of `stage` needs."""
    spec = stage.spec
    return Recipe(
        spec.kind, spec.name, spec.fn, spec.setup, size, spec.atomic, budget,
        halts=spec.kind == "sink" and stage.on_error == "raise", batched=stage.batched,
    )  # fmt: skip


class Driver:
    """One run. `outlet` serves the last stage if that is a consumer; `set_aside` takes dead letters.

    `run` is awaited on the loop; `ask` may be called from any thread.
    """

    def __init__(
        self,
        plan: Plan,
        source: Any,
        *,
        outlet: Any,
        set_aside: Callable[[Failure], str | None],
        size: Callable[[Any], int] | None = None,
        drain_timeout_s: float = 30.0,
        packed: dict[str, bytes] | None = None,
    ) -> None:
        self.engine = Engine(plan, self, perf_counter(), measure=partial(sizes, size=size))
        self._source, self._outlet, self._size = source, outlet, size
        self._set_aside, self._drain_timeout_s, self._packed = set_aside, drain_timeout_s, packed or {}
        self._workers: dict[tuple[int, int], Worker] = {}
        self._slots: dict[int, Slot] = {}
        self._ready: set[int] = set()
        self._warned: set[str] = set()
        self._errors: list[Blamed] = []
        self._offered = 0
        self._reader: Reader | None = None
        self.unclosed: list[Blamed] = []
        """What could not be opened, committed or closed."""
        self._aborted = self._closing = self._source_left = False
        self._tick: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self.mailbox: Mailbox | None = None
        self._asked: list[tuple[Mode, float]] = []

    # ---- the run

    async def run(self) -> None:
        """Run to the end and close everything. Raises nothing of the user's: see `errors`."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._over: asyncio.Future[None] = loop.create_future()
        self._opened: asyncio.Future[None] = loop.create_future()
        self.mailbox = Mailbox(loop, self._after, self._fatal)
        for mode, timeout_s in self._asked:
            self._stop(mode, timeout_s)
        try:
            for stage in self.engine.stages:
                for slot in stage.slots:
                    self.replace(slot)
            # Where something has to be opened, nothing is read before it is.
            if any(
                stage.spec.setup or stage.spec.kind == "sink" or stage.spec.on == "process"
                for stage in self.engine.stages
            ):
                await self._opened
            if not self.engine.finished:
                self._reader = make_reader(self._source, self.mailbox, self._on_rows, self._on_end)
                self._reader.start()
                self._after()
                await self._over
        except asyncio.CancelledError:
            self.engine.stop("cancel", perf_counter())
            self._aborted = True
            raise
        finally:
            await self._close()

    def ask(self, mode: Mode, timeout_s: float | None = None) -> None:
        """Ask for a stop, from any thread. None: `drain_timeout_s` for a drain, 0 for a cancel."""
        if timeout_s is None:
            timeout_s = self._drain_timeout_s if mode == "drain" else 0.0
        if self.mailbox is None:
            self._asked.append((mode, timeout_s))
        else:
            self.mailbox.post(self._stop, mode, timeout_s)

    @property
    def aborted(self) -> bool:
        """Whether it was ended by an abort."""
        return self._aborted

    @property
    def errors(self) -> list[Blamed]:
        """Why the run failed, first cause first; empty if it did not."""
        return list(self._errors)

    def error(self) -> Blamed | None:
        """The one exception for all of `errors`."""
        return one_error(self._errors)

    # ---- commands of the engine

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Hand a job to the slot's worker."""
        self._workers[slot.stage.index, slot.number].submit(job)

    def resume(self, slot: Slot, ticket: int, limit: int) -> None:
        """Continue a paused expansion."""
        self._workers[slot.stage.index, slot.number].resume(ticket, limit)

    def recall(self, slot: Slot, ticket: int) -> None:
        """Cut a job."""
        self._workers[slot.stage.index, slot.number].recall(ticket)

    def replace(self, slot: Slot) -> None:
        """Start the worker of a slot, or another in its place."""
        worker = self._make_worker(slot)
        self._workers[slot.stage.index, slot.number] = worker
        self._slots[id(worker)] = slot
        worker.start()

    def set_aside(self, failure: Failure) -> None:
        """Keep a dead letter; where that is not possible the run fails."""
        refused = self._set_aside(failure)
        if refused is not None:
            self.engine.fail(failure, perf_counter(), refused)
            self.engine.tick(perf_counter())

    def _make_worker(self, slot: Slot) -> Worker:
        spec = slot.stage.spec
        name = f"headway-{spec.name}-{slot.number}"
        if spec.kind == "consume":
            self._outlet.events = self
            outlet: Worker = self._outlet
            return outlet
        recipe = recipe_of(slot.stage.plan, self._size, self.engine.window.budget)
        if spec.on == "process":
            from headway.run.process import ProcessWorker

            return ProcessWorker(recipe, self._packed[spec.name], self, name)
        if isinstance(spec.on, Executor):
            from headway.run.executor import ExecutorWorker

            return ExecutorWorker(recipe, self._packed.get(spec.name), self, spec.on)
        if spec.on == "task":
            return TaskWorker(recipe, self, name, self._warned)
        return ThreadWorker(recipe, self, name, contextvars.copy_context())

    # ---- events of the workers, from any thread

    def ready(self, worker: Any) -> None:
        """A worker is open."""
        self._post(self._on_ready, worker)

    def broken(self, worker: Any, why: Raised) -> None:
        """A worker could not open, or a sink could not commit or close."""
        self._post(self._on_broken, worker, why)

    def answered(self, worker: Any, answer: Answer) -> None:
        """A job is done."""
        self._post(self._on_answer, answer)

    def died(self, worker: Any, why: Raised, answer: Answer | None = None, cursor: int | None = None) -> None:
        """A process ended unasked."""
        self._post(self._on_died, worker, why)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        if self.mailbox is not None:
            self.mailbox.post(call, *args)

    def _on_answer(self, answer: Answer) -> None:
        self.engine.done(answer.ticket, answer, perf_counter())

    def _on_ready(self, worker: Any) -> None:
        self._ready.add(id(worker))
        if not self._opened.done() and len(self._ready) >= len(self._workers):
            self._opened.set_result(None)

    def _on_broken(self, worker: Any, why: Raised) -> None:
        what = "set-up" if id(worker) not in self._ready else "clean-up"
        error = worker_error(self._slots[id(worker)].stage.spec, what, why.error)
        # Every worker of a stage meets the same obstacle: it is told once.
        if not any(str(known) == str(error) for known in self._errors):
            self._errors.append(error)
            self.unclosed.append(error)
        if not self._closing:
            self._abandon()

    def _on_died(self, worker: Any, why: Raised) -> None:
        if self._closing:
            return
        if id(worker) not in self._ready:
            self._on_broken(worker, why)
        else:
            self.engine.lost(self._slots[id(worker)], why, perf_counter())

    # ---- the source

    def _on_rows(self) -> None:
        assert self._reader is not None
        rows = self._reader.take()
        if rows and not self.engine.finished:
            self._offered += len(rows)
            self.engine.offer(rows, perf_counter(), sizes(rows, self._size), largest(rows, self._size))

    def _on_end(self, error: BaseException | None) -> None:
        self._on_rows()
        if error is not None:
            self._errors.append(source_error(self._offered, error))
            if self._closing:
                self.unclosed.append(self._errors[-1])
        self.engine.end(perf_counter())

    # ---- stopping

    def _stop(self, mode: Mode, timeout_s: float) -> None:
        if self.engine.finished:
            return
        self.engine.stop(mode, perf_counter(), timeout_s)
        if mode == "drain":
            if self._reader is not None:
                self._reader.stop()
                self._loop.call_later(SOURCE_GRACE_S, self._post, self._end_reading)
            else:
                self.engine.end(perf_counter())
            self._loop.call_later(timeout_s, self._post, self._stop, "cancel", 0.0)
        elif mode == "abort":
            self._aborted = True

    def _end_reading(self) -> None:
        """The source does not come back: go on without it."""
        self._source_left = True
        if not self.engine.finished:
            self.engine.end(perf_counter())

    def _abandon(self) -> None:
        self._aborted = True
        self.engine.stop("abort", perf_counter())
        if not self._opened.done():
            self._opened.set_result(None)

    def _fatal(self, error: BaseException) -> None:
        """A part of Headway itself failed: end at once and say so."""
        if not isinstance(error, InternalError):
            wrapped = InternalError(told(error))
            wrapped.__cause__ = error
            error = wrapped
        self._errors.append(error)
        self._aborted = True
        for future in (self._opened, self._over):
            if not future.done():
                future.set_result(None)

    def _after(self) -> None:
        """What is due once no event waits."""
        if self.engine.finished:
            if not self._over.done():
                self._over.set_result(None)
            if not self._opened.done():
                self._opened.set_result(None)
            return
        if self._reader is None:
            return
        self._reader.grant(self._offered + self.engine.wants())
        due = self.engine.next_deadline()
        if self._tick is not None and (due is None or due != self._tick_at):
            self._tick.cancel()
            self._tick = None
        if due is not None and self._tick is None:
            self._tick_at = due
            self._tick = self._loop.call_later(max(0.0, due - perf_counter()), self._post, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        self.engine.tick(perf_counter())

    # ---- the end

    async def _close(self) -> None:
        """Close the source and every worker, from the source to the sink."""
        self._closing = True
        if self._tick is not None:
            self._tick.cancel()
        engine = self.engine
        ended = ending_error(engine)
        if ended is not None and not any(isinstance(e, InternalError) for e in self._errors):
            self._errors.insert(0, ended)
        commit = not self._aborted and not any(isinstance(e, SinkError | InternalError) for e in self._errors)
        left_behind = []
        if self._reader is not None:
            self._reader.stop()
            if not await self._reader.join(0.0 if self._source_left else LEFT_BEHIND_S):
                left_behind.append("the source is still in a read that does not return")
        reason = self._errors[0] if self._errors else None
        for worker in self._workers.values():
            worker.stop(reason, commit=commit)
        for worker in self._workers.values():
            given_up = bool(self._slots[id(worker)].tickets) or self._aborted
            if not await worker.join(LEFT_BEHIND_S if given_up else PATIENT_S):
                name = self._slots[id(worker)].stage.spec.name
                left_behind.append(f"a call of stage {name!r} does not return; its thread is left behind")
        assert self.mailbox is not None
        while self.mailbox.waiting:  # noqa: ASYNC110 - the loop itself runs what closing has reported
            await asyncio.sleep(0)
        if self._errors:
            engine.state = "failed"
        for text in left_behind:  # last, since a warning may be an error
            warnings.warn(text, RuntimeWarning, stacklevel=2)
