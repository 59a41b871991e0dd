"""Per-key order: one lane for each live key, and whichever free lane has the smallest tag goes first.

Two items of a key never run at once, and those of different keys never wait for each other, however
many workers there are. Fixed hashing (a key always to the same worker) gives the same order at 0.64 to
0.84 of the possible rate; first in, first out among the keys at 0.83 to 0.97; smallest tag first at 0.99.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from headway.core.block import Block, Position, Span, Tag, position

SHARED = 64
"""Lanes for each slot that cheap items share, so that a block is cut into pieces, not into items."""


class Keys:
    """The key of each item: computed where it is first named, and kept where a later stage uses it again."""

    def __init__(self, key: Any, *, carried: bool) -> None:
        self._of: Callable[[Any], Any] = named(key) if isinstance(key, str) else key
        self._rows: dict[int, dict[Tag, Any]] | None = {} if carried else None

    def of(self, tag: Tag, value: Any) -> Any:
        """The key of an item; children have that of their parent. Raises what the key function raises."""
        if self._rows is None:
            key = self._of(value)
            hash(key)
            return key
        known = self._rows.setdefault(tag if isinstance(tag, int) else tag[0], {})
        at: Tag = tag
        while at not in known and not isinstance(at, int):
            at = at[:-1] if len(at) > 2 else at[0]
        if at not in known:
            key = self._of(value)
            hash(key)
            known[tag] = key
            return key
        return known[at]

    def forget(self, first: int, stop: int) -> None:
        """The rows [first, stop) have left the run."""
        if self._rows is not None:
            for row in range(first, stop):
                self._rows.pop(row, None)


def named(name: str) -> Callable[[Any], Any]:
    """The function that takes the item, column or attribute `name` of a value."""

    def key(value: Any) -> Any:
        try:
            return value[name]
        except (TypeError, LookupError):
            if hasattr(value, name):
                return getattr(value, name)
            raise KeyError(f"there is no item or attribute {name!r}") from None

    return key


class Lane:
    """What waits of one key, or of several cheap ones. ``busy``: how many tickets or pauses hold it."""

    __slots__ = ("blocks", "busy", "queued")

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.busy = self.queued = 0


class Lanes:
    """The queue in front of a keyed stage, with the methods of `inbox.Inbox`.

    ``key_of`` has the key of every item that is in the stage, queued or in hand. A lane is let go with
    `release` only after its outputs have been accepted behind the stage, so what comes there is in the
    order of the key too.
    """

    def __init__(self, key_of: dict[Tag, Any], slots: Callable[[], int]) -> None:
        self.key_of, self._slots = key_of, slots
        self.cheap = False
        self._lanes: dict[Any, Lane] = {}
        self._live: dict[Any, int] = {}
        self._shared: list[Lane] = []
        self._heap: list[tuple[Position, int, Lane]] = []
        self._turn = 0
        self.queued = self.nbytes = self.free = 0

    def _lane(self, key: Any) -> Lane:
        """The lane of a live key. Cheap items of a new key share one of a fixed number of lanes, in turn."""
        lane = self._lanes.get(key)
        if lane is None:
            if not self.cheap:
                lane = Lane()
            else:
                self._turn += 1
                while len(self._shared) < SHARED * self._slots():
                    self._shared.append(Lane())
                lane = self._shared[self._turn % len(self._shared)]
            self._lanes[key] = lane
        return lane

    def lane_of(self, block: Block) -> Lane:
        """The lane that all items of `block` are in."""
        return self._lanes[self.key_of[block.tags[0]]]

    def push(self, block: Block) -> None:
        """Queue a block that has live values, each in the lane of its key."""
        live = self._live
        for tag in block.tags:
            key = self.key_of[tag]
            live[key] = live.get(key, 0) + 1
        for piece in self._pieces(block):
            lane = self.lane_of(piece)
            lane.blocks.append(piece)
            self._count(piece, lane, 1)
            if not lane.busy and len(lane.blocks) == 1:
                self._offer(lane)

    def _pieces(self, block: Block) -> list[Block]:
        """`block`, which covers one interval, cut by lanes. A tombstone goes with the value in front of it."""
        groups: dict[Lane, list[int]] = {}
        for at, tag in enumerate(block.tags):
            groups.setdefault(self._lane(self.key_of[tag]), []).append(at)
        if len(groups) == 1:
            return [block]
        bounds = [block.lo, *map(position, block.tags[1:]), block.hi]
        each, pieces = block.nbytes // len(block.values), []
        for mine in groups.values():
            spans: list[Span] = []
            for at in mine:
                touches = spans and spans[-1][1] == bounds[at]
                spans[-1:] = (
                    [(spans[-1][0], bounds[at + 1])] if touches else [*spans[-1:], (bounds[at], bounds[at + 1])]
                )
            tags = [block.tags[at] for at in mine]
            piece = block.like(block.lo, block.hi, tags, [block.values[at] for at in mine], each * len(mine))
            piece.cover(spans)
            if block.kept:
                piece.kept = {at: failure for at, failure in block.kept.items() if piece.covers(at)} or None
            pieces.append(piece)
        pieces[0].nbytes += block.nbytes - each * len(block.values)
        return pieces

    def put_back(self, blocks: list[Block]) -> None:
        """Return blocks that were handed out, in order, to the front of their lanes."""
        for piece in reversed([piece for block in blocks for piece in self._pieces(block)]):
            lane = self.lane_of(piece)
            lane.blocks.appendleft(piece)
            self._count(piece, lane, 1)
            if not lane.busy:
                self._offer(lane)

    def adopt(self, blocks: Iterable[Block]) -> list[Lane]:
        """Take note of items that are in hand already, of whichever keys; their lanes are busy from now on."""
        lanes: dict[Lane, None] = {}
        for tag in (tag for block in blocks for tag in block.tags):
            key = self.key_of[tag]
            self._live[key] = self._live.get(key, 0) + 1
            lanes[self._lane(key)] = None
        for lane in lanes:
            lane.busy += 1
        return list(lanes)

    def hold(self, blocks: Iterable[Block]) -> list[Lane]:
        """Keep the lanes of `blocks` from being taken, once more each; `release` is to follow."""
        lanes = list(dict.fromkeys(map(self.lane_of, blocks)))
        for lane in lanes:
            if not lane.busy:
                self.free -= lane.queued
            lane.busy += 1
        return lanes

    def release(self, lanes: Iterable[Lane]) -> None:
        """Let go of lanes that were taken or held."""
        for lane in lanes:
            lane.busy -= 1
            if not lane.busy:
                self.free += lane.queued
                if lane.blocks:
                    self._offer(lane)

    def ended(self, tags: Iterable[Tag]) -> None:
        """These items have left the stage; a key without any more is forgotten."""
        for tag in tags:
            key = self.key_of.pop(tag)
            left = self._live[key] - 1
            if left:
                self._live[key] = left
            else:
                del self._live[key], self._lanes[key]

    def _offer(self, lane: Lane) -> None:
        self._turn += 1
        heappush(self._heap, (lane.blocks[0].lo, self._turn, lane))

    def _count(self, block: Block, lane: Lane, sign: int) -> None:
        items = sign * len(block.values)
        lane.queued += items
        self.queued += items
        self.nbytes += sign * block.nbytes
        if not lane.busy:
            self.free += items

    def _first(self) -> Lane | None:
        """The free lane whose oldest item has the smallest tag."""
        while self._heap:
            at, _, lane = self._heap[0]
            if not lane.busy and lane.blocks and lane.blocks[0].lo == at:
                return lane
            heappop(self._heap)
        return None

    def take(self, count: int, *, alone: bool = False) -> list[Block]:
        """Up to `count` items, lane by lane, which are busy from then on; an item that is tried again comes alone."""
        blocks: list[Block] = []
        while count and (lane := self._first()) is not None:
            if blocks and (alone or lane.blocks[0].attempt > 1):
                break
            heappop(self._heap)
            while count and lane.blocks and not (blocks and (alone or lane.blocks[0].attempt > 1)):
                block = lane.blocks[0]
                block = lane.blocks.popleft() if len(block.values) <= count else block.cut(count)
                count -= len(block.values)
                self._count(block, lane, -1)
                blocks.append(block)
                if block.attempt > 1:
                    count = 0
            lane.busy += 1
            self.free -= lane.queued
        return blocks

    def take_at(self, at: Position) -> list[Block]:
        """The one item at position `at`, if it could be taken now."""
        for lane in dict.fromkeys(self._lanes.values()):
            if lane.busy:
                continue
            for number, block in enumerate(lane.blocks):
                if block.covers(at):
                    if len(block.values) == 1:
                        del lane.blocks[number]
                    one = block.cut(1) if len(block.values) > 1 else block
                    self._count(one, lane, -1)
                    lane.busy += 1
                    self.free -= lane.queued
                    return [one]
        return []

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return what is queued from the position `at` on, and tombstones cut off before it."""
        dropped: list[Block] = []
        for lane in dict.fromkeys(self._lanes.values()):
            for block in list(lane.blocks):
                if block.hi <= at:
                    continue
                lane.blocks.remove(block)
                self._count(block, lane, -1)
                if block.lo < at:
                    head = block.cut_at(at)
                    if head.values:
                        lane.blocks.append(head)
                        self._count(head, lane, 1)
                    else:
                        dropped.append(head)
                dropped.append(block)
        return dropped

    def head(self) -> Block | None:
        """What would be taken next."""
        lane = self._first()
        return lane.blocks[0] if lane is not None else None

    def all(self) -> Iterator[Block]:
        """Every block that lies here."""
        for lane in dict.fromkeys(self._lanes.values()):
            yield from lane.blocks
