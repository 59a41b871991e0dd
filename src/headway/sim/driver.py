"""Gives the engine a virtual clock and simulated workers.

A plain function runs whole at the end of its virtual interval, so side effects happen in the order
of completion. Nothing here waits or reads a real clock; the same seed gives the same run, bit by bit.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from headway.call import Caller, drive
from headway.claim import Cell
from headway.core.engine import Engine
from headway.core.plan import Plan
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import Failure, InternalError, ItemTimeout, Raised, WorkerDied, handed_over
from headway.sim.modelled import Modelled
from headway.sim.service import Service, draws
from headway.size import largest, sizes


@dataclass(slots=True)
class _Running:
    """A job in virtual execution: when each of its calls ends. ``late``: the call that takes too long, if one does."""

    job: Job
    started: float
    ends: list[float]
    stop_at: int | None = None
    late: int | None = None


@dataclass(slots=True)
class _Worker:
    caller: Any  # a `Caller`, or what has its methods
    recipe: Any = None
    queue: deque[Job] = field(default_factory=deque)
    running: _Running | None = None
    recalled: set[int] = field(default_factory=set)


def _nothing(_values: Sequence[Any]) -> int:
    """Bytes of values that stand for others."""
    return 0


class VirtualRun:
    """One run of `plan` over `rows` in virtual time.

    `service`: seconds of a call by stage name, a number or a function of (random, value); a stage
    without one takes no time. `handover`: seconds, by stage name, until a block that was handed to a worker runs.
    `source_s` seconds pass before each row. `think_s` is what the consumer takes for a value, `leave_after` when it leaves. ``outputs`` are the values that it took,
    ``dead`` what was set aside, ``log`` each completed call: (stage, slot, tag, started, stopped),
    ``emitted`` how many rows were through, by time, and ``states`` those of scans. A call that takes longer than its stage's limit is given up, as on a thread.
    With `modelled` no function is called and nothing is kept: stages give on what they get, or by name as
    many values for each as it says there.
    """

    def __init__(
        self,
        plan: Plan,
        rows: Iterable[Any],
        service: Mapping[str, Service] | None = None,
        *,
        seed: int = 0,
        source_s: float = 0.0,
        think_s: float = 0.0,
        handover: Mapping[str, float] | None = None,
        leave_after: int | None = None,
        on_event: Callable[[Engine], None] | None = None,
        modelled: Mapping[str, float] | None = None,
    ) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.outputs: list[Any] = []
        self.dead: list[Failure] = []
        self.log: list[tuple[str, int, Any, float, float]] = []
        self.emitted: list[tuple[int, float]] = [(0, 0.0)]
        self.states: dict[str, dict[Any, Any]] = {}
        self._modelled = modelled
        self._measure = sizes if modelled is None else _nothing
        self.engine = Engine(plan, self, 0.0, measure=self._measure, random=self.rng.random)
        self._rows: Iterator[Any] = iter(rows)
        self._draws = draws(service or {})
        self._handover = handover or {}
        self._source_s, self._think_s, self._leave_after = source_s, think_s, leave_after
        self._on_event = on_event
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events = 0
        self._reading = False
        self._cell = Cell()
        self._workers: dict[Slot, _Worker] = {}

    def run(self) -> VirtualRun:
        """Run to the end. Raises InternalError if nothing can happen before the run has ended."""
        engine = self.engine
        self._read()
        while not engine.finished:
            deadline = engine.next_deadline()
            if not self.step(deadline):
                if deadline is None:
                    raise InternalError("stalled: nothing is running, nothing is due, and the run has not ended")
                self.now = max(self.now, deadline)
                engine.tick(self.now)
            if self._on_event is not None:
                self._on_event(engine)
            if engine.times.emitted_roots > self.emitted[-1][0]:
                self.emitted.append((engine.times.emitted_roots, self.now))
            self._read()
        return self

    def step(self, until: float | None = None) -> bool:
        """Let the next event happen, if there is one, and not behind `until`; whether one did."""
        heap = self._heap
        if not heap or (until is not None and heap[0][0] > until):
            return False
        self.now, _, event, arguments = heapq.heappop(heap)
        event(*arguments)
        return True

    def stop(self, mode: Literal["drain", "cancel", "abort"], timeout: float = 0.0) -> None:
        """Ask the run to stop, as at this moment."""
        self.engine.stop(mode, self.now, timeout)
        if not self._reading:
            self.engine.end(self.now)

    def at(self, time: float, event: Callable[..., None], *arguments: Any) -> None:
        """Have `event` called at `time` seconds."""
        self._events += 1
        heapq.heappush(self._heap, (time, self._events, event, arguments))

    # ---- commands of the engine

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Queue `job` at the simulated worker of `slot`."""
        self._worker(slot).queue.append(job)
        self._begin(slot)

    def recall(self, slot: Slot, ticket: int) -> None:
        """Cut the job: a call that runs ends first."""
        worker = self._worker(slot)
        worker.recalled.add(ticket)
        running = worker.running
        if running is not None and running.job.ticket == ticket and running.stop_at is None and not running.job.resumed:
            cut = next((i + 1 for i, end in enumerate(running.ends) if end > self.now), len(running.ends))
            if cut < len(running.ends):
                running.stop_at = cut
                self.at(running.ends[cut - 1], self._complete, slot, running)
        for queued in [q for q in worker.queue if q.ticket == ticket and not q.resumed]:
            worker.queue.remove(queued)
            self.at(self.now, self._answer_unstarted, ticket)

    def _answer_unstarted(self, ticket: int) -> None:
        self.engine.done(ticket, Answer(ticket, 0, started=self.now, stopped=self.now), self.now)

    def replace(self, slot: Slot) -> None:
        """A new worker."""
        self._workers.pop(slot, None)

    def retire(self, slot: Slot) -> None:
        """A worker is not needed any more."""
        self._workers.pop(slot, None)

    def kill(self, slot: Slot) -> None:
        """Kill the worker of a slot at this moment, as a process that publishes its outcomes."""
        worker = self._workers.pop(slot, None)
        why = WorkerDied("the worker was killed", stage=slot.stage.spec.name)
        answer, cursor = None, None
        if worker is not None and worker.running is not None:
            running = worker.running
            done = 0 if running.job.resumed else sum(end <= self.now for end in running.ends)
            cursor = done if done < len(running.ends) else None
            answer = Answer(running.job.ticket, 0, started=running.started, stopped=self.now)
            if done and not slot.stage.spec.idempotent:
                answer = self._run(slot, worker, running, done, Cell())
            worker.running = None
        self.engine.lost(slot, Raised(why, "WorkerDied\n"), self.now, answer, cursor)

    def set_aside(self, failure: Failure) -> None:
        """Keep the record."""
        self.dead.append(failure)

    # ---- source and workers

    def _read(self) -> None:
        while not self._reading and (want := self.engine.wants()) > 0:
            if self._source_s:
                self._reading = True
                self.at(self.now + self._source_s, self._read_one)
                return
            self._offer(want)

    def _offer(self, want: int) -> None:
        rows = list(islice(self._rows, want))
        if rows:
            self.engine.offer(rows, self.now, self._measure(rows), largest(rows) if self._modelled is None else 1)
        if len(rows) < want:
            self.engine.end(self.now)

    def _read_one(self) -> None:
        self._reading = False
        rows = list(islice(self._rows, 1))
        if rows:
            self.engine.offer(rows, self.now, self._measure(rows), largest(rows) if self._modelled is None else 1)
        if not rows or not self.engine.reading:
            self.engine.end(self.now)

    def _worker(self, slot: Slot) -> _Worker:
        worker = self._workers.get(slot)
        if worker is None:
            spec = slot.stage.spec
            if self._modelled is not None:
                gives = self._modelled.get(spec.name, 1.0)
                worker = self._workers[slot] = _Worker(Modelled(spec.kind, gives, self.rng.random))
                return worker
            fn = self._consume if spec.kind == "consume" else spec.fn
            caller = Caller(
                "sink" if spec.kind == "consume" else spec.kind, fn,
                atomic=spec.atomic, most_children=self.engine.window.budget, halts=slot.stage.plan.halts,
                retry=spec.retry, initial=spec.initial, states=self.states.setdefault(spec.name, {}),
            )  # fmt: skip
            worker = self._workers[slot] = _Worker(caller)
        return worker

    def _consume(self, value: Any) -> None:
        self.outputs.append(handed_over(value))
        if self._leave_after is not None and len(self.outputs) == self._leave_after:
            self._cell.cut()
            self.at(self.now, lambda: self.stop("cancel"))

    def _duration(self, slot: Slot, value: Any) -> float:
        if slot.stage.spec.kind == "consume":
            return self._think_s
        draw = self._draws.get(slot.stage.spec.name)
        return draw(self.rng, value) if draw is not None else 0.0

    def _begin(self, slot: Slot) -> None:
        worker = self._worker(slot)
        if worker.running is not None or not worker.queue:
            return
        running = worker.running = self._time(slot, worker.queue.popleft())
        self.at(running.ends[-1], self._complete, slot, running)

    def _time(self, slot: Slot, job: Job) -> _Running:
        """When the calls of `job` end: up to the first that takes longer than it may. To go on takes no time."""
        if job.resumed:
            return _Running(job, self.now, [self.now])
        begun = self.now + self._handover.get(slot.stage.spec.name, 0.0)
        ends, at, timeout = [], begun, slot.stage.spec.timeout
        for number, value in enumerate(job.values):
            stop = at + self._duration(slot, value)
            limit = min(at + timeout if timeout is not None else stop, stop if job.until is None else job.until)
            if limit < stop:
                ends.append(max(at, limit))
                return _Running(job, begun, ends, late=number)
            at = stop
            ends.append(at)
        return _Running(job, begun, ends)

    def _run(self, slot: Slot, worker: _Worker, running: _Running, count: int, cell: Cell) -> Answer:
        """Make the first `count` calls of a job."""
        job = running.job
        if count < len(job.values):
            job = replace(job, values=job.values[:count], tags=job.tags[:count])
        if isinstance(worker.caller, Modelled):
            answer = worker.caller.answer(job)
        else:
            answer = drive(worker.caller.run(job, cell))
        at, ran = running.started, answer.taken + answer.parked
        for tag, end in zip(job.tags[:ran], running.ends, strict=False):
            self.log.append((slot.stage.spec.name, slot.number, tag, at, end))
            at = end
        answer.started, answer.stopped = running.started, self.now
        return answer

    def _complete(self, slot: Slot, running: _Running) -> None:
        worker = self._workers.get(slot)
        if worker is None or worker.running is not running:
            return
        job, cell = running.job, self._cell
        if slot.stage.spec.kind != "consume" and self._modelled is None:
            cell = Cell()
        late = running.late if running.stop_at is None else None
        count = next((n for n in (late, running.stop_at) if n is not None), len(job.values))
        answer = self._run(slot, worker, running, count, cell)
        if late is not None and answer.taken == late and not (answer.halted or answer.parked):
            answer = self._give_up(slot, job, answer, late)
        worker.running = None
        if answer.halted:
            for queued in [q for q in worker.queue if not q.resumed]:
                worker.queue.remove(queued)
                self.at(self.now, self._answer_unstarted, queued.ticket)
        self.engine.done(job.ticket, answer, self.now)
        self._begin(slot)

    def _give_up(self, slot: Slot, job: Job, answer: Answer, late: int) -> Answer:
        """The call for the input at `late` has taken too long."""
        spec = slot.stage.spec
        why = Raised(
            ItemTimeout(f"took longer than {spec.timeout or spec.deadline} s", stage=spec.name), "ItemTimeout\n"
        )
        first, width = late, 1
        if spec.kind == "map_batches":
            first, width = sum(map(len, job.values[:late])), len(job.values[late])
            answer.broke.append(late)
        if answer.origin is None and spec.kind not in ("sink", "consume"):
            answer.origin = list(range(len(answer.values)))
        answer.failed += [(first + number, why) for number in range(width)]
        answer.taken, answer.halted = late + 1, True
        return answer
