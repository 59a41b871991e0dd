"""One running stage: its inbox, its slots, and how much work may be handed out at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from headway.core.batch import Batcher
from headway.core.block import Block, Position, Tag
from headway.core.gate import Gate
from headway.core.inbox import Inbox
from headway.core.lanes import Keys, Lane, Lanes
from headway.core.meter import StageMeter
from headway.core.plan import BLOCK, LARGE_QUEUE, SMALL_QUEUE, BatchPlan, GatePlan, StagePlan
from headway.core.policy import Bucket
from headway.core.spec import UnbatchSpec
from headway.core.ticket import Ticket

BLOCK_S = 0.005
"""A block is cut so that its calls take about this long in all."""
CREDIT_S = 0.001
"""A slot gets one block at a time from here up, and up to CREDITS below."""
CREDITS = 4
NEVER = float("-inf")


CHEAP_S = 0.0002
"""Below this service time items of several keys share a lane."""


class Slot:
    """A place where a call can run. ``tickets`` are in hand, the first one running.

    ``mark``: until when the slot's time has been counted. ``halted``: it gets nothing before what it has
    in hand came back. ``epoch``: how often it was. ``leaving``: it is to end when its hands are empty.
    """

    __slots__ = ("epoch", "halted", "leaving", "mark", "number", "stage", "tickets")

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage, self.number = stage, number
        self.tickets: deque[Ticket] = deque()
        self.mark = 0.0
        self.epoch = 0
        self.halted = self.leaving = False


class Stage:
    """The inbox in front of a stage and the slots behind it.

    ``hold_until`` and ``throttled_until``: before that nothing is started. ``backoff`` has the items that
    wait for another attempt, by due time, and the lanes that they hold. ``blocked_keys``: keys of which
    nothing more is run. ``touched``: its queue or hands have changed since it was last looked at.
    """

    def __init__(
        self, plan: StagePlan, index: int, measure: Callable[[Sequence[Any]], int], *, shows_kept: bool, now: float
    ) -> None:
        self.plan, self.spec, self.index = plan, plan.spec, index
        self.on_error, self.keeps_total, self.shows_kept = plan.on_error, plan.keeps_total, shows_kept
        self.steps: list[Gate | Batcher | UnbatchSpec] = [
            Gate() if isinstance(step, GatePlan) else Batcher(step, measure) if isinstance(step, BatchPlan) else step
            for step in plan.intake
        ]
        self.keys: Keys | None = None
        self.key_of: dict[Tag, Any] = {}
        self.blocked_keys: set[Any] = set()
        self.inbox: Inbox | Lanes = Lanes(self.key_of, lambda: len(self.slots)) if plan.lanes else Inbox()
        self.in_hand = self.expected = 0
        self.slots = [Slot(self, n) for n in range(plan.spec.workers)]
        self.leaving: list[Slot] = []
        self.numbers = plan.spec.workers
        self.parked: list[Ticket] = []
        self.backoff: list[tuple[float, Position, Block, list[Lane]]] = []
        self.bucket: Bucket | None = None
        self.hold_until = self.throttled_until = NEVER
        self.busy_slots = self.zombies = 0
        self.touched = True
        self.one_credit = plan.spec.kind in ("flat_map", "sink", "consume")
        # A death may cost one call, and the outcomes of these are not published before the last.
        several = plan.spec.kind in ("flat_map", "map_batches")
        self.one_call = several and plan.spec.on == "process" and not plan.spec.idempotent
        self._sized = (0, 0)
        self.meter = StageMeter(now, expands=plan.spec.kind == "flat_map")
        self.sort_steps()
        self.size_up()

    def sort_steps(self) -> None:
        """Take note of what stands in front of the inbox."""
        self.gates = [step for step in self.steps if isinstance(step, Gate)]
        self.batchers = [step for step in self.steps if isinstance(step, Batcher)]
        self.waiting: list[Gate | Batcher] = [step for step in self.steps if not isinstance(step, UnbatchSpec)]
        # Where something stands in the way, or items wait for their key, what is expected may have to be held.
        self.may_hold = bool(self.steps) or isinstance(self.inbox, Lanes)

    @property
    def waits_for_time(self) -> bool:
        """Whether time alone may let it start something."""
        return self.bucket is not None or self.hold_until > NEVER

    @property
    def runnable(self) -> int:
        """Items that a free slot could take now: queued, or in a worker's hands and not started."""
        waiting = self.in_hand - self.busy_slots
        if waiting <= 0:
            return self.inbox.free
        return self.inbox.free + max(0, waiting - len(self.leaving))

    def size_up(self) -> None:
        """Set the sizes that follow from the service time lately measured.

        ``target``: items that take about BLOCK_S, 1 until 16 calls were measured. ``capacity``: most
        runnable items, what the user set or else enough for four blocks a slot. ``credits``: blocks
        that a slot may have in hand; one where a generator may pause or a write may fail, since
        nothing behind it may run then.
        """
        mean, slots = self.meter.mean_service, len(self.slots)
        target = 1
        if mean is not None and mean < BLOCK_S:
            target = min(BLOCK, int(BLOCK_S / mean)) if mean > 0 else BLOCK
        single = self.one_credit or mean is None or mean * target >= CREDIT_S
        self.credits = 1 if single else CREDITS
        if isinstance(self.inbox, Lanes) and mean is not None:
            self.inbox.cheap = mean < CHEAP_S
        if (target, slots) == self._sized:
            return
        self._sized = target, slots
        self.target = 1 if self.one_call else target
        self.capacity = self.spec.queue or max(SMALL_QUEUE, 2 * slots, min(LARGE_QUEUE, 4 * target * slots))

    def block_size(self, room: int) -> int:
        """Items for the next dispatch: never more than leaves a slot idle, or than `room`, or than the queue."""
        share = -(-self.inbox.free // len(self.slots))
        return max(1, min(self.target, share, room, self.spec.queue or BLOCK))

    def free_slot(self) -> Slot | None:
        """A slot that may be given a block: an idle one first, else one with a credit left."""
        if self.credits == 1 or len(self.slots) == 1:
            for slot in self.slots:
                if len(slot.tickets) < self.credits and not slot.halted:
                    return slot
            return None
        best = min(self.slots, key=lambda slot: len(slot.tickets) + CREDITS * slot.halted)
        return best if len(best.tickets) < self.credits and not best.halted else None

    def push(self, block: Block, now: float) -> None:
        """Queue a block that has live values."""
        block.entered, self.touched = now, True
        self.inbox.push(block)

    def wait_for(self, block: Block, due: float) -> None:
        """Keep the one item of `block`, and its lane, until another attempt is due."""
        lanes = self.inbox.hold([block]) if isinstance(self.inbox, Lanes) else []
        heappush(self.backoff, (due, block.lo, block, lanes))

    def take_due(self, now: float) -> None:
        """Put the items whose attempt is due in front of the others, smallest tag first."""
        while self.backoff and self.backoff[0][0] <= now:
            _, _, block, lanes = heappop(self.backoff)
            self.touched = True
            self.inbox.put_back([block])
            if isinstance(self.inbox, Lanes):
                self.inbox.release(lanes)

    def tail(self) -> Block | None:
        """The last block that is queued or in hand, where the stage keeps order: tombstones join it."""
        if not self.keeps_total or isinstance(self.inbox, Lanes):
            return None
        # What is in hand can lie behind what is queued, where a part of it came back for another attempt.
        last = [block for block in (self.inbox.tail(), self.in_hand_tail()) if block is not None]
        return max(last, key=lambda block: block.hi, default=None)

    def in_hand_tail(self) -> Block | None:
        """The last block in hand, where the stage keeps order."""
        if not self.keeps_total or isinstance(self.inbox, Lanes):
            return None
        if self.slots[0].tickets:
            return self.slots[0].tickets[-1].blocks[-1]
        return self.parked[-1].blocks[-1] if self.parked else None

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return what waits here from the position `at` on, and tombstones cut off before it."""
        self.touched = True
        dropped = self.inbox.drop_from(at)
        dropped += [entry[2] for entry in self.backoff if entry[1] >= at]
        self.backoff = sorted(entry for entry in self.backoff if entry[1] < at)
        return dropped

    def oldest(self) -> float | None:
        """When the oldest item came in that is queued, or in hand and not started."""
        came = [block.entered for block in self.inbox.all()]
        came += [t.blocks[-1].entered for slot in self.slots for at, t in enumerate(slot.tickets) if at or t.count > 1]
        return min(came, default=None)

    @property
    def empty(self) -> bool:
        waits = any(not step.empty for step in self.waiting)
        return not (self.inbox.queued or self.in_hand or self.parked or self.backoff or waits)
