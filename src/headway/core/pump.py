"""Hands out work: who may run now, how much of it, and on which slot."""

from __future__ import annotations

from headway.core.batch import Batcher
from headway.core.block import Block, Position
from headway.core.flow import Flow
from headway.core.gate import Gate
from headway.core.plan import BLOCK
from headway.core.stage import Slot, Stage
from headway.core.ticket import Job, Ticket
from headway.errors import InternalError

CHILDREN = 1000
"""Most children that an expansion gives before it pauses."""


class Pump(Flow):
    """Walks from the sink to the source, so that room made by one dispatch is seen by the next."""

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
                    self._out.popleft()()
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
        window = self.window
        left = window.used or window.nbytes or window.children or self.frontier.watermark != (self._seq,)
        if left and self._cut is None and not self._cancelled:
            raise InternalError(
                f"the run ended at {self.frontier.watermark} of {self._seq}: {window.used} permits, "
                f"{window.nbytes} bytes, {window.children} children are left"
            )

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
            slot, number = ticket.slot, ticket.number
            self._out.append(lambda: self._commands.resume(slot, number, mine))
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
        job = Job(ticket.number, values, tags, limit)
        self._out.append(lambda: self._commands.dispatch(slot, job))

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
            if stage.in_hand > 1 and not stage.inbox and len(stage.slots) > 1:
                if any(not slot.tickets for slot in stage.slots):
                    found += [t for s in stage.slots for t in s.tickets if t.count > 1 and not t.recalled]
        return found

    def _meter_idle(self, stage: Stage, now: float) -> None:
        idle = len(stage.slots) - stage.busy_slots
        state = "blocked" if idle and stage.queued and self._room(stage) <= 0 else "starved"
        stage.meter.idle(idle, state, now)
