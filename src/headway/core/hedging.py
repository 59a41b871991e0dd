"""A second copy of the call that everybody waits for. The first of the two answers counts."""

from __future__ import annotations

from headway.core.dispatch import Dispatching
from headway.core.stage import Stage
from headway.core.ticket import Answer, Job, Ticket

HEDGE_SHARE = 0.02
"""Most copies, as a share of the calls of a stage."""
HEDGE_FROM = 32
"""Calls that have to be measured before one counts as slow."""


class Hedging(Dispatching):
    """Copies the awaited item of an idempotent stage with ``hedge=True`` to an idle slot (Dean and Barroso, 2013)."""

    def _slow(self, stage: Stage) -> tuple[Ticket, float] | None:
        """The ticket of the awaited item, if it runs in `stage` alone and uncopied, and when it is slow."""
        meter = stage.meter
        if not stage.spec.hedge or meter.timed < HEDGE_FROM or meter.hedges >= HEDGE_SHARE * meter.timed:
            return None
        at = self.frontier.watermark
        for slot in stage.slots:
            for ticket in slot.tickets:
                if ticket.count == 1 and ticket.twin is None and ticket.blocks[0].covers(at):
                    slow = max(meter.service.quantile(0.99) or 0.0, 3 * (meter.service.quantile(0.5) or 0.0))
                    return ticket, ticket.since + slow
        return None

    def _hedge(self, now: float) -> None:
        for stage in self.stages:
            slow = self._slow(stage)
            idle = [slot for slot in stage.slots if not slot.tickets]
            if slow is None or slow[1] > now or not idle:
                continue
            first, slot = slow[0], idle[0]
            self._numbers += 1
            copy = Ticket(self._numbers, stage, slot, [], 0, now, attempt=first.attempt, twin=first)
            first.twin = copy
            self.tickets[copy.number] = copy
            self._grab(copy, slot, 0, now)
            stage.meter.hedges += 1
            block = first.blocks[0]
            keys = [stage.key_of[block.tags[0]]] if stage.keys is not None else None
            job = Job(copy.number, list(block.values), block.tags, 0, keys, first.attempt, block.born, None, slot.epoch)
            self._out.append((self._commands.dispatch, (slot, job)))

    def _unhedge(self, ticket: Ticket, now: float) -> None:
        """`ticket` alone stands for its item from now on; what its twin answers comes too late."""
        twin = ticket.twin
        if twin is None:
            return
        stage, ticket.twin, twin.twin = ticket.stage, None, None
        self.tickets.pop(twin.number, None)
        count, expected = twin.count, twin.expected
        self._let_go(twin, Answer(twin.number, 0, started=now, stopped=now), now)
        self._recall(twin)
        if twin.blocks:
            ticket.blocks, ticket.lanes = twin.blocks, twin.lanes
        ticket.count += count
        ticket.expected += expected
        stage.in_hand += count
        stage.expected += expected
