"""The queue in front of a stage whose items any slot may take: first in, first out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from headway.core.block import Block, Position


class Inbox:
    """Blocks with live values, in order of arrival; `lanes.Lanes` has the same methods for items with keys.

    ``queued`` items and ``nbytes`` bytes lie here, of which ``free`` items could be taken now.
    """

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self.queued = self.free = self.nbytes = 0

    def push(self, block: Block) -> None:
        """Queue a block that has live values."""
        self._blocks.append(block)
        self._count(block, 1)

    def put_back(self, blocks: list[Block]) -> None:
        """Return blocks that were handed out, in order, before everything that lies behind them."""
        waiting = self._blocks
        for block in reversed(blocks):
            at = 0
            while at < len(waiting) and at < 64 and waiting[at].lo < block.lo:
                at += 1
            waiting.insert(at, block)
            self._count(block, 1)

    def _count(self, block: Block, sign: int) -> None:
        self.free = self.queued = self.queued + sign * len(block.values)
        self.nbytes += sign * block.nbytes

    def take(self, count: int, *, alone: bool = False) -> list[Block]:
        """Up to `count` items from the front, in blocks; an item that is tried again comes alone. `alone`: one block."""
        blocks: list[Block] = []
        while count and self._blocks:
            block = self._blocks[0]
            if blocks and (alone or block.attempt > 1):
                break
            block = self._blocks.popleft() if len(block.values) <= count else block.cut(count)
            count -= len(block.values)
            self._count(block, -1)
            if not (blocks and blocks[-1].joins(block)):
                blocks.append(block)
            if block.attempt > 1:
                break
        return blocks

    def take_at(self, at: Position) -> list[Block]:
        """The one item at position `at`, if it could be taken now."""
        for number, block in enumerate(self._blocks):
            if block.covers(at):  # as its first item: nothing before the awaited position is left
                if len(block.values) == 1:
                    del self._blocks[number]
                one = block.cut(1) if len(block.values) > 1 else block
                self._count(one, -1)
                return [one]
        return []

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return what is queued from the position `at` on, and tombstones cut off before it."""
        dropped = []
        for block in list(self._blocks):
            if block.hi > at:
                self._blocks.remove(block)
                self._count(block, -1)
                if block.lo < at:
                    head = block.cut_at(at)
                    if head.values:
                        self.push(head)
                    else:
                        dropped.append(head)
                dropped.append(block)
        return dropped

    def head(self) -> Block | None:
        """What would be taken next."""
        return self._blocks[0] if self._blocks else None

    def tail(self) -> Block | None:
        """What would be taken last."""
        return self._blocks[-1] if self._blocks else None

    def all(self) -> Iterable[Block]:
        """Every block that lies here."""
        return self._blocks
