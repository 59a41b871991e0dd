"""The state machine: events in, commands out. The one file that knows all the others of core.

Events: `offer`, `end`, `done`, `part`, `lost`, `tick`, `stop`. Questions: `wants`, `next_deadline`,
`finished`, `snapshot` (in core.snapshot). Commands are the callables of `Commands`; they are called
after the state is consistent, in order, and a completion that arrives within one is taken up after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from headway.core.batch import Batcher, unbatch
from headway.core.block import Block, Failure, Position, Raised, is_kept, position
from headway.core.frontier import Frontier
from headway.core.gate import Gate
from headway.core.ledger import Fates, Timeline
from headway.core.plan import BLOCK, Plan
from headway.core.settle import Settled, settle
from headway.core.stage import Slot, Stage
from headway.core.ticket import Answer, Job, Ticket
from headway.core.window import Window
from headway.errors import InternalError

RECALL_S = 0.010
"""A block in hand is cut when it has run this long while other slots of its stage are starved."""
CHILDREN = 1000
"""Most children that an expansion gives before it pauses."""


class Commands(Protocol):
    """What the engine asks of its driver. None of them may block; answers come as events."""

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Run `job` on the worker of `slot`."""

    def resume(self, slot: Slot, ticket: int, limit: int) -> None:
        """Continue the expansion that paused under `ticket`, for up to `limit` more children."""

    def recall(self, slot: Slot, ticket: int) -> None:
        """Answer for `ticket` as soon as the call that runs ends, with the rest un-started."""

    def replace(self, slot: Slot) -> None:
        """The worker of `slot` is gone: start another."""

    def set_aside(self, failure: Failure) -> None:
        """Keep the record of an item that failed."""


class Engine:
    """Runs a plan. Times are seconds of the driver's clock; sizes come with the rows and answers."""

    def __init__(self, plan: Plan, commands: Commands, now: float = 0.0) -> None:
        self.plan, self._commands = plan, commands
        last = len(plan.stages) - 1
        self.stages = [Stage(s, i, shows_kept=i == last, now=now) for i, s in enumerate(plan.stages)]
        self.ordered = plan.spec.order == "input"
        self.window = Window(plan.window(), plan.spec.window_bytes, max(plan.window(), 2 * plan.batch_items))
        self.frontier = Frontier()
        self.fates, self.times = Fates(), Timeline(now)
        self.tickets: dict[int, Ticket] = {}
        self.state: Literal["running", "done", "drained", "cancelled", "failed"] = "running"
        self.cause: Failure | None = None
        self.too_many: str | None = None
        self.failures: list[Failure] = []
        self._expands = any(s.spec.kind == "flat_map" for s in self.stages)
        self._seq = self._numbers = 0
        self._ended = self._cancelled = False
        self._cut: Position | None = None
        self._deadline: float | None = None
        self._out: deque[Callable[[], None]] = deque()
        self._flushing = False

    # ---- questions

    @property
    def finished(self) -> bool:
        return self.times.stopped_at is not None

    @property
    def ended(self) -> bool:
        """Whether nothing more is read."""
        return self._ended

    def wants(self) -> int:
        """Rows that may be read now: window, bytes and room in the first inbox are counted."""
        if self._ended:
            return 0
        first = self.stages[0]
        return max(0, min(self.window.room(), first.capacity() - first.runnable, BLOCK))

    def next_deadline(self) -> float | None:
        """When `tick` has something to do at the latest."""
        due = [d for stage in self.stages for b in stage.batchers if (d := b.deadline()) is not None]
        due += [t.since + RECALL_S for t in self._cuttable()]
        if self._deadline is not None:
            due.append(self._deadline)
        return min(due, default=None)

    # ---- events

    def offer(self, rows: Sequence[Any], now: float, nbytes: int = 0, largest: int = 1) -> None:
        """Rows of the source, in order: each is tagged here, once. `largest`: bytes of the largest row."""
        if not rows:
            return
        if self._cut is not None or self._cancelled:
            self.fates.read += len(rows)
            self.fates.unread += len(rows)
            return
        lo = self._seq
        self._seq += len(rows)
        self.fates.read += len(rows)
        if self.times.first_birth is None:
            self.times.first_birth = now
        self.window.admit(len(rows), nbytes, largest)
        block = Block((lo,), (self._seq,), range(lo, self._seq), list(rows), nbytes, now)
        self._enter(0, block, now)
        self._pump(now)

    def end(self, now: float) -> None:
        """The source has no more rows."""
        self._end(now)
        self._pump(now)

    def done(self, ticket: int, answer: Answer, now: float) -> None:
        """The answer to a ticket. Only the first one counts."""
        cell = self.tickets.pop(ticket, None)
        if cell is None:
            self.fates.late += answer.taken
            return
        self._settle(cell, answer, now)
        self._pump(now)

    def part(self, ticket: int, answer: Answer, now: float) -> None:
        """The answer to a ticket whose expansion at offset ``answer.taken`` paused."""
        self.done(ticket, answer, now)

    def lost(self, slot: Slot, why: Raised, now: float) -> None:
        """The worker of `slot` died: the job that it ran fails, the un-started ones are queued again."""
        running = next(iter(slot.tickets), None)
        rest = [t for t in slot.tickets if t is not running]
        for ticket in reversed(rest):
            del self.tickets[ticket.number]
            self._settle(ticket, Answer(ticket.number, 0, started=now, stopped=now), now)
        parked = [t for t in slot.stage.parked if t.slot is slot]
        for ticket in ([running] if running else []) + parked:
            if ticket in parked:
                slot.stage.parked.remove(ticket)
                self._grab(ticket, slot, 0, now)
            else:
                del self.tickets[ticket.number]
            width = sum(len(b.values) for b in ticket.blocks)
            if slot.stage.spec.kind == "map_batches":
                width = sum(b.weight for b in ticket.blocks)
            answer = Answer(
                ticket.number, ticket.count, [], [], [(i, why) for i in range(width)], started=now, stopped=now
            )
            self._settle(ticket, answer, now)
        slot.stage.meter.restarts += 1
        self._say(lambda: self._commands.replace(slot))
        self._pump(now)

    def tick(self, now: float) -> None:
        """Time has passed: send batches that are due, cut blocks that keep slots idle, end what took too long."""
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
        """Drain: read no more. Cancel: start nothing more, running calls have `timeout` seconds. Abort: end now."""
        if self.finished:
            return
        self._end(now)
        if mode == "drain":
            if self.state == "running":
                self.state = "drained"
        else:
            if self.state != "failed":
                self.state = "cancelled"
            self._cancel(now, timeout if mode == "cancel" else 0.0)
            if mode == "abort":
                self._finish(now)
        self._pump(now)

    # ---- the way of a block

    def _enter(self, index: int, blocks: Block | list[Block], now: float, step: int = 0) -> None:
        """Lead blocks through what stands in front of stage `index`, from `step` on, into its inbox."""
        stage = self.stages[index]
        ready = [blocks] if isinstance(blocks, Block) else blocks
        for gate in stage.steps[step:]:
            if isinstance(gate, Gate | Batcher):
                ready = [out for block in ready for out in gate.push(block, now)]
                if isinstance(gate, Batcher) and gate.released:
                    self.window.used -= gate.released
                    gate.released = 0
            else:
                ready = [out for block in ready for out in self._unbatch(stage, block, now)]
        for block in ready:
            if stage.shows_kept:
                block.show_kept()
            if block.values:
                stage.push(block, now)
            elif stage.keeps_total and (tail := stage.tail()) is not None:
                tail.hi = block.hi
                tail.freed += block.freed
                if block.kept:
                    tail.kept = {**(tail.kept or {}), **block.kept}
            elif index + 1 < len(self.stages):
                self._enter(index + 1, block, now)
            else:
                self._emit(block, now)

    def _unbatch(self, stage: Stage, block: Block, now: float) -> list[Block]:
        members = block.members
        if members is None or not block.values:
            block.members = None
            return [block]
        try:
            outs = unbatch(block)
        except BaseException as error:  # noqa: BLE001 - iterating a user's value may raise anything
            failure = Failure(error, seq=block.tags[0], stage=f"unbatch before {stage.spec.name}", value=block.values[0])
            block.tags, block.values, block.members = [], [], None
            self._count_children(members.tags, -1)
            self._fail(failure, stage, members.weight, now)
            return [block]
        count = sum(len(out.values) + len(out.kept or ()) for out in outs)
        if count != len(members.tags):
            count = sum(len(out.values) for out in outs)
            self._count_children(members.tags, -1)
            self.window.children += count
            self.fates.children += count
            if count:
                self.fates.expanded += members.weight
            else:
                self.fates.filtered += members.weight
        return outs

    def _emit(self, block: Block, now: float) -> None:
        """A block has left the last stage: its fate is final and its permits return."""
        roots = sum(self.frontier.add(lo, hi) for lo, hi in block.spans or ((block.lo, block.hi),))
        self.window.used -= roots - block.freed
        self.window.nbytes -= block.nbytes
        self.times.emitted_roots += roots
        if self._expands and block.values:
            self._count_children(block.members.tags if block.members is not None else block.tags, -1)
        self.times.emit(block, now)

    def _count_children(self, tags: Sequence[Any], sign: int) -> None:
        if self._expands and not isinstance(tags, range):
            self.window.children += sign * sum(type(tag) is tuple for tag in tags)

    # ---- answers

    def _settle(self, ticket: Ticket, answer: Answer, now: float) -> None:
        stage, slot = ticket.stage, ticket.slot
        before = sum(b.nbytes for b in ticket.blocks)
        for block in ticket.blocks:
            self._count_children(block.members.tags if block.members is not None else block.tags, -1)
        slot.tickets.remove(ticket)
        stage.in_hand -= ticket.count
        stage.reserved -= ticket.reserved
        self.window.children -= ticket.reserved
        ticket.reserved = 0
        started = min(max(answer.started, slot.mark), now)
        stopped = min(max(answer.stopped, started), now)
        stage.meter.block(slot.mark, started, stopped, answer.taken, answer.cpu, answer.sample)
        slot.mark = stopped
        if not slot.tickets:
            stage.meter.overhead += now - stopped
            slot.mark = now
        done = settle(ticket, answer)
        self._tally(stage, done)
        for block in (*done.outs, *done.rest, *([done.parked] if done.parked else [])):
            before -= block.nbytes
            self._count_children(block.members.tags if block.members is not None else block.tags, 1)
        self.window.nbytes -= before
        if done.parked is not None:
            ticket.base += done.made
            ticket.blocks, ticket.count = [done.parked], 1
            stage.parked.append(ticket)
            stage.parked.sort(key=lambda t: t.blocks[0].lo)
        for failure in done.failures:
            self._fail(failure, stage, 0, now)
        if self._cancelled or self._cut is not None:
            self._settle_stopped(stage, done, now)
            return
        stage.put_back(done.rest)
        self._forward(stage, done.outs, now)

    def _forward(self, stage: Stage, outs: list[Block], now: float) -> None:
        for block in outs:
            if stage.index + 1 < len(self.stages):
                self._enter(stage.index + 1, block, now)
            else:
                self._emit(block, now)

    def _tally(self, stage: Stage, done: Settled) -> None:
        meter, fates, kind = stage.meter, self.fates, stage.spec.kind
        gone = done.expanded if kind == "flat_map" else done.items_out
        filtered = done.items_in - gone - done.dead
        meter.items_in += done.items_in
        meter.items_out += done.items_out
        meter.filtered += filtered
        meter.failed += done.dead
        meter.expanded += done.expanded
        fates.filtered += filtered
        fates.dead += done.dead
        fates.expanded += done.expanded
        if kind == "flat_map":
            fates.children += done.items_out
        if stage.index == len(self.stages) - 1:
            fates.written += done.items_out

    def _fail(self, failure: Failure, stage: Stage, weight: int, now: float) -> None:
        """Act on a failure by the policy of its stage. `weight`: items to count as dead here."""
        self.fates.dead += weight
        if len(self.failures) < 20:
            self.failures.append(failure)
        policy, limit, meter = stage.on_error, stage.spec.max_failures, stage.meter
        if policy == "dead_letter":
            self._say(lambda: self._commands.set_aside(failure))
        allowed = limit
        if isinstance(limit, float):
            allowed = limit * meter.items_in if meter.items_in >= 100 else None
        if policy == "raise":
            self.fail(failure, now)
        elif allowed is not None and meter.failed > allowed:
            self.fail(failure, now, f"stage {stage.spec.name!r}: {meter.failed} items failed, max_failures={limit}")

    # ---- endings

    def fail(self, failure: Failure, now: float, too_many: str | None = None) -> None:
        """End the run because of `failure`: in input order what lies before it is still emitted."""
        at = position(failure.seq) if failure.seq is not None else self.frontier.watermark
        if self.cause is None or (self.ordered and self._cut is not None and at < self._cut):
            self.cause, self.too_many = failure, too_many
        self.state = "failed"
        self._end(now)
        if not self.ordered:
            self._cancel(now, 0.0)
        elif self._cut is None or at < self._cut:
            self._cut = at
            self._drop_from(at)

    def _end(self, now: float) -> None:
        if not self._ended:
            self._ended = True
            self.times.end_of_input = now
            self.times.emitted_at_end = self.times.emitted_roots

    def _cancel(self, now: float, timeout: float) -> None:
        self._cancelled = True
        due = now + timeout
        self._deadline = due if self._deadline is None else min(due, self._deadline)
        self._drop_from((0,))

    def _drop_from(self, at: Position) -> None:
        """Give up everything un-emitted at or above `at`; what runs is recalled."""
        for stage in self.stages:
            for step in stage.steps:
                if isinstance(step, Gate):
                    for block in step.take_from(at):
                        self._give_up(block)
                elif isinstance(step, Batcher):
                    self.fates.unread += step.drop_from(at)
            for block in stage.drop_from(at):
                self._give_up(block)
            for ticket in [t for t in stage.parked if t.blocks[0].hi > at]:
                stage.parked.remove(ticket)
                self._give_up(ticket.blocks[0])
        for ticket in list(self.tickets.values()):
            if ticket.blocks[-1].hi > at:
                self._recall(ticket)

    def _give_up(self, block: Block) -> None:
        if block.members is not None and block.values:
            self.fates.unread += block.members.weight
        else:
            self.fates.unread += sum(not is_kept(value) for value in block.values)

    def _settle_stopped(self, stage: Stage, done: Settled, now: float) -> None:
        """As `_settle` ends, with a cut: what lies at or above it is given up."""
        cut = self._cut if self._cut is not None else (0,)
        last = stage.index == len(self.stages) - 1
        for block in done.rest:
            if not self._cancelled and block.lo < cut:
                head = block if block.hi <= cut else block.cut_at(cut)
                if head.values:
                    stage.put_back([head])
                if head is block:
                    continue
            self._give_up(block)
        if done.parked is not None and (self._cancelled or done.parked.hi > cut):
            ticket = next((t for t in stage.parked if t.blocks[0] is done.parked), None)
            if ticket is not None:
                stage.parked.remove(ticket)
                self._give_up(done.parked)
        if last:
            self._forward(stage, done.outs, now)
            return
        for block in done.outs:
            if not self._cancelled and block.lo < cut:
                head = block if block.hi <= cut else block.cut_at(cut)
                self._forward(stage, [head], now)
                if head is block:
                    continue
            self._give_up(block)

    def _finish(self, now: float) -> None:
        if self.finished:
            return
        for ticket in self.tickets.values():
            for block in ticket.blocks:
                self._give_up(block)
        self.tickets.clear()
        self.times.stopped_at = now
        if self.state == "running":
            self.state = "done"
        for stage in self.stages:
            self._meter_idle(stage, now)
        clean = self._cut is None and not self._cancelled
        if clean and (self.frontier.watermark != (self._seq,) or self.window.used or self.window.nbytes or self.window.children):
            raise InternalError(
                f"the run ended at {self.frontier.watermark} of {self._seq}: {self.window.used} permits, "
                f"{self.window.nbytes} bytes, {self.window.children} children are left"
            )

    # ---- the pump

    def _pump(self, now: float) -> None:
        """Hand out everything that may run, walking from the sink to the source."""
        if not self.finished:
            if self._ended and not self._cancelled:
                self._flush_batchers(now)
            if not self._cancelled:
                for stage in reversed(self.stages):
                    while self._start(stage, now):
                        pass
                    self._meter_idle(stage, now)
            if self._ended and all(stage.empty for stage in self.stages):
                self._finish(now)
        if self._flushing:
            return
        self._flushing = True
        try:
            while self._out:
                self._out.popleft()()
        finally:
            self._flushing = False

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
        """Results that may be on their way to the next stage beyond those that are."""
        if stage.index + 1 == len(self.stages):
            return BLOCK
        target = self.stages[stage.index + 1]
        room = target.capacity() - target.runnable
        if target.steps:
            return room
        return room - (stage.reserved if stage.spec.kind == "flat_map" else stage.in_hand)

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
        if expands and stage.parked:
            if self._resume(stage, limit if not scarce else 0, awaited, now):
                return True
            if stage.keeps_total:
                return False
        slot = stage.free_slot()
        if slot is None or not stage.inbox:
            return False
        if awaited is not None:
            blocks = stage.take_at(awaited)
            limit = max(1, limit) if expands else 0
        else:
            blocks = stage.take(stage.block_size(BLOCK if expands else room))
        if not blocks:
            return False
        self._dispatch(stage, slot, blocks, limit, now)
        return True

    def _resume(self, stage: Stage, limit: int, awaited: Position | None, now: float) -> bool:
        """Continue the first paused expansion that has a free slot, unless a queued item comes before it."""
        for ticket in stage.parked:
            mine = limit if limit > 0 else int(ticket.blocks[0].lo == awaited)
            if mine <= 0 or ticket.slot.tickets:
                continue
            if stage.inbox and not stage.keeps_total and stage.inbox[0].lo < ticket.blocks[0].lo and stage.free_slot():
                return False
            stage.parked.remove(ticket)
            self.tickets[ticket.number] = ticket
            self._grab(ticket, ticket.slot, mine, now)
            slot, number = ticket.slot, ticket.number
            self._say(lambda: self._commands.resume(slot, number, mine))
            return True
        return False

    def _dispatch(self, stage: Stage, slot: Slot, blocks: list[Block], limit: int, now: float) -> None:
        self._numbers += 1
        count = sum(len(block.values) for block in blocks)
        ticket = Ticket(self._numbers, stage, slot, blocks, count, now)
        self.tickets[ticket.number] = ticket
        self._grab(ticket, slot, limit, now)
        if len(blocks) == 1:
            job = Job(ticket.number, blocks[0].values, blocks[0].tags, limit)
        else:
            values = [value for block in blocks for value in block.values]
            job = Job(ticket.number, values, [tag for block in blocks for tag in block.tags], limit)
        self._say(lambda: self._commands.dispatch(slot, job))

    def _grab(self, ticket: Ticket, slot: Slot, reserved: int, now: float) -> None:
        """Put a ticket into the hands of its slot."""
        stage = ticket.stage
        if not slot.tickets:
            slot.mark = now
        slot.tickets.append(ticket)
        self._meter_idle(stage, now)
        stage.in_hand += ticket.count
        ticket.since, ticket.recalled, ticket.reserved = now, False, reserved
        stage.reserved += reserved
        self.window.children += reserved

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
            if stage.in_hand > 1 and not stage.inbox and not stage.keeps_total and len(stage.slots) > 1:
                if any(not slot.tickets for slot in stage.slots):
                    found += [t for s in stage.slots for t in s.tickets if t.count > 1 and not t.recalled]
        return found

    def _recall(self, ticket: Ticket) -> None:
        if not ticket.recalled:
            ticket.recalled = True
            slot, number = ticket.slot, ticket.number
            self._say(lambda: self._commands.recall(slot, number))

    def _meter_idle(self, stage: Stage, now: float) -> None:
        idle = len(stage.slots) - stage.busy_slots
        state = "blocked" if stage.queued and self._room(stage) <= 0 else "starved"
        stage.meter.idle(idle, state, now)

    def _say(self, command: Callable[[], None]) -> None:
        self._out.append(command)
