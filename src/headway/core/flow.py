"""The state of a run, the way of a block through it, and what an ending gives up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from headway.core.batch import Batcher, unbatch
from headway.core.block import Block, Position, Tag, is_kept, position
from headway.core.frontier import Frontier
from headway.core.gate import Gate
from headway.core.lanes import Keys
from headway.core.ledger import Fates, Timeline
from headway.core.plan import Plan
from headway.core.policy import Bucket, RateLimit
from headway.core.settle import Settled, pieces, settle
from headway.core.stage import Slot, Stage
from headway.core.ticket import Answer, Job, Ticket
from headway.core.window import Window
from headway.errors import Failure, ItemTimeout, Raised


class Commands(Protocol):
    """What the engine asks of its driver. None of these may block; answers come as events.

    `recall`: answer for `ticket` as soon as the call that runs ends, with the rest un-started.
    `replace`: there is no worker, or it is gone: start one. `retire`: end the worker, which has nothing in
    hand. `set_aside`: keep the record of a failed item.
    """

    def dispatch(self, slot: Slot, job: Job) -> None: ...
    def recall(self, slot: Slot, ticket: int) -> None: ...
    def replace(self, slot: Slot) -> None: ...
    def retire(self, slot: Slot) -> None: ...
    def set_aside(self, failure: Failure) -> None: ...


class Flow:
    """What is where; the engine, above it, takes events and hands out work.

    `measure`: bytes of a list of values; `random`: a number drawn evenly from 0 to 1, for the pauses between attempts.
    ``rows`` is the number of the row that comes next, ``undone`` are the items whose failure ended the run.
    """

    def __init__(
        self,
        plan: Plan,
        commands: Commands,
        now: float = 0.0,
        *,
        measure: Callable[[Sequence[Any]], int],
        random: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.plan, self._commands, self._random = plan, commands, random
        last = len(plan.stages) - 1
        keeps = any(stage.on_error == "keep" for stage in plan.stages)
        self.stages = [Stage(s, i, measure, shows_kept=keeps and i == last, now=now) for i, s in enumerate(plan.stages)]
        self.ordered = plan.spec.order == "input"
        self.window = Window(plan.window(), plan.spec.window_bytes, plan.window())
        self.frontier = Frontier()
        self.fates, self.times = Fates(), Timeline(now)
        self.tickets: dict[int, Ticket] = {}
        self.state: Literal["running", "done", "drained", "cancelled", "failed"] = "running"
        self.cause: Failure | None = None
        self.too_many: str | None = None
        self.failures: list[Failure] = []
        self._expands = any(s.spec.kind == "flat_map" for s in self.stages)
        self.rows = self._numbers = 0
        self.known: Callable[[Block], int] | None = None
        self.undone: list[Tag] = []
        self._ended = self._draining = self._cancelled = False
        self._cut: Position | None = None
        self._deadline: float | None = None
        self._out: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._flushing = self._passed_by = self._scarce = False
        self._rows_wanted: int | None = None
        self._capacities = self._least = 0
        self._now = now
        self._share_out()

    def _share_out(self) -> None:
        """Give stages that name the same key, or the same rate limit, the one object for it."""
        named = [stage.spec.key for stage in self.stages if stage.spec.key is not None]
        self._keys: list[tuple[Any, Keys]] = []
        buckets: dict[RateLimit, Bucket] = {}
        for stage in self.stages:
            if (limit := stage.spec.rate) is not None:
                stage.bucket = buckets.setdefault(limit, Bucket(limit))
            if (key := stage.spec.key) is not None and not stage.plan.batched:
                found = [keys for known, keys in self._keys if known == key]
                stage.keys = found[0] if found else Keys(key, carried=named.count(key) > 1)
                self._keys += [] if found else [(key, stage.keys)]

    @property
    def finished(self) -> bool:
        """Whether every item has its fate and no event can change anything."""
        return self.times.stopped_at is not None

    def _enter(self, index: int, blocks: list[Block], now: float, step: int = 0) -> None:
        """Lead blocks through what stands in front of stage `index`, from `step` on, into its inbox."""
        stage = self.stages[index]
        if stage.may_hold:
            blocks = [part for block in blocks for part in block.parts()]
        for gate in stage.steps[step:]:
            if isinstance(gate, Gate | Batcher):
                blocks = [out for block in blocks for out in gate.push(block, now)]
                if isinstance(gate, Batcher):
                    for rows in gate.released:
                        self.window.release_early(*rows)
                    self.window.nbytes += gate.grown
                    gate.released, gate.grown = [], 0
            else:
                blocks = [out for block in blocks for out in self._unbatch(stage, block, now)]
        if stage.keys is not None:
            blocks = [part for block in blocks for part in self._find_keys(stage, stage.keys, block, now)]
        for block in self._before_cut(blocks):
            if stage.shows_kept:
                block.show_kept()
            if block.values:
                stage.push(block, now)
            elif (tail := stage.tail()) is not None:
                tail.absorb(block)
            else:
                self._forward(stage, [block], now)

    def _find_keys(self, stage: Stage, keys: Keys, block: Block, now: float) -> list[Block]:
        """Note the key of every item of `block`; one for which that raises fails without a call."""
        failed: dict[int, Raised] = {}
        for at, (tag, value) in enumerate(zip(block.tags, block.values, strict=True)):
            try:
                stage.key_of[tag] = key = keys.of(tag, value)
                stage.meter.keys.add(key)
            except BaseException as error:  # a user's function may raise anything
                failed[at] = Raised(error, f"the key of stage {stage.spec.name!r} raised {type(error).__name__}\n")
        if not failed:
            return [block]
        parts: list[Block] = []
        for piece, at in pieces(block, 0, frozenset(failed)):
            if at in failed:
                parts += self._refuse(stage, piece, failed[at], now)
            else:
                parts.append(piece)
        return parts

    def _refuse(self, stage: Stage, block: Block, why: Raised, now: float) -> list[Block]:
        """The items of `block` fail at `stage` without a call; what is left of it."""
        members = block.members if stage.plan.per_member else None
        count = len(members.tags) if members is not None else len(block.values)
        ticket = Ticket(0, stage, stage.slots[0], [block], len(block.values), now, attempt=block.attempt)
        return self._book(ticket, Answer(0, ticket.count, [], [], [(at, why) for at in range(count)]), now).outs

    def _book(self, ticket: Ticket, answer: Answer, now: float, again: frozenset[int] = frozenset()) -> Settled:
        """Enter an answer into the books; the blocks that come of it are still to be sent on."""
        stage = ticket.stage
        grown = 0
        for block in ticket.blocks:
            grown -= block.nbytes
            if self._expands:
                self.window.children -= block.children
        done = settle(ticket, answer, again)
        if self.known is not None and stage.spec.kind == "flat_map":
            done.items_out -= sum(map(self.known, done.outs))
        self._tally(stage, done)
        kept = [done.parked] if done.parked is not None else []
        for block in (*done.outs, *done.rest, *(block for block, _ in done.again), *kept):
            grown += block.nbytes
            if self._expands:
                self.window.children += block.children
        self.window.nbytes += grown
        before = stage.meter.failed - done.dead
        for number, failure in enumerate(done.failures, 1):
            self._fail(failure, stage, before + number * done.dead // len(done.failures), now)
        return done

    def _forward(self, stage: Stage, blocks: list[Block], now: float) -> None:
        """Blocks leave `stage`."""
        for block in blocks:
            block.attempt = 1
        if stage.index + 1 < len(self.stages):
            self._enter(stage.index + 1, blocks, now)
        else:
            for block in blocks:
                self._emit(block, now)

    def _unbatch(self, stage: Stage, block: Block, now: float) -> list[Block]:
        members = block.members
        if members is None:
            return [block]
        try:
            outs = unbatch(block, same=self.known is not None)
        except BaseException as error:  # iterating a user's value may raise anything
            failure = Failure(
                error, seq=block.tags[0], stage=f"unbatch before {stage.spec.name}", value=block.values[0]
            )
            block.tags, block.values, block.members = [], [], None
            self.window.children -= members.children if self._expands else 0
            self.fates.dead += members.weight
            self._fail(failure, stage, stage.meter.failed, now)
            return [block]
        if sum(len(out.values) + len(out.kept or ()) for out in outs) != len(members.tags):
            count = sum(len(out.values) for out in outs)
            self.window.children += count - members.children if self._expands else 0
            self.fates.children += count
            self.fates.expanded += members.weight if count else 0
            self.fates.filtered += 0 if count else members.weight
        return outs

    def _emit(self, block: Block, now: float) -> None:
        """A block has left the last stage: its fate is final and its permits return."""
        roots = 0
        for lo, hi in block.spans or ((block.lo, block.hi),):
            first, stop = self.frontier.add(lo, hi)
            self.window.release(first, stop)
            for _, keys in self._keys:
                keys.forget(first, stop)
            roots += stop - first
        self.window.nbytes -= block.nbytes
        if self._expands:
            self.window.children -= block.children
        self.times.emit(block, roots, now)

    def _tally(self, stage: Stage, done: Settled) -> None:
        """Enter what was settled at `stage` into its meter and the ledger."""
        meter, fates, kind = stage.meter, self.fates, stage.spec.kind
        filtered = done.items_in - done.dead - (done.expanded if kind == "flat_map" else done.items_out)
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

    def _fail(self, failure: Failure, stage: Stage, count: int, now: float) -> None:
        """Act on a failure, the `count`-th of its stage, by the policy of that stage."""
        if len(self.failures) < 20:
            self.failures.append(failure)
        policy, allowed, meter = stage.on_error, stage.spec.max_failures, stage.meter
        meter.timeouts += isinstance(failure.error, ItemTimeout)
        if stage.spec.on_key_failure == "block_key" and failure.seq in stage.key_of:
            stage.blocked_keys.add(stage.key_of[failure.seq])
        stop = policy == "raise" or stage.spec.on_key_failure == "halt"
        if policy == "dead_letter":
            self._out.append((self._commands.set_aside, (failure,)))
        if isinstance(allowed, float):
            allowed = allowed * meter.items_in if meter.items_in >= 100 else None
        if stop:
            self.fail(failure, now)
        elif allowed is not None and count > allowed and self.too_many is None:
            text = f"stage {stage.spec.name!r}: {count} items failed, max_failures={stage.spec.max_failures}"
            self.fail(failure, now, text)

    def fail(self, failure: Failure, now: float, too_many: str | None = None) -> None:
        """End the run because of `failure`: in input order what lies before it is still emitted."""
        at = position(failure.seq) if failure.seq is not None else self.frontier.watermark
        if failure.seq is not None:
            self.undone.append(failure.seq)
        if self.cause is None or (self._cut is not None and at < self._cut):
            self.cause, self.too_many = failure, too_many
        self.state = "failed"
        self._end(now)
        if not self.ordered:
            self._cancel(now, 0.0)
        elif self._cut is None or at < self._cut:
            self._cut = at
            self._drop_from(at, now)

    def _end(self, now: float) -> None:
        if not self._ended:
            self._ended = True
            self.times.end_of_input = now

    def _cancel(self, now: float, timeout: float) -> None:
        self._cancelled = True
        due = now + timeout
        self._deadline = due if self._deadline is None else min(due, self._deadline)
        self._drop_from((0,), now)

    def _drop_from(self, at: Position, now: float) -> None:
        """Give up every block from `at` on, and recall what runs of it.

        A block lies on one side of a failed item: those with items on both sides were in hand with
        it, and are cut when their answer comes.
        """
        for stage in self.stages:
            dropped = stage.drop_from(at)
            for gate in stage.waiting:
                dropped += gate.drop_from(at)
            for ticket in [t for t in stage.parked if t.blocks[0].lo >= at]:
                stage.parked.remove(ticket)
                dropped += ticket.blocks
            for block in dropped:
                if block.hi <= at:
                    self._forward(stage, [block], now)
                else:
                    self._give_up(block)
        for ticket in self.tickets.values():
            if any(block.hi > at for block in ticket.blocks):
                self._recall(ticket)

    def _before_cut(self, blocks: list[Block]) -> list[Block]:
        """What of `blocks` is still wanted; the rest is given up."""
        cut = (0,) if self._cancelled else self._cut
        if cut is None:
            return blocks
        wanted = []
        for block in blocks:
            if block.lo < cut:
                wanted.append(block if block.hi <= cut else block.cut_at(cut))
            if wanted[-1:] != [block]:
                self._give_up(block)
        return wanted

    def _give_up(self, block: Block) -> None:
        self.fates.unread += block.weight - (0 if block.members is not None else sum(map(is_kept, block.values)))

    def _pump(self, now: float) -> None:
        """Start everything that may run."""
        raise NotImplementedError

    def _unhedge(self, ticket: Ticket, now: float) -> None:
        """`ticket` alone stands for its item from now on."""
        raise NotImplementedError

    def _recall(self, ticket: Ticket) -> None:
        if not ticket.recalled:
            ticket.recalled = True
            self._out.append((self._commands.recall, (ticket.slot, ticket.number)))
