"""The state machine: events in, commands out.

Events: `offer`, `end`, `done`, `lost`, `tick`, `stop`. Questions: `wants`, `next_deadline`,
`finished`. Commands are the methods of `flow.Commands`; they are called once the state is
consistent, in order, and a completion that arrives within one is taken up after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from headway.core.batch import Batcher
from headway.core.block import Block, Position, is_kept
from headway.core.flow import Flow
from headway.core.gate import Gate
from headway.core.plan import BLOCK
from headway.core.settle import settle
from headway.core.stage import Slot, Stage
from headway.core.ticket import Answer, Job, Ticket
from headway.errors import InternalError, Raised

RECALL_S = 0.010
"""A block in hand is cut when it has run this long while other slots of its stage are starved."""
CHILDREN = 1000
"""Most children that an expansion gives before it pauses."""


class Engine(Flow):
    """Runs a plan. Times are seconds of the driver's clock, sizes estimates in bytes."""

    @property
    def finished(self) -> bool:
        """Whether every item has its fate and no event can change anything."""
        return self.times.stopped_at is not None

    @property
    def complete(self) -> bool:
        """Whether the run is over and its ledger adds up, for the run and for every stage."""
        return self.finished and self.fates.balanced and all(stage.meter.balanced for stage in self.stages)

    @property
    def reading(self) -> bool:
        """Whether the source may still be asked."""
        return not (self._ended or self._draining)

    def wants(self) -> int:
        """Rows that may be read now: window, bytes and room in the first inbox are counted."""
        if not self.reading:
            return 0
        first = self.stages[0]
        if not isinstance(self.plan.spec.window, int):
            self.window.items = self.plan.window(sum(stage.capacity for stage in self.stages))
            if self.plan.spec.window == "auto":
                self.window.items = max(self.window.items, self.times.slow_tail())
        return max(0, min(self.window.room(), first.capacity - first.runnable, BLOCK))

    def next_deadline(self) -> float | None:
        """When `tick` has something to do at the latest."""
        due = [d for stage in self.stages for b in stage.batchers if (d := b.deadline()) is not None]
        due += [ticket.since + RECALL_S for ticket in self._cuttable()]
        if self._deadline is not None:
            due.append(self._deadline)
        return min(due, default=None)

    def offer(self, rows: Sequence[Any], now: float, nbytes: int = 0, largest: int = 1) -> None:
        """Rows of the source, in order: each is tagged here, once. `largest`: bytes of the largest row."""
        lo = self._seq
        self._seq += len(rows)
        self.fates.read += len(rows)
        self.times.first_birth = now if self.times.first_birth is None else self.times.first_birth
        self.window.admit(len(rows), nbytes, largest)
        block = Block((lo,), (self._seq,), range(lo, self._seq), list(rows), nbytes, now)
        self._enter(0, self._before_cut([block]), now)
        self._pump(now)

    def end(self, now: float) -> None:
        """The source has no more rows, or is not asked any more."""
        if not self.finished:
            self._end(now)
            self._pump(now)

    def done(self, ticket: int, answer: Answer, now: float) -> None:
        """The answer to a ticket, whole or up to a pause. Only the first one counts."""
        cell = self.tickets.pop(ticket, None)
        if cell is None:
            self.fates.late += answer.taken
            return
        self._settle(cell, answer, now)
        self._pump(now)

    def lost(self, slot: Slot, why: Raised, now: float) -> None:
        """The worker of `slot` died: the job that it ran and its paused expansions fail, the others are queued again.

        Items of an idempotent stage are tried once more, each alone.
        """
        if self.finished:
            return
        stage = slot.stage
        running = list(slot.tickets)[:1]
        if running and stage.spec.idempotent and running[0].attempt == 1 and not running[0].base:
            running[0].blocks = [single for block in running[0].blocks for single in block.singles()]
            running.clear()
        for ticket in [ticket for ticket in reversed(slot.tickets) if ticket not in running]:
            del self.tickets[ticket.number]
            self._settle(ticket, Answer(ticket.number, 0, started=now, stopped=now), now)
        for ticket in [ticket for ticket in stage.parked if ticket.slot is slot]:
            stage.parked.remove(ticket)
            self.tickets[ticket.number] = ticket
            self._grab(ticket, slot, 0, now)
            running.append(ticket)
        for ticket in running:
            del self.tickets[ticket.number]
            width = sum(block.weight for block in ticket.blocks) if stage.spec.kind == "map_batches" else ticket.count
            failed = [(offset, why) for offset in range(width)]
            self._settle(ticket, Answer(ticket.number, ticket.count, [], [], failed, started=now, stopped=now), now)
        stage.meter.restarts += 1
        if not self._cancelled:
            self._out.append((self._commands.replace, (slot,)))
        self._pump(now)

    def tick(self, now: float) -> None:
        """Time has passed: send batches that are due, cut blocks that keep slots idle, end what took too long."""
        if self.finished:
            return
        for index, stage in enumerate(self.stages):
            for number, step in enumerate(stage.steps):
                if isinstance(step, Batcher) and (due := step.deadline()) is not None and due <= now:
                    self._enter(index, step.flush(), now, number + 1)
        for ticket in self._cuttable():
            if ticket.since + RECALL_S <= now:
                self._recall(ticket)
        if self._deadline is not None and self._deadline <= now:
            self._finish(now)
        self._pump(now)

    def stop(self, mode: Literal["drain", "cancel", "abort"], now: float, timeout: float = 0.0) -> None:
        """Drain: read no more (`end` follows). Cancel: start nothing more, running calls have `timeout` s. Abort: end now."""
        if self.finished:
            return
        self._draining = True
        if mode == "drain":
            if self.state == "running" and not self._ended:
                self.state = "drained"
        else:
            if self.state != "failed":
                self.state = "cancelled"
            self._end(now)
            self._cancel(now, timeout)
            if mode == "abort":
                self._finish(now)
        self._pump(now)

    def _settle(self, ticket: Ticket, answer: Answer, now: float) -> None:
        """Take an answer out of its slot's hands, into the books, and on."""
        stage, slot = ticket.stage, ticket.slot
        before = sum(block.nbytes for block in ticket.blocks)
        for block in ticket.blocks:
            self._count_children(block, -1)
        slot.tickets.remove(ticket)
        stage.in_hand -= ticket.count
        stage.expected -= ticket.expected
        if stage.spec.kind == "flat_map":
            self.window.children -= ticket.expected
        self._stamp(slot, answer, now)
        done = settle(ticket, answer)
        self._tally(stage, done)
        for block in (*done.outs, *done.rest, *([done.parked] if done.parked else [])):
            before -= block.nbytes
            self._count_children(block, 1)
        self.window.nbytes -= before
        before = stage.meter.failed - done.dead
        for number, failure in enumerate(done.failures, 1):
            self._fail(failure, stage, before + number * done.dead // len(done.failures), now)
        if done.parked is not None and self._before_cut([done.parked]):
            ticket.base += done.made
            ticket.blocks, ticket.count = [done.parked], 1
            stage.parked.append(ticket)
            stage.parked.sort(key=lambda t: t.blocks[0].lo)
        stage.put_back([block for block in self._before_cut(done.rest) if block.values])
        last = stage.index + 1 == len(self.stages)
        self._forward(stage, done.outs if last else self._before_cut(done.outs), now)

    def _stamp(self, slot: Slot, answer: Answer, now: float) -> None:
        """Divide the slot's time since its last mark into transport and work."""
        started = min(max(answer.started, slot.mark), now)
        stopped = min(max(answer.stopped, started), now)
        meter = slot.stage.meter
        meter.block(slot.mark, started, stopped, answer.taken, answer.cpu, answer.sample)
        slot.mark = stopped
        if not slot.tickets:
            meter.spans["overhead"] += now - stopped
            slot.mark = now
            slot.stage.busy_slots -= 1
        slot.stage.size_up()

    def _pump(self, now: float) -> None:
        """Start everything that may run; finish when nothing is left; then let the commands out."""
        if self.times.stopped_at is None:
            if self._ended and not self._cancelled:
                self._flush_batchers(now)
            for stage in reversed(self.stages):
                while not self._cancelled and self._start(stage, now):
                    pass
                self._meter_idle(stage, now)
            if self._ended and all(stage.empty for stage in self.stages):
                self._finish(now)
            elif self._ended and not self.tickets and self._deadline is None:
                waiting = ", ".join(stage.spec.name for stage in self.stages if not stage.empty)
                raise InternalError(f"nothing runs and the run has not ended; items are left before {waiting}")
        if not self._flushing:
            self._flushing = True
            try:
                while self._out:
                    command, arguments = self._out.popleft()
                    command(*arguments)
            finally:
                self._flushing = False

    def _finish(self, now: float) -> None:
        for ticket in self.tickets.values():
            for block in ticket.blocks:
                self._give_up(block)
        self.tickets.clear()
        self.times.stopped_at = now
        if self.state == "running":
            self.state = "done"
        window, at = self.window, self.frontier.watermark
        whole = at == (self._seq,) and not (window.used or window.nbytes or window.children)
        if not (whole or self._cancelled or self._cut is not None):
            raise InternalError(f"the run ended at {at} of {self._seq} with {vars(window)} in flight")

    def _flush_batchers(self, now: float) -> None:
        """Send the open batches behind which nothing more can come."""
        for index, stage in enumerate(self.stages):
            for number, step in enumerate(stage.steps):
                if isinstance(step, Gate) and not step.empty:
                    return
                if isinstance(step, Batcher) and not step.empty:
                    self._enter(index, step.flush(), now, number + 1)
            if stage.inbox or stage.in_hand or stage.parked:
                return

    def _room(self, stage: Stage) -> int:
        """Results that may be on their way to the next stage beyond those that are.

        Where a gate or batcher stands, what is expected may have to be held and takes no room.
        """
        if stage.index + 1 == len(self.stages):
            return BLOCK
        target = self.stages[stage.index + 1]
        room = target.capacity - self._runnable(target)
        return room if target.steps else room - stage.expected

    def _runnable(self, stage: Stage) -> int:
        """Items in front of `stage` that a free slot could take now.

        Above the byte limit, and where an expansion has no child budget, only the awaited item can
        be taken: the others take no room, or that one could wait for them for ever.
        """
        waits = self.window.over or (stage.spec.kind == "flat_map" and not self.window.children_left())
        return stage.runnable - stage.queued if waits else stage.runnable

    def _start(self, stage: Stage, now: float) -> bool:
        """Dispatch or resume one ticket at `stage`, if anything may run."""
        if not stage.inbox and not stage.parked:
            return False
        room = self._room(stage)
        if room <= 0:
            return False
        expands = stage.spec.kind == "flat_map"
        limit = min(CHILDREN, room, self.window.children_left()) if expands else 0
        scarce = self.window.over or (expands and limit <= 0)
        awaited = self._awaited() if scarce else None
        if stage.parked:
            if self._resume(stage, 0 if scarce else limit, awaited, now):
                return True
            if stage.keeps_total:
                return False
        slot = stage.free_slot()
        if slot is None or not stage.inbox:
            return False
        if awaited is not None:
            blocks = stage.take_at(awaited)
        else:
            blocks = stage.take(stage.block_size(BLOCK if expands else room))
        if blocks:
            self._dispatch(stage, slot, blocks, max(1, limit) if expands else 0, now)
        return bool(blocks)

    def _resume(self, stage: Stage, limit: int, awaited: Position | None, now: float) -> bool:
        """Continue the first paused expansion whose slot is free, unless a queued item comes before it.

        The one that owes the awaited item may always make one more child.
        """
        for ticket in stage.parked:
            mine = limit if limit > 0 else int(awaited is not None and ticket.blocks[0].covers(awaited))
            if mine <= 0 or ticket.slot.tickets:
                continue
            if stage.inbox and not stage.keeps_total and stage.inbox[0].lo < ticket.blocks[0].lo and stage.free_slot():
                return False
            stage.parked.remove(ticket)
            self.tickets[ticket.number] = ticket
            self._grab(ticket, ticket.slot, mine, now)
            self._out.append((self._commands.resume, (ticket.slot, ticket.number, mine)))
            return True
        return False

    def _dispatch(self, stage: Stage, slot: Slot, blocks: list[Block], limit: int, now: float) -> None:
        self._numbers += 1
        count = sum(len(block.values) for block in blocks)
        ticket = Ticket(self._numbers, stage, slot, blocks, count, now, attempt=blocks[0].attempt)
        self.tickets[ticket.number] = ticket
        self._grab(ticket, slot, limit, now)
        values, tags = blocks[0].values, blocks[0].tags
        if len(blocks) > 1:
            values = [value for block in blocks for value in block.values]
            tags = [tag for block in blocks for tag in block.tags]
            for block in blocks if stage.spec.kind == "consume" else ():
                block.values = [value if is_kept(value) else None for value in block.values]  # the job's are let go
        self._out.append((self._commands.dispatch, (slot, Job(ticket.number, values, tags, limit))))

    def _grab(self, ticket: Ticket, slot: Slot, limit: int, now: float) -> None:
        """Put a ticket into the hands of its slot; an expansion may make `limit` children."""
        stage = ticket.stage
        if not slot.tickets:
            slot.mark = now
            stage.busy_slots += 1
            self._meter_idle(stage, now)
        slot.tickets.append(ticket)
        stage.in_hand += ticket.count
        ticket.since, ticket.recalled = now, False
        if stage.spec.kind == "flat_map":
            ticket.expected = limit
            self.window.children += limit
        else:
            ticket.expected = (
                sum(block.weight for block in ticket.blocks) if stage.spec.kind == "map_batches" else ticket.count
            )
        stage.expected += ticket.expected

    def _awaited(self) -> Position:
        """The smallest position neither emitted nor in an open batch."""
        spans = self.frontier.spans()
        spans += [span for stage in self.stages for step in stage.batchers for span in step.spans]
        at, moved = self.frontier.watermark, True
        while moved:
            moved = False
            for lo, hi in spans:
                if lo <= at < hi:
                    at, moved = hi, True
        return at

    def _cuttable(self) -> list[Ticket]:
        """Blocks of several items that run while other slots of their stage have nothing to do."""
        found = []
        for stage in self.stages:
            if stage.in_hand > 1 and not stage.inbox and stage.busy_slots < len(stage.slots):
                found += [t for s in stage.slots for t in s.tickets if t.count > 1 and not t.recalled]
        return found

    def _meter_idle(self, stage: Stage, now: float) -> None:
        idle = len(stage.slots) - stage.busy_slots
        state = "blocked" if idle and stage.queued and self._room(stage) <= 0 else "starved"
        stage.meter.idle(idle, state, now)
