"""What becomes of an answer: results go on, failures are tried again or are final, deaths and abandoned calls are made good."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.block import Block, Tag
from headway.core.flow import Flow
from headway.core.lanes import Lanes
from headway.core.policy import BUDGET_FROM
from headway.core.stage import Slot, Stage
from headway.core.ticket import Answer, Ticket
from headway.errors import ItemTimeout, Raised, RetryAfter, WorkerDied

MAX_PAUSE_S = 600.0
"""Most seconds for which one item may ask with `RetryAfter`, where its stage has no `Retry`."""


class Recovery(Flow):
    """Settles tickets. A ticket settles once: whoever answers first takes it off the list."""

    def _settle(self, ticket: Ticket, answer: Answer, now: float) -> None:
        """Take an answer out of its slot's hands, into the books, and on."""
        stage, slot = ticket.stage, ticket.slot
        self._let_go(ticket, answer, now)
        tags = [tag for block in ticket.blocks for tag in block.tags] if stage.key_of else []
        again = self._again(ticket, answer, now)
        done = self._book(ticket, answer, now, frozenset(again))
        if answer.halted:
            slot.epoch += 1
            slot.halted = bool(slot.tickets)  # what it has in hand comes back before it gets more
        due = [(block, *again[at]) for block, at in done.again if self._before_cut([block])]
        waiting, rest = self._wait(stage, due, now) if due else ([], [])
        rest += [block for block in self._before_cut(done.rest) if block.values]
        if answer.again is not None and rest:
            rest = self._write_again(stage, rest, answer.again, ticket.attempt, now)
        parked = done.parked if done.parked is not None and self._before_cut([done.parked]) else None
        if parked is not None:
            ticket.base += done.made
            ticket.blocks, ticket.count = [parked], 1
            stage.parked.append(ticket)
            stage.parked.sort(key=lambda t: t.blocks[0].lo)
            waiting.append(parked)
        stage.inbox.put_back(rest)
        last = stage.index + 1 == len(self.stages)
        self._forward(stage, done.outs if last else self._before_cut(done.outs), now)
        if tags:
            stay = {tag for block in (*rest, *waiting) for tag in block.tags}
            self._leave_lanes(ticket, [tag for tag in tags if tag not in stay] if stay else tags, parked)
        if slot.leaving:
            self._retire(slot)

    def _let_go(self, ticket: Ticket, answer: Answer, now: float) -> None:
        """The ticket is not in its slot's hands any more. The slot's time is divided into transport and work."""
        stage, slot = ticket.stage, ticket.slot
        stage.touched = True
        slot.tickets.remove(ticket)
        stage.in_hand -= ticket.count
        stage.expected -= ticket.expected
        if stage.spec.kind == "flat_map":
            self.window.children -= ticket.expected
        started = min(max(answer.started, slot.mark), now)
        stopped = min(max(answer.stopped, started), now)
        stage.meter.block(slot.mark, started, stopped, answer.taken, answer.cpu, answer.sample)
        if slot.mark == ticket.since and ticket.blocks and ticket.blocks[0].entered == ticket.since:
            stage.meter.handoff_s += started - slot.mark + now - stopped
            stage.meter.handed += ticket.count
        slot.mark = stopped
        if not slot.tickets:
            stage.meter.spans["overhead"] += now - stopped
            slot.mark, slot.halted = now, False
            stage.busy_slots -= not slot.leaving
        stage.size_up()

    def _leave_lanes(self, ticket: Ticket, ended: Iterable[Tag], parked: Block | None) -> None:
        """Items that are through have no key here any more; lanes are free once their outputs were accepted."""
        stage, inbox, lanes = ticket.stage, ticket.stage.inbox, ticket.lanes
        if isinstance(inbox, Lanes):
            ticket.lanes = inbox.hold([parked]) if parked is not None else []
            inbox.ended(ended)
            inbox.release(lanes)
        else:
            for tag in ended:
                del stage.key_of[tag]

    def _retire(self, slot: Slot) -> None:
        """End a slot that is to leave, once it has nothing in hand and no expansion paused."""
        stage = slot.stage
        if not slot.tickets and not any(ticket.slot is slot for ticket in stage.parked) and slot in stage.leaving:
            stage.leaving.remove(slot)
            self._out.append((self._commands.retire, (slot,)))

    # ---- another attempt

    def _again(self, ticket: Ticket, answer: Answer, now: float) -> dict[int, tuple[float, BaseException]]:
        """The inputs whose call is to be made again: by offset, when, and after what. The other failures are final."""
        again: dict[int, tuple[float, BaseException]] = {}
        if not answer.failed or self._cancelled:
            return again
        stage = ticket.stage
        per_member = stage.plan.per_member
        failed = {offset: number for number, (offset, _) in enumerate(answer.failed)}
        # Children that have left cannot be taken back: their item has failed for good.
        given = set(answer.origin or ()) | ({0} if ticket.base else set()) if stage.spec.kind == "flat_map" else set()
        at = offset = 0
        for block in ticket.blocks:
            members = block.members if per_member else None
            for number in range(at, min(at + len(block.values), answer.taken)):
                index = failed.get(offset)
                offset += len(members.tags) if members is not None else 1
                if index is None or number in given or (per_member and number not in answer.broke):
                    continue
                error = answer.failed[index][1].error
                due = self._due(stage, block, ticket.attempt, error, now, len(again))
                if due is not None:
                    again[number] = due, error
                elif isinstance(error, WorkerDied) and block.deaths:
                    answer.failed[index] = answer.failed[index][0], _poison(error, block.deaths + 1)
            at += len(block.values)
        return again

    def _due(
        self, stage: Stage, block: Block, attempt: int, error: BaseException, now: float, more: int
    ) -> float | None:
        """When to call again after `error`; None: not any more. `more`: retries that are not counted yet."""
        spec, retry = stage.spec, stage.spec.retry
        if isinstance(error, RetryAfter):
            most = retry.max_pause if retry is not None else MAX_PAUSE_S
            return now + error.seconds if block.paused + error.seconds <= most else None
        died = isinstance(error, WorkerDied)
        if died and block.deaths:
            return None
        spent = stage.meter.retries + more
        if (
            retry is not None
            and retry.covers(error, attempt)
            and (retry.budget is None or spent < max(BUDGET_FROM, retry.budget * stage.meter.timed))
        ):
            due = now + retry.pause_s(attempt, self._random)
            return due if spec.deadline is None or due < block.born + spec.deadline else None
        return now if died and spec.idempotent else None

    def _wait(
        self, stage: Stage, again: list[tuple[Block, float, BaseException]], now: float
    ) -> tuple[list[Block], list[Block]]:
        """Items to be called again. Those that wait beside the queue, and those that wait in it and hold the stage."""
        beside: list[Block] = []
        within: list[Block] = []
        for block, due, error in again:
            if isinstance(error, RetryAfter):
                block.paused += error.seconds
            else:
                block.attempt += 1
                block.deaths += isinstance(error, WorkerDied)
                stage.meter.retries += 1
                stage.meter.timeouts += isinstance(error, ItemTimeout)
            if isinstance(error, RetryAfter) or stage.plan.holds or due <= now:
                stage.hold_until = max(stage.hold_until, due)
                within.append(block)
            else:
                stage.wait_for(block, due)
                beside.append(block)
        return beside, within

    def _write_again(self, stage: Stage, blocks: list[Block], why: Raised, attempt: int, now: float) -> list[Block]:
        """A sink's write is to be made again, whole, while nothing passes it. What of `blocks` is still to be written."""
        error, retry = why.error, stage.spec.retry
        if isinstance(error, RetryAfter):
            blocks[0].paused += error.seconds
            if blocks[0].paused > (retry.max_pause if retry is not None else MAX_PAUSE_S):
                for block in blocks:
                    self._forward(stage, self._before_cut(self._refuse(stage, block, why, now)), now)
                return []
            stage.hold_until = max(stage.hold_until, now + error.seconds)
            return blocks
        for block in blocks:
            block.attempt = attempt + 1
        stage.meter.retries += 1
        if retry is not None:
            stage.hold_until = max(stage.hold_until, now + retry.pause_s(attempt, self._random))
        return blocks

    # ---- workers that are gone

    def _lose(self, slot: Slot, why: Raised, answer: Answer | None, cursor: int | None, now: float) -> None:
        """Settle what the worker of `slot` had: the call at `cursor` failed, what it had not begun is queued again."""
        stage, tickets = slot.stage, list(slot.tickets)
        slot.halted = stage.touched = True
        # Its last part may have come just before the death, and another ticket be in its hands since.
        named = cursor is not None if answer is None else bool(tickets) and tickets[0].number == answer.ticket
        running = tickets[0] if tickets and named else None
        for ticket in reversed(tickets):
            if ticket.twin is not None:
                self._unhedge(ticket.twin, now)
                continue
            del self.tickets[ticket.number]
            if ticket is not running:
                # The generator of one that was to go on is gone with the worker.
                failed = [(0, why)] if ticket.resumed else []
                self._settle(ticket, Answer(0, len(failed), failed=failed, started=now, stopped=now), now)
                continue
            answer = answer or Answer(ticket.number, 0, started=now, stopped=now)
            if cursor is not None:
                stage.inbox.put_back(self._blame(ticket, answer, cursor, why))
            self._settle(ticket, answer, now)
        for ticket in [ticket for ticket in stage.parked if ticket.slot is slot]:
            stage.parked.remove(ticket)
            slot.tickets.append(ticket)
            stage.in_hand += 1
            stage.busy_slots += not slot.leaving
            ticket.expected = 0
            self._settle(ticket, Answer(0, 1, [], [], [(0, why)], started=now, stopped=now), now)
        slot.halted = False

    def _blame(self, ticket: Ticket, answer: Answer, cursor: int, why: Raised) -> list[Block]:
        """Enter the failure of the input at `cursor` into `answer`. Inputs before it that it does not answer for: returned."""
        before: list[Block] = []
        skip = cursor - answer.taken
        while skip > 0:  # only where nothing was answered for: an idempotent stage
            block = ticket.blocks[0]
            before.append(ticket.blocks.pop(0) if len(block.values) <= skip else block.cut(skip))
            skip -= len(before[-1].values)
        offset, width, left = answer.taken, 1, answer.taken
        if ticket.stage.plan.per_member:
            widths = [len(block.members.tags) for block in ticket.blocks if block.members is not None]
            offset, width = sum(widths[:left]), widths[left]
            answer.broke.append(left)
        if answer.origin is None:
            answer.origin = list(range(len(answer.values)))
        answer.failed += [(offset + number, why) for number in range(width)]
        answer.taken += 1
        return before


def _poison(error: WorkerDied, deaths: int) -> Raised:
    """The failure of an item that has killed more than one worker."""
    poison = WorkerDied(f"poison: {deaths} workers died of this item; the last time {error}", stage=error.stage)
    poison.exitcode, poison.signal = error.exitcode, error.signal
    return Raised(poison, f"WorkerDied: {poison}\n")
