"""Runs the engine on an asyncio loop: gives it the time, carries its commands to the workers and their answers back."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Literal

from headway.core.engine import Engine
from headway.core.plan import Plan
from headway.core.scaling import scaled
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import CheckpointError, Failure, InternalError, ItemTimeout, Raised, RunError, SinkError, StallError
from headway.run.blame import Blamed, ending_error, hopeless_error, one_error, source_error, worker_error
from headway.run.checkpoint import Checkpoint
from headway.run.commits import Commits
from headway.run.crew import LEFT_BEHIND_S, Crew, recipe_of
from headway.run.doctor import wedged
from headway.run.loop import LoopTime
from headway.run.mailbox import Mailbox, end
from headway.run.restart import Restarts
from headway.run.rounds import Rounds
from headway.run.source import Reader, close_unread, make_reader
from headway.run.study import Studied
from headway.run.tuner import Tuner
from headway.run.worker import Spent, Worker
from headway.size import largest, sizes
from headway.text import told

SOURCE_GRACE_S = 1.0
"""How long a drain waits for a read that is going on."""
CLOSE_S = 60.0
"""How long set-ups and sinks may take to close once a stop was asked for."""
STALLED_S = 0.25
"""The same, of a run that has waited for its calls long enough."""

Mode = Literal["drain", "cancel", "abort"]


class Driver(Studied):
    """One run. `outlet` serves the last stage if that is a consumer; `set_aside` takes dead letters.

    `run` is awaited on the loop; `ask` may be called from any thread. `checkpoint`: where it begins, and ends.
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
        stall_after_s: float | None = None,
        target_rate: float | None = None,
        packed: dict[str, bytes] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.engine = Engine(plan, self, perf_counter(), measure=partial(sizes, size=size))
        self._source, self._outlet, self._size = source, outlet, size
        self._set_aside, self._drain_timeout_s, self._packed = set_aside, drain_timeout_s, packed or {}
        self._stall_after_s, self._target_rate = stall_after_s, target_rate
        self._rounds: Rounds | None = None
        self.loop_time = LoopTime()
        self._checkpoint = checkpoint or Checkpoint()
        self._restarts: dict[int, Restarts] = {}
        self._left_s = LEFT_BEHIND_S
        self._errors: list[Blamed] = []
        self._offered = 0
        self._reader: Reader | None = None
        self.unclosed: list[Blamed] = []
        """What could not be opened, committed or closed."""
        self._aborted = self._closing = self._source_left = self._asked_to_stop = False
        self._tick: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self.mailbox: Mailbox | None = None
        self._asked: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # ---- the run

    async def run(self) -> None:
        """Run to the end and close everything. Raises nothing of the user's: see `errors`."""
        loop = self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._opened: asyncio.Future[None] = loop.create_future()
        self.crew = Crew(
            self, self._outlet, self._packed,
            partial(recipe_of, size=self._size, budget=self.engine.window.budget, run=self.engine.plan.spec.name, checkpoint=self._checkpoint),
        )  # fmt: skip
        self._commits = Commits(self.engine, self._checkpoint, self.crew.at, self._post, self._end_with)
        self._hurry = asyncio.Event()
        self.mailbox = Mailbox(loop, self._after, self._fatal)
        try:
            for stage in self.engine.stages:
                for slot in stage.slots:
                    self.replace(slot)
            for call, arguments in self._asked:  # before it began: of workers that are there now
                call(*arguments)
            # Where something has to be opened, nothing is read before it is.
            if any(
                stage.spec.setup or stage.spec.kind == "sink" or stage.spec.on == "process"
                for stage in self.engine.stages
            ):
                await self._opened
            self._rounds = Rounds(self.engine, self.crew, self._post, self.loop_time)
            self._rounds.begin(self._stall_after_s, self._end_with)
            self._rounds.tune(Tuner(self.engine, self._target_rate))
            self._checkpoint.begin(self.engine, perf_counter())
            if not self.engine.finished:
                start = self._checkpoint.start()
                self._reader = make_reader(self._source, self.mailbox, self._on_rows, self._on_end, self._size, start)
                self._commits.begin(self._reader)
                self.engine.times.asked(perf_counter())
                self._reader.start()
                self._post(self._checkpoint.warn)
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
        self._later(self._stop, mode, timeout_s)

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call` run on the loop, at once when there is one."""
        self._asked.append((call, arguments)) if self.mailbox is None else self.mailbox.post(call, *arguments)

    def states(self) -> dict[str, dict[Any, Any]]:
        """The states of each scan by key, as they stand. A scan in a child process has them there."""
        stages = self.engine.stages if self.mailbox is not None else []
        return {stage.spec.name: dict(self.crew.states(stage)) for stage in stages if stage.spec.kind == "scan"}

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
        if not self._commits.keeps_back(slot, job):
            self.crew.at(slot).submit(job)
        if self._rounds is not None:
            self._rounds.expect(job.until)

    def recall(self, slot: Slot, ticket: int) -> None:
        """Cut a job."""
        if self._commits.take_back(ticket):
            self._post(self._on_answer, self.crew.at(slot), Answer(ticket, 0))
        else:
            self.crew.at(slot).recall(ticket)

    def replace(self, slot: Slot) -> None:
        """Start the worker of a slot, or another in its place: where many have died lately, after a pause."""
        restarts = self._restarts.get(slot.stage.index)
        pause_s = restarts.pause_s(perf_counter()) if restarts is not None else 0.0
        if pause_s:
            self.crew.place(slot, lambda worker: self._start_later(worker, pause_s))
        else:
            self.crew.place(slot, lambda worker: worker.start())

    def _start_later(self, worker: Worker, pause_s: float) -> None:
        # What is handed to it meanwhile waits in its queue.
        self._loop.call_later(pause_s, lambda: None if self._closing else worker.start())

    def retire(self, slot: Slot) -> None:
        """End the worker of a slot."""
        self.crew.retire(slot)

    def set_aside(self, failure: Failure) -> None:
        """Keep a dead letter; where that is not possible the run fails."""
        refused = self._set_aside(failure)
        if refused is not None:
            self._checkpoint.frozen = True
            self.engine.fail(failure, perf_counter(), refused)
            self.engine.tick(perf_counter())

    # ---- what workers report

    def _on_answer(self, worker: Any, answer: Answer) -> None:
        if self._restarts and answer.taken and (slot := self.crew.slot_of(worker)) is not None:
            self._restarts.setdefault(slot.stage.index, Restarts()).settled()
        self.engine.done(answer.ticket, answer, perf_counter())

    def _on_committed(self, worker: Any, spent: Spent) -> None:
        self._commits.committed(worker, spent)

    def _on_ready(self, worker: Any) -> None:
        if self.crew.open(worker):
            end(self._opened)

    def _on_broken(self, worker: Any, why: Raised) -> None:
        what = "clean-up" if self.crew.is_open(worker) else "set-up"
        slot = self.crew.slot_of(worker)
        if slot is None:
            return
        error = worker_error(slot.stage.spec, what, why.error)
        # Every worker of a stage meets the same obstacle: it is told once.
        if not any(str(known) == str(error) for known in self._errors):
            self._errors.append(error)
            self.unclosed.append(error)
        if not self._closing:
            self._abandon()

    def _on_zombie(self, worker: Any, alive: bool) -> None:
        slot = self.crew.slot_of(worker)
        if slot is None or self._closing:
            return
        if not alive:
            self.engine.zombies(slot, -1)
            self.crew.bury(worker)
            return
        self.crew.zombies.append(worker)
        if self.engine.zombies(slot, +1):
            self._end_with(wedged(slot, self.crew.zombies_of(slot.stage)))
        elif not slot.leaving:
            self.replace(slot)
        self.crew.warn(slot)

    def _on_died(self, worker: Any, why: Raised, answer: Answer | None, cursor: int | None) -> None:
        slot = self.crew.slot_of(worker)
        if self._closing or slot is None:
            return
        if not self.crew.is_open(worker) and getattr(why.error, "signal", None) is None:
            self._on_broken(worker, why)  # its own doing; what is killed while it starts is followed by another
            return
        now = perf_counter()
        if not isinstance(why.error, ItemTimeout):
            restarts = self._restarts.setdefault(slot.stage.index, Restarts())
            if answer is not None and answer.taken:
                restarts.settled()
            restarts.died(now)
            if restarts.hopeless:
                self._end_with(hopeless_error(slot.stage.spec, restarts.hopeless, why.error))
        self.engine.lost(slot, why, now, answer, cursor)

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
            self._errors.append(source_error(self.engine.rows, error))
            if self._closing:
                self.unclosed.append(self._errors[-1])
        self.engine.end(perf_counter())

    # ---- stopping

    def _stop(self, mode: Mode, timeout_s: float) -> None:
        if self.engine.finished:
            if mode == "abort":  # what closes may hang
                self._abandon()
            return
        self._asked_to_stop = True
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

    def _end_with(self, error: RunError | CheckpointError) -> None:
        """The run cannot go on: what has been emitted stands."""
        if isinstance(error, StallError):
            self._left_s = STALLED_S
        if any(type(known) is type(error) for known in self._errors):
            return
        self._errors.append(error)
        self.engine.stop("cancel", perf_counter())

    def scale(self, name: str, workers: int) -> None:
        """Ask for another number of workers of stage `name`, from any thread. Raises PlanError for what cannot be."""
        scaled(self.engine.plan.spec, name, workers)
        self._later(self._scale, name, workers)

    def _scale(self, name: str, workers: int) -> None:
        for stage in self.engine.stages:
            if stage.spec.name == name:
                self.engine.scale(stage, workers, perf_counter())

    def _abandon(self) -> None:
        self._aborted = True
        self._hurry.set()
        self.engine.stop("abort", perf_counter())
        end(self._opened)

    def _fatal(self, error: BaseException) -> None:
        """A part of Headway itself failed: end at once and say so."""
        if not isinstance(error, InternalError):
            # A warning is raised only where the user made it an error.
            wrapped = RunError(told(error)) if isinstance(error, Warning) else InternalError(told(error))
            wrapped.__cause__ = error
            self._errors.append(wrapped)
        else:
            self._errors.append(error)
        self._aborted = True
        end(self._opened, self._over)

    def _after(self) -> None:
        """What is due once no event waits."""
        if self.engine.finished:
            end(self._over, self._opened)
            return
        if self._reader is None:
            return
        self._commits.look()
        wants = self.engine.wants()
        self._reader.grant(self._offered + wants, self.engine.window.each(wants))
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
        if self._rounds is not None:
            self._rounds.stop()
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
        else:
            close_unread(self._source)
        reason = self._errors[0] if self._errors else None
        if self._asked_to_stop:
            self._loop.call_later(CLOSE_S, self._hurry.set)
        commit = await self._commits.end(commit, done=engine.state == "done" and not self._errors)
        left_behind += await self.crew.close(
            reason, commit=commit, aborted=self._aborted, left_s=self._left_s, hurry=self._hurry
        )
        assert self.mailbox is not None
        while self.mailbox.waiting:  # noqa: ASYNC110 - the loop itself runs what closing has reported
            await asyncio.sleep(0)
        if commit and not self.unclosed:
            self._commits.save()
        self._checkpoint.close()
        if self._errors:
            engine.state = "failed"
        for text in left_behind:  # last, since a warning may be an error
            warnings.warn(text, RuntimeWarning, stacklevel=2)
