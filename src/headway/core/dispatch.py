"""Handing out work: what may run, where there is room for its results, and who gets it."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.block import Block, Position, is_kept
from headway.core.lanes import Lanes
from headway.core.plan import BLOCK
from headway.core.recovery import Recovery
from headway.core.stage import Slot, Stage
from headway.core.ticket import Job, Ticket
from headway.errors import ItemTimeout, PredecessorFailed, Raised

CHILDREN = 1000
"""Most children that an expansion gives before it pauses."""


class Dispatching(Recovery):
    """Makes tickets. A dispatch needs a free credit, work that may run, and room for its results."""

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
        return stage.runnable - stage.inbox.free if waits else stage.runnable

    def _start(self, stage: Stage, now: float) -> bool:
        """Dispatch or resume one ticket at `stage`, if anything may run."""
        if not (stage.inbox.free or stage.parked) or now < stage.hold_until:
            return False
        slot = stage.free_slot()
        if (slot is None and not stage.parked) or (room := self._room(stage)) <= 0:
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
        if slot is None or not stage.inbox.free:
            return False
        size = stage.block_size(BLOCK if expands else room)
        if stage.bucket is not None:
            size = min(size, self._granted(stage, now))
        if not size:
            return False
        if awaited is not None:
            blocks = stage.inbox.take_at(awaited)
        else:
            blocks = stage.inbox.take(size, alone=stage.spec.deadline is not None)
        if not blocks:
            return False
        lanes = list(dict.fromkeys(map(stage.inbox.lane_of, blocks))) if isinstance(stage.inbox, Lanes) else []
        blocks = self._wanted(stage, blocks, now)
        if blocks:
            self._dispatch(stage, slot, blocks, max(1, limit) if expands else 0, now)
            slot.tickets[-1].lanes = lanes
        elif isinstance(stage.inbox, Lanes):
            stage.inbox.release(lanes)
        return True

    def _granted(self, stage: Stage, now: float) -> int:
        """Calls that the stage's rate allows now."""
        bucket = stage.bucket
        assert bucket is not None
        wait = bucket.wait(now)
        stage.throttled_until = now + wait
        if wait > 0:
            return 0
        return 1 if bucket.cost is not None else bucket.most(now)

    def _wanted(self, stage: Stage, blocks: list[Block], now: float) -> list[Block]:
        """What of `blocks`, just taken, is to be called; items that may not be called any more fail on the spot."""
        spec, wanted = stage.spec, blocks
        late = spec.deadline is not None and blocks[0].born + spec.deadline <= now
        if late or stage.blocked_keys:
            wanted = []
            for block in blocks:
                while block.values:
                    one = block.cut(1) if len(block.values) > 1 else block
                    # A late item may itself block the key of the next.
                    if (why := self._unwanted(stage, one, late=late)) is not None:
                        self._pass_by(stage, one, why, now, wanted)
                    else:
                        wanted.append(one)
                    if one is block:
                        break
        if stage.bucket is not None and wanted:
            units: float = sum(len(block.values) for block in wanted)
            if stage.bucket.cost is not None:
                try:
                    units = float(stage.bucket.cost(wanted[0].values[0]))
                except BaseException as error:  # a user's function may raise anything
                    self._pass_by(
                        stage, wanted[0], Raised(error, f"the cost of a call raised {type(error).__name__}\n"), now
                    )
                    return []
            stage.bucket.take(units, now)
        return wanted

    def _unwanted(self, stage: Stage, one: Block, *, late: bool) -> Raised | None:
        """Why this item may not be called any more, if so."""
        if stage.blocked_keys and (key := stage.key_of[one.tags[0]]) in stage.blocked_keys:
            failed = PredecessorFailed(f"predecessor_failed: an earlier item of key {key!r} failed")
            return Raised(failed, f"PredecessorFailed: {failed}\n")
        text = f"its deadline of {stage.spec.deadline} s passed before it was called"
        return Raised(ItemTimeout(text, stage=stage.spec.name), f"ItemTimeout: {text}\n") if late else None

    def _pass_by(self, stage: Stage, block: Block, why: Raised, now: float, taken: Sequence[Block] = ()) -> None:
        """The items of `block`, just taken from the queue, fail without a call. `taken`: before it, and to be called."""
        self._passed_by = True
        tags = list(block.tags)
        outs = self._refuse(stage, block, why, now)
        tail = taken[-1] if taken and stage.keeps_total else stage.in_hand_tail()
        for out in self._before_cut(outs):
            if tail is not None:
                tail.absorb(out)
            else:
                self._forward(stage, [out], now)
        if stage.keys is not None:
            if isinstance(stage.inbox, Lanes):
                stage.inbox.ended(tags)
            else:
                for tag in tags:
                    del stage.key_of[tag]

    def _resume(self, stage: Stage, limit: int, awaited: Position | None, now: float) -> bool:
        """Continue the first paused expansion whose slot is free, unless a queued item comes before it.

        The one that owes the awaited item may always make one more child.
        """
        for ticket in stage.parked:
            mine = limit if limit > 0 else int(awaited is not None and ticket.blocks[0].covers(awaited))
            if mine <= 0 or ticket.slot.tickets:
                continue
            head = stage.inbox.head()
            if head is not None and not stage.keeps_total and head.lo < ticket.blocks[0].lo and stage.free_slot():
                return False
            stage.parked.remove(ticket)
            ticket.resumed += 1
            self.tickets[ticket.number] = ticket
            self._grab(ticket, ticket.slot, mine, now)
            job = Job(ticket.number, [], (), mine, epoch=ticket.slot.epoch, resumed=ticket.resumed)
            self._out.append((self._commands.dispatch, (ticket.slot, job)))
            return True
        return False

    def _dispatch(self, stage: Stage, slot: Slot, blocks: list[Block], limit: int, now: float) -> None:
        self._numbers += 1
        count = len(blocks[0].values) if len(blocks) == 1 else sum(len(block.values) for block in blocks)
        ticket = Ticket(self._numbers, stage, slot, blocks, count, now, attempt=blocks[0].attempt)
        self.tickets[ticket.number] = ticket
        self._grab(ticket, slot, limit, now)
        values, tags = blocks[0].values, blocks[0].tags
        if len(blocks) > 1:
            values = [value for block in blocks for value in block.values]
            tags = [tag for block in blocks for tag in block.tags]
            for block in blocks if stage.spec.kind == "consume" else ():
                block.values = [value if is_kept(value) else None for value in block.values]  # the job's are let go
        keys = [stage.key_of[tag] for tag in tags] if stage.keys is not None else None
        born, deadline = blocks[0].born, stage.spec.deadline
        until = born + deadline if deadline is not None else None
        job = Job(ticket.number, values, tags, limit, keys, ticket.attempt, born, until, slot.epoch)
        self._out.append((self._commands.dispatch, (slot, job)))

    def _grab(self, ticket: Ticket, slot: Slot, limit: int, now: float) -> None:
        """Put a ticket into the hands of its slot; an expansion may make `limit` children."""
        stage = ticket.stage
        stage.touched = True
        if not slot.tickets:
            slot.mark = now
            stage.busy_slots += not slot.leaving
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
            if stage.in_hand > 1 and not stage.inbox.free and stage.busy_slots < len(stage.slots):
                found += [
                    t for s in stage.slots for t in s.tickets if t.count > 1 and not t.recalled and len(t.lanes) != 1
                ]
        return found

    def _meter(self, stage: Stage, now: float) -> None:
        """Note the depth of the queue, and say why the slots with nothing in hand have nothing."""
        inbox, meter = stage.inbox, stage.meter
        depth = inbox.queued + max(0, stage.in_hand - stage.busy_slots)
        if depth != meter.depth.value:
            meter.depth.set(depth, now)
        if inbox.nbytes != meter.nbytes.value:
            meter.nbytes.set(inbox.nbytes, now)
        idle, state = len(stage.slots) - stage.busy_slots, "starved"
        if idle > 0 and (inbox.queued or stage.backoff):
            if now < stage.hold_until:
                state = "paused"
            elif not inbox.free:
                state = "lane_wait" if inbox.queued else "starved"
            else:  # there is no room for results, or in the window
                state = "throttled" if now < stage.throttled_until else "blocked"
        meter.idle(idle, state, now)
