"""One running stage: its inbox, its slots, and how much work may be handed out at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headway.core.batch import Batcher
from headway.core.block import Block, Position
from headway.core.gate import Gate
from headway.core.meter import StageMeter
from headway.core.plan import BLOCK, LARGE_QUEUE, SMALL_QUEUE, BatchPlan, GatePlan, StagePlan
from headway.core.spec import UnbatchSpec
from headway.core.ticket import Ticket

BLOCK_S = 0.005
"""A block is cut so that its calls take about this long in all."""
CREDIT_S = 0.001
"""A slot gets one block at a time from here up, and up to CREDITS below."""
CREDITS = 4


class Slot:
    """A place where a call can run. ``tickets`` are in hand, the first one running.

    ``mark``: until when the slot's time has been counted.
    """

    __slots__ = ("mark", "number", "stage", "tickets")

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage, self.number = stage, number
        self.tickets: deque[Ticket] = deque()
        self.mark = 0.0


class Stage:
    """The inbox in front of a stage and the slots behind it."""

    def __init__(
        self, plan: StagePlan, index: int, measure: Callable[[Sequence[Any]], int], *, shows_kept: bool, now: float
    ) -> None:
        self.plan, self.spec, self.index = plan, plan.spec, index
        self.on_error, self.keeps_total, self.shows_kept = plan.on_error, plan.keeps_total, shows_kept
        self.steps: list[Gate | Batcher | UnbatchSpec] = [
            Gate() if isinstance(step, GatePlan) else Batcher(step, measure) if isinstance(step, BatchPlan) else step
            for step in plan.intake
        ]
        self.inbox: deque[Block] = deque()
        self.queued = self.queued_bytes = self.in_hand = self.expected = self.max_depth = 0
        self.slots = [Slot(self, n) for n in range(plan.spec.workers)]
        self.parked: list[Ticket] = []
        self.busy_slots = 0
        self.gates = [step for step in self.steps if isinstance(step, Gate)]
        self.batchers = [step for step in self.steps if isinstance(step, Batcher)]
        self.waiting: list[Gate | Batcher] = [step for step in self.steps if not isinstance(step, UnbatchSpec)]
        self.meter = StageMeter(now, expands=plan.spec.kind == "flat_map")
        self.size_up()

    @property
    def runnable(self) -> int:
        """Items that a free slot could take now: queued, or in a worker's hands and not started."""
        return self.queued + (max(0, self.in_hand - self.busy_slots) if self.in_hand else 0)

    def size_up(self) -> None:
        """Set the sizes that follow from the service time lately measured.

        ``target``: items that take about BLOCK_S, 1 until 16 calls were measured. ``capacity``: most
        runnable items, what the user set or else enough for four blocks a slot. ``credits``: blocks
        that a slot may have in hand; one where a generator may pause or a write may fail, since
        nothing behind it may run then.
        """
        mean, slots = self.meter.mean_service, len(self.slots)
        self.target = 1
        if mean is not None:
            self.target = max(1, min(BLOCK, int(BLOCK_S / mean))) if mean > 0 else BLOCK
        self.capacity = self.spec.queue or max(SMALL_QUEUE, 2 * slots, min(LARGE_QUEUE, 4 * self.target * slots))
        single = mean is None or mean * self.target >= CREDIT_S or self.spec.kind in ("flat_map", "sink", "consume")
        self.credits = 1 if single else CREDITS

    def block_size(self, room: int) -> int:
        """Items for the next dispatch: never more than leaves a slot idle, or than `room`, or than the queue."""
        share = -(-self.queued // len(self.slots))
        return max(1, min(self.target, share, room, self.spec.queue or BLOCK))

    def free_slot(self) -> Slot | None:
        """A slot that may be given a block: an idle one first, else one with a credit left."""
        best = min(self.slots, key=lambda slot: len(slot.tickets)) if len(self.slots) > 1 else self.slots[0]
        return best if len(best.tickets) < self.credits else None

    def push(self, block: Block, now: float) -> None:
        """Queue a block that has live values."""
        block.entered = now
        self.inbox.append(block)
        self._count(block, 1)
        self.max_depth = max(self.max_depth, self.queued)

    def put_back(self, blocks: list[Block]) -> None:
        """Return blocks that were handed out and not started to the front, in order."""
        for block in reversed(blocks):
            self.inbox.appendleft(block)
            self._count(block, 1)

    def _count(self, block: Block, sign: int) -> None:
        self.queued += sign * len(block.values)
        self.queued_bytes += sign * block.nbytes

    def take(self, count: int) -> list[Block]:
        """Up to `count` items from the front of the inbox, in blocks; an item that is tried again comes alone."""
        blocks: list[Block] = []
        while count and self.inbox:
            block = self.inbox[0]
            if block.attempt > 1 and blocks:
                break
            block = self.inbox.popleft() if len(block.values) <= count else block.cut(count)
            count -= len(block.values)
            self._count(block, -1)
            if not (blocks and blocks[-1].joins(block)):
                blocks.append(block)
            if block.attempt > 1:
                break
        return blocks

    def take_at(self, at: Position) -> list[Block]:
        """The one item at position `at`, if it is queued here."""
        for number, block in enumerate(self.inbox):
            if block.covers(at):
                if len(block.values) == 1:
                    del self.inbox[number]
                one = block.cut(1) if len(block.values) > 1 else block
                self._count(one, -1)
                return [one]
        return []

    def tail(self) -> Block | None:
        """The last block that is queued or in hand, where the stage keeps order: tombstones join it."""
        if not self.keeps_total:
            return None
        if self.inbox:
            return self.inbox[-1]
        if self.slots[0].tickets:
            return self.slots[0].tickets[-1].blocks[-1]
        return self.parked[-1].blocks[-1] if self.parked else None

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return the queued blocks from the position `at` on."""
        dropped = [block for block in self.inbox if block.lo >= at]
        for block in dropped:
            self._count(block, -1)
        self.inbox = deque(block for block in self.inbox if block.lo < at)
        return dropped

    @property
    def empty(self) -> bool:
        waits = any(not step.empty for step in self.waiting)
        return not (self.inbox or self.in_hand or self.parked or waits)
