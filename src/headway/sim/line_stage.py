"""A stage of a plain line: queue, re-sequencer, slots, meters; see `line`. Blocks are bare tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headway.core.gate import Gate
from headway.core.plan import BLOCK
from headway.core.stage import BLOCK_S, CREDIT_S, CREDITS, Stage
from headway.sim.service import Constant, Draw

LOOK = 64
"""How far the inbox looks for the place of what is put back."""

Block = tuple[int, int, float, float, float]
"""Rows [first, stop), when they were born, seconds that they waited in gates, when they came to the stage."""


class LineSlot:
    """``tickets`` in hand, of which the worker has not begun those in its ``queue``; the one that is ``running``."""

    __slots__ = ("mark", "number", "queue", "running", "tickets")

    def __init__(self, number: int) -> None:
        self.number, self.mark = number, 0.0
        self.tickets: list[LineTicket] = []
        self.queue: deque[LineTicket] = deque()
        self.running: LineTicket | None = None

    def __lt__(self, other: LineSlot) -> bool:
        """By number: the lowest idle one is given the next block."""
        return self.number < other.number


class LineTicket:
    """A dispatch. ``ends``: when each of its calls ends; ``cut``: it answers after so many (None: after all)."""

    __slots__ = ("blocks", "count", "cut", "ends", "recalled", "since", "slot", "started")

    def __init__(self, slot: LineSlot, blocks: list[Block], count: int, now: float) -> None:
        self.slot, self.blocks, self.count = slot, blocks, count
        self.since = self.started = now
        self.ends: Sequence[float] = ()
        self.cut: int | None = None
        self.recalled = False


class LineStage:
    """A stage of the line, in front of it a queue and perhaps a gate. Sizes and instruments are those of the engine's own.

    ``capacity``, ``credits`` and ``target`` are what they are there, at hand.
    """

    __slots__ = (
        "before", "behind", "busy_s", "calls", "capacity", "credits", "depth", "draw", "gate", "handover", "idle", "in_hand", "many", "meter",
        "most", "name", "overhead_s", "queue", "queued", "real", "seconds", "single", "slots", "target", "told", "touched",
    )  # fmt: skip

    def __init__(self, stage: Stage, draw: Draw | None) -> None:
        self.real, self.meter, self.name = stage, stage.meter, stage.spec.name
        self.draw = draw = draw or Constant(0.0)
        self.seconds = draw.seconds if isinstance(draw, Constant) else None
        # Calls that all last longer than a block should never share one, whatever was measured.
        self.single = self.seconds is not None and self.seconds > 1.01 * BLOCK_S
        self.most = stage.spec.queue or BLOCK
        self.slots = [LineSlot(slot.number) for slot in stage.slots]
        self.many = len(self.slots)
        self.idle = list(self.slots)
        self.queue: deque[Block] = deque()
        self.queued = self.in_hand = 0
        self.gate = LineGate(stage.gates[0]) if stage.gates else None
        self.before: LineStage | None = None
        self.behind: LineStage | None = None
        self.touched = True
        self.depth = self.told = 0
        self.calls: dict[float, int] = {}
        self.busy_s = self.overhead_s = self.handover = 0.0
        self.capacity, self.credits, self.target = stage.capacity, stage.credits, stage.target

    def credited(self) -> LineSlot | None:
        """A slot with a credit left, where none is idle and there are several."""
        best = min(self.slots, key=lambda slot: len(slot.tickets))
        return best if len(best.tickets) < CREDITS else None

    def take(self, count: int) -> list[Block]:
        """So many items from the front; blocks that touch and waited as long become one."""
        queue = self.queue
        self.queued -= count
        block = queue.popleft()
        if block[1] - block[0] == count:
            return [block]
        queue.appendleft(block)
        blocks: list[Block] = []
        while count and queue:
            lo, hi, born, waited, entered = queue.popleft()
            if hi - lo > count:
                queue.appendleft((lo + count, hi, born, waited, entered))
                hi = lo + count
            count -= hi - lo
            last = blocks[-1] if blocks else None
            if last is not None and last[1] == lo and last[3] == waited:
                blocks[-1] = (last[0], hi, last[2], waited, last[4])
            else:
                blocks.append((lo, hi, born, waited, entered))
        return blocks

    def put_back(self, blocks: list[Block]) -> None:
        """Return what was not begun, before what lies behind it."""
        queue = self.queue
        for block in reversed(blocks):
            at = 0
            while at < len(queue) and at < LOOK and queue[at][0] < block[0]:
                at += 1
            queue.insert(at, block)
            self.queued += block[1] - block[0]

    def note(self, now: float) -> None:
        """Note the depth of the queue, and why slots are idle."""
        idle, queued, meter = len(self.idle), self.queued, self.meter
        depth = queued + self.in_hand - self.many + idle
        if depth != self.depth:
            self.depth = depth
            meter.depth.set(depth, now)
        told = -idle if queued else idle
        if told != self.told:
            self.told = told
            meter.idle(idle, "blocked" if told < 0 else "starved", now)

    def count(self, seconds: float, calls: int) -> bool:
        """Count calls that took so long, as `StageMeter.block` does; whether the stage has another size now."""
        meter, real = self.meter, self.real
        self.busy_s += seconds
        if self.single and calls == 1:
            meter.timed += 1
            meter.items_in += 1
            self.calls[seconds] = self.calls.get(seconds, 0) + 1
            return False
        recent, busy = meter.recent_calls, meter.recent_busy
        if calls:
            meter.timed += calls
            if recent > 256:
                recent *= 0.97
                busy *= 0.97
            meter.recent_calls = recent = recent + calls
            meter.recent_busy = busy = busy + seconds
            each = seconds if calls == 1 else seconds / calls
            self.calls[each] = self.calls.get(each, 0) + 1
            meter.items_in += calls
        mean, target = busy / (recent or 1.0), self.target
        if meter.timed < 16 or (mean == 0.0 and target == BLOCK and real.one_credit):
            return False
        credits = self.credits
        if credits == 1 and mean * target >= CREDIT_S and (int(BLOCK_S / mean) or 1) == target:
            return False  # nor would `size_up` change it
        real.size_up()
        self.capacity, self.credits, self.target = real.capacity, real.credits, real.target
        return real.target != target or real.credits != credits


class LineGate:
    """A re-sequencer."""

    def __init__(self, gate: Gate) -> None:
        self.real = gate
        self.held: dict[int, tuple[Block, float]] = {}
        self.awaited = 0

    def push(self, block: Block, now: float) -> list[Block]:
        """Take `block`; return the blocks that may go on, in order."""
        gate, held = self.real, self.held
        if block[0] != self.awaited:
            held[block[0]] = block, now
            gate.held_items += block[1] - block[0]
            gate.peak_items = max(gate.peak_items, gate.held_items)
            gate.since = now if gate.since is None else gate.since
            return []
        run = [block]
        self.awaited = block[1]
        while held and (found := held.pop(self.awaited, None)) is not None:
            (lo, hi, born, waited, entered), since = found
            gate.held_items -= hi - lo
            run.append((lo, hi, born, waited + (now - since), entered))
            self.awaited = hi
        if gate.since is not None:
            gate.blocked_s += now - gate.since
            gate.since = now if held else None
        return run


def split(blocks: list[Block], count: int) -> tuple[list[Block], list[Block]]:
    """The first `count` items, and the rest."""
    head: list[Block] = []
    rest: list[Block] = []
    for lo, hi, *more in blocks:
        at = min(hi, lo + count)
        count -= at - lo
        if lo < at:
            head.append((lo, at, *more))  # type: ignore[arg-type]
        if at < hi:
            rest.append((at, hi, *more))  # type: ignore[arg-type]
    return head, rest
