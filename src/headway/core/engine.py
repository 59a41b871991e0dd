"""The state machine: events in, commands out.

Events: `offer`, `end`, `done`, `lost`, `tick`, `stop`. Questions: `wants`, `next_deadline`,
`finished`. Commands are the methods of `flow.Commands`; they are called once the state is
consistent, in order, and a completion that arrives within one is taken up after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from headway.core.batch import Batcher
from headway.core.block import Block
from headway.core.plan import BLOCK
from headway.core.pump import Pump
from headway.core.settle import settle
from headway.core.stage import Slot
from headway.core.ticket import Answer, Ticket
from headway.errors import Raised

RECALL_S = 0.010
"""A block in hand is cut when it has run this long while other slots of its stage are starved."""


class Engine(Pump):
    """Runs a plan. Times are seconds of the driver's clock, sizes estimates in bytes."""

    # ---- questions

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
        if self.plan.spec.window is None:
            self.window.items = self.plan.window(sum(stage.capacity for stage in self.stages))
        return max(0, min(self.window.room(), first.capacity - first.runnable, BLOCK))

    def next_deadline(self) -> float | None:
        """When `tick` has something to do at the latest."""
        due = [d for stage in self.stages for b in stage.batchers if (d := b.deadline()) is not None]
        due += [ticket.since + RECALL_S for ticket in self._cuttable()]
        if self._deadline is not None:
            due.append(self._deadline)
        return min(due, default=None)

    # ---- events

    def offer(self, rows: Sequence[Any], now: float, nbytes: int = 0, largest: int = 1) -> None:
        """Rows of the source, in order: each is tagged here, once. `largest`: bytes of the largest row."""
        lo = self._seq
        self._seq += len(rows)
        self.fates.read += len(rows)
        if self.times.first_birth is None:
            self.times.first_birth = now
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
            self._out.append(lambda: self._commands.replace(slot))
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
        """Drain: read no more; `end` follows when the source has stopped. Cancel: start nothing more and
        give running calls `timeout` seconds. Abort: end now."""
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

    # ---- answers

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
        for failure in done.failures:
            self._fail(failure, stage, now)
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
            meter.overhead += now - stopped
            slot.mark = now
            slot.stage.busy_slots -= 1
        slot.stage.size_up()
