"""A plain line on the virtual clock: the events of a `VirtualRun`, in the same order, at a fraction of their cost.

In a plain line every item passes every stage: nothing fails, expands, waits for its key or is held to a rate,
and no value has a size. What is left of the engine's rules (room, size of blocks, window, order, recalls, meters)
stands here and in `line_stage` once more, on blocks that are bare tuples. A property test holds the two together:
same calls, same draws, same report, bit by bit. Anything that is not plain goes to the engine.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from headway.core.engine import RECALL_S, Engine
from headway.core.plan import BLOCK, GatePlan, Plan
from headway.errors import InternalError
from headway.sim.line_stage import Block, LineSlot, LineStage, LineTicket, split
from headway.sim.service import Constant, Service, draws

PLAIN = ("map", "filter", "scan", "sink", "consume")


def plain(plan: Plan, gives: Mapping[str, float]) -> bool:
    """Whether `plan` is a plain line, if its stages give on so many values for each that they take."""
    if plan.spec.window == "auto" or plan.spec.order == "key":
        return False
    for stage in plan.stages:
        spec = stage.spec
        special = spec.key is not None or spec.rate is not None or spec.hedge
        limited = spec.deadline is not None or spec.timeout is not None
        gates = all(isinstance(step, GatePlan) for step in stage.intake)
        if spec.kind not in PLAIN or special or limited or not gates or gives.get(spec.name, 1.0) < 1.0:
            return False
    return True


class _Nobody:
    """The driver of an engine that does not run."""

    def __getattr__(self, name: str) -> Any:
        raise InternalError(f"nothing runs here that could {name}")


class Line:
    """Runs `rows` rows through a plain plan. The other arguments, ``log``, ``emitted`` and ``now`` are those of a `VirtualRun`.

    ``engine`` has not run, and has in the end what it would have counted itself.
    """

    def __init__(
        self, plan: Plan, rows: int, service: Mapping[str, Service], *, seed: int = 0, source_s: float = 0.0,
        think_s: float = 0.0, handover: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine = Engine(plan, _Nobody(), 0.0, measure=len)
        self.now = 0.0
        self.log: list[tuple[str, int, Any, float, float]] = []
        self.emitted: list[tuple[int, float]] = [(0, 0.0)]
        self.rng = random.Random(seed)
        self._times, self._window = engine.times, engine.window
        self._rows, self._next, self._out = rows, 0, 0
        self._source_s, self._reading = source_s, False
        self._ended = False
        self._events = 0
        self._heap: list[tuple[float, int, LineStage | None, LineTicket | None]] = []
        given = draws(service)
        self._stages = [
            LineStage(stage, Constant(think_s) if stage.spec.kind == "consume" else given.get(stage.spec.name))
            for stage in engine.stages
        ]
        for stage in self._stages:
            stage.handover = (handover or {}).get(stage.name, 0.0)
        for stage, behind in pairwise(self._stages):
            stage.behind, behind.before = behind, stage
        self._several = [stage for stage in self._stages if stage.many > 1]
        self._blocks = 0
        self._latency: dict[float, int] = {}
        self._unordered: dict[float, int] = {}
        self._state = "reading"
        self._resized = self._changed = True
        self._want, self._by_bytes = 1, 1

    def run(self) -> Line:
        """Run to the end."""
        heap, times, complete = self._heap, self._times, self._complete
        self._read()
        while times.stopped_at is None:
            due = self._recall_due() if self._blocks else None
            if due is not None and (not heap or heap[0][0] > due):
                self.now = max(self.now, due)
                self._recall()
            else:
                self.now, _, stage, ticket = heappop(heap)
                if ticket is None or stage is None:
                    self._reading = False
                    self._offer(1)
                elif ticket.slot.running is ticket or ticket.cut == 0:
                    complete(stage, ticket)
            if self._want and not self._reading:
                self._read()
        self._leave()
        return self

    # ---- source

    def _wanted(self) -> tuple[int, str]:
        """Rows that may be read now, and the state of the source."""
        window, first = self._window, self._stages[0]
        if self._resized:
            self._resized = False
            window.items = self.engine.plan.window(sum(stage.capacity for stage in self._stages))
        if (permits := window.items - window.used) <= 0:
            return 0, "window_wait"
        room = first.capacity - first.queued - first.in_hand + first.many - len(first.idle)
        if room <= 0:
            return 0, "blocked"
        return (1 if room == 1 else min(permits, self._by_bytes, room, BLOCK)), "reading"

    def _read(self) -> None:
        while self._want and not self._reading:
            if not self._source_s:
                self._offer(self._want)
                continue
            self._reading = True
            self._events += 1
            heappush(self._heap, (self.now + self._source_s, self._events, None, None))

    def _offer(self, want: int) -> None:
        now, times, first = self.now, self._times, self._next
        stage = self._stages[0 if first else -1]
        count = min(want, self._rows - first)
        if count:
            if times.first_birth is None:
                times.first_birth = now
                for each in self._stages:
                    each.meter.begin(now)
                self._by_bytes = max(1, self._window.bytes_limit)
            self._next += count
            self._window.admit(count, 0, 1)
            self._enter(self._stages[0], [(first, first + count, now, 0.0, now)])
            self._pump(stage)
        if count < want:
            self._ended, times.end_of_input, self._want = True, now, 0
            times.source.idle(1, "ended", now)
            self._pump(stage)

    # ---- stages

    def _enter(self, stage: LineStage, blocks: list[Block]) -> None:
        """Lead blocks through the gate of `stage`, if it has one, into its queue."""
        now = self.now
        if stage.gate is not None:
            blocks = [out for block in blocks for out in stage.gate.push(block, now)]
        for lo, hi, born, waited, _ in blocks:
            stage.touched = True
            stage.queue.append((lo, hi, born, waited, now))
            stage.queued += hi - lo

    def _pump(self, last: LineStage) -> None:
        """Start what may run in `last` and before it, as far as something has changed there; end when nothing is left."""
        at, touched, now = last, True, self.now
        while touched or at.touched:
            if at.queued and (at.idle or at.credits > 1):
                self._start(at)
            touched = at.touched
            if touched:
                at.touched = False
                at.note(now)
            if at.before is None:
                self._changed = True
                break
            at = at.before
        if self._ended:
            if self._out == self._next:
                self._times.stopped_at = now
        elif self._changed:
            self._changed = False
            self._want, state = self._wanted()
            if state != self._state:
                self._state = state
                self._times.source.idle(1, state, now)

    def _start(self, stage: LineStage) -> None:
        """Dispatch blocks of `stage` as long as a slot has a credit and there is room for what comes of it."""
        now, behind, idle, many, room = self.now, stage.behind, stage.idle, stage.many, BLOCK
        size, several = stage.target, stage.credits > 1
        while stage.queued and (slot := idle[0] if idle else stage.credited() if several else None) is not None:
            if behind is not None:
                room = behind.capacity - behind.queued - behind.in_hand + behind.many - len(behind.idle)
                if behind.gate is None:
                    room -= stage.in_hand
                if room <= 0:
                    return
            count = size if size == 1 else min(size, room, -(-stage.queued // many), stage.most)
            ticket = LineTicket(slot, stage.take(count), count, now)
            stage.touched = True
            stage.in_hand += count
            if count > 1 and many > 1:
                self._blocks += 1
            if slot.tickets:
                slot.queue.append(ticket)
                if slot.running is None:
                    self._begin(stage, slot, slot.queue.popleft())
            else:
                slot.mark = now
                del idle[0]
                self._begin(stage, slot, ticket)
            slot.tickets.append(ticket)

    def _begin(self, stage: LineStage, slot: LineSlot, ticket: LineTicket) -> None:
        """The worker of `slot` takes up `ticket`: when its calls end."""
        slot.running = ticket
        at = ticket.started = self.now + stage.handover
        seconds = stage.seconds
        if ticket.count == 1:
            at += stage.draw(self.rng, ticket.blocks[0][0]) if seconds is None else seconds
        else:
            ends: list[float] = []
            ticket.ends = ends
            for lo, hi, *_ in ticket.blocks:
                for row in range(lo, hi):
                    at += stage.draw(self.rng, row) if seconds is None else seconds
                    ends.append(at)
        self._events += 1
        heappush(self._heap, (at, self._events, stage, ticket))

    def _complete(self, stage: LineStage, ticket: LineTicket) -> None:
        """The answer to `ticket`: its calls up to the cut are made, the rest is put back."""
        now, slot, blocks, behind = self.now, ticket.slot, ticket.blocks, stage.behind
        started, count, mark, tickets = now, ticket.count, slot.mark, slot.tickets
        done = count if ticket.cut is None else ticket.cut
        if began := slot.running is ticket:
            slot.running, started = None, ticket.started
        if count > 1:
            self._log(stage, ticket, done)
            self._blocks -= stage.many > 1
        elif done:
            self.log.append((stage.name, slot.number, blocks[0][0], started, now))
        # What its slot had in hand: `Recovery._let_go`.
        started = max(started, mark)
        if mark == ticket.since and blocks[0][4] == mark:
            stage.meter.handed += count
            stage.meter.handoff_s += started - mark + now - now  # as the engine rounds it
        tickets.remove(ticket)
        if not tickets:
            if stage.many == 1:
                stage.idle.append(slot)
            else:
                insort(stage.idle, slot)
        stage.touched = True
        stage.in_hand -= count
        slot.mark = now
        stage.overhead_s += started - mark
        if stage.count(now - started, done):
            self._resized = self._changed = True
        if done < count:
            blocks, rest = split(blocks, done)
            stage.put_back(rest)
        if behind is not None:
            self._enter(behind, blocks)
            self._pump(behind)
        else:
            self._emit(blocks)
            self._pump(stage)
        if began and slot.queue and slot.running is None:
            self._begin(stage, slot, slot.queue.popleft())

    def _log(self, stage: LineStage, ticket: LineTicket, done: int) -> None:
        at = 0
        started, name, number = ticket.started, stage.name, ticket.slot.number
        for lo, hi, *_ in ticket.blocks:
            for row in range(lo, hi):
                if at == done:
                    return
                stop = ticket.ends[at]
                self.log.append((name, number, row, started, stop))
                at, started = at + 1, stop

    def _emit(self, blocks: list[Block]) -> None:
        """Rows are through: their permits return."""
        now, times, latency, unordered = self.now, self._times, self._latency, self._unordered
        self._changed = self._changed or self._state == "window_wait"
        for lo, hi, born, waited, _ in blocks:
            count = hi - lo
            self._out += count
            self._window.used -= count
            whole = own = now - born
            if waited:
                own = max(0.0, whole - waited)
            latency[whole] = latency.get(whole, 0) + count
            unordered[own] = unordered.get(own, 0) + count
            if times.first_emission is None:
                times.first_emission = now
            if now == times.first_emission:
                times.emitted_first = self._out
        if blocks:
            times.last_emission = now
            self.emitted.append((self._out, now))
            if not self._ended:
                times.emitted_at_end, times.steady_until = self._out, now

    # ---- recalls

    def _cuttable(self) -> list[tuple[LineStage, LineTicket]]:
        """Blocks of several items that run while other slots of their stage have nothing to do."""
        return [
            (stage, ticket)
            for stage in self._several
            if stage.in_hand > 1 and stage.idle and not stage.queued
            for slot in stage.slots
            for ticket in slot.tickets
            if ticket.count > 1 and not ticket.recalled
        ]

    def _recall_due(self) -> float | None:
        return min((ticket.since + RECALL_S for _, ticket in self._cuttable()), default=None)

    def _recall(self) -> None:
        """Cut what has kept slots waiting: a call that runs ends first."""
        for stage, ticket in self._cuttable():
            if ticket.since + RECALL_S > self.now:
                continue
            ticket.recalled, slot, at = True, ticket.slot, self.now
            if slot.running is ticket:
                cut = next((n + 1 for n, end in enumerate(ticket.ends) if end > self.now), ticket.count)
                if cut == ticket.count:
                    continue
                ticket.cut, at = cut, ticket.ends[cut - 1]
            else:
                slot.queue.remove(ticket)
                ticket.cut = 0
            self._events += 1
            heappush(self._heap, (at, self._events, stage, ticket))

    def _leave(self) -> None:
        """Leave in the engine what it would have counted itself."""
        engine, times = self.engine, self._times
        engine.fates.read = engine.fates.written = self._next
        engine.frontier.add((0,), (self._next,))
        engine.state, times.emitted_roots = "done", self._out
        for value, count in self._latency.items():
            times.latency.record(value, count)
        for value, count in self._unordered.items():
            times.latency_unordered.record(value, count)
        for stage in self._stages:
            meter = stage.meter
            meter.items_out = meter.items_in
            meter.spans["busy"], meter.spans["overhead"] = stage.busy_s, stage.overhead_s
            for value, count in stage.calls.items():
                meter.service.record(value, count)
            for gate in stage.real.gates:
                gate.awaited = (self._next,)
