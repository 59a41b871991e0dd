"""Gives the engine a virtual clock and simulated workers.

A plain function runs whole at the end of its virtual interval, so side effects happen in the order
of completion. Nothing here waits or reads a real clock; the same seed gives the same run, bit by bit.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from headway.call import Caller, Cell, drive
from headway.core.engine import Engine
from headway.core.plan import Plan
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import Failure, InternalError, handed_over
from headway.sim.service import Service, draws
from headway.size import largest, sizes


@dataclass(slots=True)
class _Running:
    """A job in virtual execution: when each of its calls ends."""

    job: Job
    started: float
    ends: list[float]
    resumed: bool = False
    stop_at: int | None = None


@dataclass(slots=True)
class _Worker:
    caller: Caller
    queue: deque[Job | tuple[int, int]] = field(default_factory=deque)
    running: _Running | None = None
    recalled: set[int] = field(default_factory=set)


class VirtualRun:
    """One run of `plan` over `rows` in virtual time.

    `service`: seconds of a call by stage name, a number or a function of (random, value); a stage
    without one takes no time. `source_s` seconds pass before each row. `think_s` is what the consumer
    takes for a value, `leave_after` when it leaves. ``outputs`` are the values that it took,
    ``dead`` what was set aside, ``log`` each completed call: (stage, slot, tag, started, stopped).
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
        leave_after: int | None = None,
        on_event: Callable[[Engine], None] | None = None,
    ) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.outputs: list[Any] = []
        self.dead: list[Failure] = []
        self.log: list[tuple[str, int, Any, float, float]] = []
        self.engine = Engine(plan, self, 0.0, measure=sizes)
        self._rows: Iterator[Any] = iter(rows)
        self._draws = draws(service or {})
        self._source_s, self._think_s, self._leave_after = source_s, think_s, leave_after
        self._on_event = on_event
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._events = 0
        self._reading = False
        self._cell = Cell()
        self._workers: dict[tuple[int, int], _Worker] = {}

    def run(self) -> VirtualRun:
        """Run to the end. Raises InternalError if nothing can happen before the run has ended."""
        self._read()
        while not self.engine.finished:
            deadline = self.engine.next_deadline()
            if self._heap and (deadline is None or self._heap[0][0] <= deadline):
                self.now, _, event = heapq.heappop(self._heap)
                event()
            elif deadline is not None:
                self.now = max(self.now, deadline)
                self.engine.tick(self.now)
            else:
                raise InternalError("stalled: nothing is running, nothing is due, and the run has not ended")
            if self._on_event is not None:
                self._on_event(self.engine)
            self._read()
        return self

    def stop(self, mode: Literal["drain", "cancel", "abort"], timeout: float = 0.0) -> None:
        """Ask the run to stop, as at this moment."""
        self.engine.stop(mode, self.now, timeout)
        if not self._reading:
            self.engine.end(self.now)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Have `event` called at `time` seconds."""
        self._events += 1
        heapq.heappush(self._heap, (time, self._events, event))

    # ---- commands of the engine

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Queue `job` at the simulated worker of `slot`."""
        self._worker(slot).queue.append(job)
        self._begin(slot)

    def resume(self, slot: Slot, ticket: int, limit: int) -> None:
        """Queue a paused expansion."""
        self._worker(slot).queue.append((ticket, limit))
        self._begin(slot)

    def recall(self, slot: Slot, ticket: int) -> None:
        """Cut the job: a call that runs ends first."""
        worker = self._worker(slot)
        worker.recalled.add(ticket)
        running = worker.running
        if running is not None and running.job.ticket == ticket and running.stop_at is None and not running.resumed:
            cut = next((i + 1 for i, end in enumerate(running.ends) if end > self.now), len(running.ends))
            if cut < len(running.ends):
                running.stop_at = cut
                self.at(running.ends[cut - 1], lambda: self._complete(slot, running))
        for queued in [q for q in worker.queue if isinstance(q, Job) and q.ticket == ticket]:
            worker.queue.remove(queued)
            self.at(self.now, partial(self._answer_unstarted, ticket))

    def _answer_unstarted(self, ticket: int) -> None:
        self.engine.done(ticket, Answer(ticket, 0, started=self.now, stopped=self.now), self.now)

    def replace(self, slot: Slot) -> None:
        """A new worker."""
        self._workers.pop((slot.stage.index, slot.number), None)

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
            rows = [row for _, row in zip(range(want), self._rows, strict=False)]
            if rows:
                self.engine.offer(rows, self.now, sizes(rows), largest(rows))
            if len(rows) < want:
                self.engine.end(self.now)

    def _read_one(self) -> None:
        self._reading = False
        rows = [row for _, row in zip(range(1), self._rows, strict=False)]
        if rows:
            self.engine.offer(rows, self.now, sizes(rows), largest(rows))
        if not rows or not self.engine.reading:
            self.engine.end(self.now)

    def _worker(self, slot: Slot) -> _Worker:
        key = (slot.stage.index, slot.number)
        if key not in self._workers:
            spec = slot.stage.spec
            fn = self._consume if spec.kind == "consume" else spec.fn
            caller = Caller(
                "sink" if spec.kind == "consume" else spec.kind, fn,
                atomic=spec.atomic, most_children=self.engine.window.budget,
            )  # fmt: skip
            self._workers[key] = _Worker(caller)
        return self._workers[key]

    def _consume(self, value: Any) -> None:
        self.outputs.append(handed_over(value))
        if self._leave_after is not None and len(self.outputs) == self._leave_after:
            self._cell.stop = True
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
        item = worker.queue.popleft()
        if isinstance(item, Job):
            ends, at = [], self.now
            for value in item.values:
                at += self._duration(slot, value)
                ends.append(at)
            running = _Running(item, self.now, ends)
        else:
            running = _Running(Job(item[0], [None], (), item[1]), self.now, [self.now], resumed=True)
        worker.running = running
        self.at(running.ends[-1], lambda: self._complete(slot, running))

    def _complete(self, slot: Slot, running: _Running) -> None:
        worker = self._worker(slot)
        if worker.running is not running:
            return
        job, cell = running.job, Cell()
        if slot.stage.spec.kind == "consume":
            cell = self._cell
        if running.resumed:
            answer = drive(worker.caller.resume(job.ticket, job.limit, cell))
        else:
            if running.stop_at is not None:
                job = Job(job.ticket, job.values[: running.stop_at], job.tags[: running.stop_at], job.limit)
            answer = drive(worker.caller.run(job, cell))
            at, ran = running.started, answer.taken + answer.parked
            for tag, end in zip(job.tags[:ran], running.ends, strict=False):
                self.log.append((slot.stage.spec.name, slot.number, tag, at, end))
                at = end
        answer.started, answer.stopped = running.started, self.now
        worker.running = None
        self.engine.done(job.ticket, answer, self.now)
        self._begin(slot)
