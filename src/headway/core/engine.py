"""The state machine: events in, commands out.

Events: `offer`, `end`, `done`, `lost`, `tick`, `stop`. Questions: `wants`, `next_deadline`,
`finished`. Commands are the methods of `flow.Commands`; they are called once the state is
consistent, in order, and a completion that arrives within one is taken up after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from headway.core.batch import Batcher
from headway.core.block import Block
from headway.core.frontier import Frontier
from headway.core.gate import Gate
from headway.core.plan import BLOCK
from headway.core.scaling import Scaling
from headway.core.stage import Slot
from headway.core.ticket import Answer
from headway.errors import InternalError, Raised

RECALL_S = 0.010
"""A block in hand is cut when it has run this long while other slots of its stage are starved."""


class Engine(Scaling):
    """Runs a plan. Times are seconds of the driver's clock, sizes estimates in bytes."""

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
        if self._rows_wanted is None:
            self._rows_wanted = self._count_wanted()
        return self._rows_wanted

    def _count_wanted(self) -> int:
        first = self.stages[0]
        if not isinstance(self.plan.spec.window, int):
            capacities = 0
            for stage in self.stages:
                capacities += stage.capacity
            if capacities != self._capacities:
                self._capacities, self._least = capacities, self.plan.window(capacities)
            self.window.items = self._least
            if self.plan.spec.window == "auto":
                self.window.items = max(self._least, self.times.slow_tail())
        return max(0, min(self.window.room(), first.capacity - first.runnable, BLOCK))

    def next_deadline(self) -> float | None:
        """When `tick` has something to do at the latest."""
        due = [ticket.since + RECALL_S for ticket in self._cuttable()]
        for stage in self.stages:
            if stage.batchers:
                due += [at for batcher in stage.batchers if (at := batcher.deadline()) is not None]
            if self._cancelled:
                continue
            if stage.backoff:
                due.append(stage.backoff[0][0])
            if stage.spec.hedge and stage.busy_slots < len(stage.slots) and (slow := self._slow(stage)) is not None:
                due.append(slow[1])
            if stage.waits_for_time and (stage.inbox.queued or stage.parked):
                due += [at for at in (stage.hold_until, stage.throttled_until) if at > self._now]
        if self._deadline is not None:
            due.append(self._deadline)
        return min(due, default=None)

    def begin_at(self, row: int, known: Callable[[Block], int]) -> None:
        """Before the first offer: the next row has the number `row`.

        `known` takes the items that an earlier run has brought to their end out of a block, and gives their number.
        """
        self.rows, self.frontier, self.known = row, Frontier((row,)), known
        for stage in self.stages:
            for gate in stage.gates:
                gate.awaited = (row,)

    def offer(self, rows: Sequence[Any], now: float, nbytes: int = 0, largest: int = 1) -> None:
        """Rows of the source, in order: each is tagged here, once. `largest`: bytes of the largest row."""
        lo, self.rows = self.rows, self.rows + len(rows)
        if self.times.first_birth is None:
            self.times.first_birth = now
            for stage in self.stages:
                stage.meter.begin(now)
        self.window.admit(len(rows), nbytes, largest)
        block = Block((lo,), (self.rows,), range(lo, self.rows), list(rows), nbytes, now)
        self.fates.read += len(rows) - (self.known(block) if self.known is not None else 0)
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
        if cell.twin is not None:
            self._unhedge(cell, now)
        self._settle(cell, answer, now)
        self._pump(now)

    def lost(
        self, slot: Slot, why: Raised, now: float, answer: Answer | None = None, cursor: int | None = None
    ) -> None:
        """The worker of `slot` died, or was killed for a time limit; `cursor` is the offset of the call that ran, if one did.

        `answer` has the outcomes that it had published. The item at the cursor fails with `why`, or is
        tried again; its paused expansions fail; what it had not begun is queued again.
        """
        if self.finished:
            return
        self._lose(slot, why, answer, cursor, now)
        slot.stage.meter.restarts += 1
        if not (self._cancelled or slot.leaving):
            self._out.append((self._commands.replace, (slot,)))
        self._pump(now)

    def zombies(self, slot: Slot, change: int) -> bool:
        """The calls of a stage that cannot be ended became more or fewer; whether they are too many now."""
        slot.stage.zombies += change
        return slot.stage.zombies > len(slot.stage.slots)

    def tick(self, now: float) -> None:
        """Time has passed: send batches that are due, cut blocks that keep slots idle, end what took too long."""
        if self.finished:
            return
        for index, stage in enumerate(self.stages):
            stage.take_due(now)
            for number, step in enumerate(stage.steps):
                if isinstance(step, Batcher) and (due := step.deadline()) is not None and due <= now:
                    self._enter(index, step.flush(), now, number + 1)
        for ticket in self._cuttable():
            if ticket.since + RECALL_S <= now:
                self._recall(ticket)
        self._hedge(now)
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

    def _pump(self, now: float) -> None:
        """Start everything that may run; finish when nothing is left; then let the commands out.

        Only where something has changed can more be started: in a stage that was touched, or before one.
        """
        self._now, self._rows_wanted = now, None
        if self.times.stopped_at is None:
            everywhere = self._expands or self._cancelled or self._scarce
            while True:
                self._passed_by = False
                if self._ended and not self._cancelled:
                    self._flush_batchers(now)
                self._scarce = self.window.over
                everywhere, behind = everywhere or self._scarce, False
                for stage in reversed(self.stages):
                    if behind or stage.touched or everywhere or stage.waits_for_time:
                        if (stage.inbox.free or stage.parked) and not self._cancelled:
                            while self._start(stage, now):
                                pass
                        self._meter(stage, now)
                    behind, stage.touched = stage.touched, False
                if not (self._passed_by or self._unstuck(now)):
                    break
                everywhere = True  # what failed without a call may have set free what stages behind wait for
            state = "ended" if not self.reading else "reading" if self.wants() else "blocked"
            if state == "blocked" and self.window.room() <= 0:
                state = "window_wait"
            self.times.source.idle(1, state, now)
            if self._ended and all(stage.empty for stage in self.stages):
                self._finish(now)
            elif self._ended and not self.tickets and self.next_deadline() is None:
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
        whole = at == (self.rows,) and not (window.used or window.nbytes or window.children)
        if not (whole or self._cancelled or self._cut is not None):
            raise InternalError(f"the run ended at {at} of {self.rows} with {vars(window)} in flight")

    def _unstuck(self, now: float) -> bool:
        """Send an open batch before it is full where what is held behind it, for order, leaves no permit to fill it."""
        if self.tickets or self._ended or self.window.room() > 0 or self.next_deadline() is not None:
            return False
        open_batches = [batcher for stage in self.stages for batcher in stage.batchers if not batcher.empty]
        self._flush_batchers(now)
        return any(batcher.empty for batcher in open_batches)

    def _flush_batchers(self, now: float) -> None:
        """Send the open batches behind which nothing more can come."""
        for index, stage in enumerate(self.stages):
            stage.take_due(now)
            for number, step in enumerate(stage.steps):
                if isinstance(step, Gate) and not step.empty:
                    return
                if isinstance(step, Batcher) and not step.empty:
                    self._enter(index, step.flush(), now, number + 1)
            if stage.inbox.queued or stage.in_hand or stage.parked or stage.backoff:
                return
