"""The total-order gate: the one place where blocks wait for their predecessors."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.block import Block, Position, Span
from headway.errors import InternalError


class Gate:
    """A re-sequencer: blocks go in as they come and come out as one gapless run.

    Its intake never refuses and never waits. It is bounded because at most W rows are admitted
    and not yet emitted; the one that it waits for is not among those held, so held <= W - 1.
    """

    def __init__(self, passed: Sequence[Span] = ()) -> None:
        """`passed`: what has gone by before the gate was placed, intervals that do not touch, in order."""
        self._held: dict[Position, tuple[Block, float]] = {}
        self._passed = dict(passed)
        self.awaited: Position = self._skip((0,))
        self.held_items = self.held_bytes = self.peak_items = 0
        self.blocked_s = 0.0
        self.since: float | None = None

    def push(self, block: Block, now: float) -> list[Block]:
        """Take `block`; return the blocks that may go on, in order."""
        if block.lo < self.awaited or block.lo in self._held:
            raise InternalError(f"position {block.lo} came to a gate twice (waiting for {self.awaited})")
        if block.lo != self.awaited:
            self._held[block.lo] = (block, now)
            self.held_items += block.weight
            self.held_bytes += block.nbytes
            self.peak_items = max(self.peak_items, self.held_items)
            self.since = now if self.since is None else self.since
            return []
        run = [block]
        self.awaited = self._skip(block.hi)
        while (found := self._held.pop(self.awaited, None)) is not None:
            held, since = found
            self.held_items -= held.weight
            self.held_bytes -= held.nbytes
            held.waited += now - since
            run.append(held)
            self.awaited = self._skip(held.hi)
        if self.since is not None:
            self.blocked_s += now - self.since
            self.since = now if self._held else None
        return run

    def _skip(self, at: Position) -> Position:
        return self._passed.pop(at, at)

    def held(self) -> list[Block]:
        """What waits here."""
        return [block for block, _ in self._held.values()]

    @property
    def empty(self) -> bool:
        return not self._held

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return every held block from the position `at` on."""
        dropped = [self._held.pop(lo)[0] for lo in sorted(self._held) if lo >= at]
        self.held_items -= sum(block.weight for block in dropped)
        self.held_bytes -= sum(block.nbytes for block in dropped)
        return dropped
