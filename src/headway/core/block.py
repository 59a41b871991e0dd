"""Tags, blocks, and what becomes of an item. Knows nothing of stages, queues or workers.

A *tag* names an item: the number that the source gave to its row, or, for the c-th child of an
expansion, the parent's tag with c behind it. In order, tags fill a line without gaps: item 5
covers the interval from *position* (5,) to (6,); its children 0, 1, 2 cover (5,) to (5, 1), to
(5, 2), and the last one with the closing of the expansion up to (6,). Since (5,), (5, 0) and
(5, 0, 0) are the same point, a position carries no trailing zeros, and positions compare as tuples.

A *block* covers such an interval. What it covers and does not hold as a value is a tombstone
(filtered, failed, expanded into nothing), so a tombstone costs no memory and keeps its place.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headway.errors import Failure, Kept

Tag = int | tuple[int, ...]
Position = tuple[int, ...]
Span = tuple[Position, Position]


class Drop(enum.Enum):
    """Type of ``DROP``."""

    DROP = "DROP"


DROP: Final = Drop.DROP
"""What a stage returns to filter its item out. ``None`` is an ordinary value."""


def is_kept(value: Any) -> bool:
    """Whether `value` is a failure that the engine left at its place (``on_error="keep"``)."""
    return type(value) is Kept


def position(tag: Tag) -> Position:
    """Where the item begins on the line of positions."""
    if type(tag) is int:
        return (tag,)
    end = len(tag)  # type: ignore[arg-type]
    while end > 1 and not tag[end - 1]:  # type: ignore[index]
        end -= 1
    return tag[:end]  # type: ignore[index]


def after(tag: Tag) -> Position:
    """Where the item ends: the position of its next sibling."""
    if type(tag) is int:
        return (tag + 1,)
    return (*tag[:-1], tag[-1] + 1)  # type: ignore[index]


def child(tag: Tag, number: int) -> tuple[int, ...]:
    """Tag of the `number`-th child, from 0."""
    return (tag, number) if type(tag) is int else (*tag, number)  # type: ignore[misc]


@dataclass(slots=True)
class Members:
    """What a batch carries: the tags of its members, in order.

    ``births`` are pairs (time of birth, number of members born then). ``weight`` is the number of
    members that count, ``children`` how many of those came out of expansions: a failure kept in its
    place is in the list and has had its fate.
    """

    tags: Sequence[Tag]
    births: list[tuple[float, int]]
    weight: int
    children: int


class Block:
    """A carrier of consecutive items: the interval [lo, hi), its live values and their tags.

    ``tags`` and ``values`` run in parallel and rise; ``tags`` is a range while nothing is missing.
    ``kept`` holds failures that stay visible at their place. ``spans`` is set only where it was put
    together from pieces that do not touch: a batch (then lo and hi are those of the first piece), or
    items of one lane (then those of the first and the last). ``members`` is set where the one value is
    a batch. ``waited`` is the time spent in gates, ``attempt`` the number of the call that comes
    next, ``deaths`` the workers that died of it, ``paused`` the seconds for which it asked to wait.
    """

    __slots__ = (
        "attempt", "born", "deaths", "entered", "hi", "kept", "lo", "members", "nbytes", "paused", "spans", "tags",
        "values", "waited",
    )  # fmt: skip

    def __init__(
        self, lo: Position, hi: Position, tags: Sequence[Tag], values: list[Any], nbytes: int = 0, born: float = 0.0
    ) -> None:
        self.lo, self.hi, self.tags, self.values = lo, hi, tags, values
        self.nbytes, self.born, self.entered, self.waited = nbytes, born, born, 0.0
        self.attempt, self.deaths, self.paused = 1, 0, 0.0
        self.kept: dict[Position, Failure] | None = None
        self.members: Members | None = None
        self.spans: list[Span] | None = None

    @property
    def weight(self) -> int:
        """How many items the block stands for in the ledger."""
        return self.members.weight if self.members is not None else len(self.values)

    @property
    def children(self) -> int:
        """How many of the live items came out of expansions."""
        if self.members is not None:
            return self.members.children
        if isinstance(self.tags, range):
            return 0
        return sum(type(t) is tuple and not is_kept(v) for t, v in zip(self.tags, self.values, strict=True))

    def covers(self, at: Position) -> bool:
        """Whether the position `at` lies in the block."""
        return any(lo <= at < hi for lo, hi in self.spans or ((self.lo, self.hi),))

    def like(self, lo: Position, hi: Position, tags: Sequence[Tag], values: list[Any], nbytes: int) -> Block:
        """A block of the same birth and history with another content."""
        block = Block(lo, hi, tags, values, nbytes, self.born)
        block.entered, block.waited, block.attempt = self.entered, self.waited, self.attempt
        block.deaths, block.paused = self.deaths, self.paused
        return block

    def cut(self, count: int) -> Block:
        """Take the first `count` values off as a block of their own; tombstones behind them go along.

        The rest stays here. Needs 0 < count < len(values).
        """
        return self.cut_at(position(self.tags[count]))

    def cut_at(self, at: Position) -> Block:
        """Take what lies before the position `at` off as a block of its own. Bytes are shared out by number."""
        count, total = bisect_left(self.tags, at, key=position), len(self.values)
        nbytes = self.nbytes * count // total if total else 0
        head = self.like(self.lo, at, self.tags[:count], self.values[:count], nbytes)
        self.tags, self.values = self.tags[count:], self.values[count:]
        self.nbytes -= nbytes
        self.leave(head, at)
        return head

    def leave(self, head: Block, at: Position) -> None:
        """Leave what it covers before the position `at` to `head`, with the failures kept there."""
        self.lo = at
        self.share(head)
        if self.spans is not None and self.members is None:
            head.cover([(lo, min(hi, at)) for lo, hi in self.spans if lo < at])
            self.cover([(max(lo, at), hi) for lo, hi in self.spans if hi > at])

    def cover(self, spans: list[Span]) -> None:
        """Cover these pieces of the line, in order."""
        self.lo, self.hi = spans[0][0], spans[-1][1]
        self.spans = spans if len(spans) > 1 else None

    def parts(self) -> list[Block]:
        """The block cut into pieces that cover an interval each."""
        parts: list[Block] = []
        while self.spans is not None and self.members is None:
            parts.append(self.cut_at(self.spans[0][1]))
        return [*parts, self]

    def share(self, head: Block) -> None:
        """Give `head`, which lies before this block, what belongs before its end."""
        if self.kept:
            kept = self.kept
            head.kept = {at: failure for at, failure in kept.items() if at < head.hi} or None
            self.kept = {at: failure for at, failure in kept.items() if at >= head.hi} or None

    def joins(self, behind: Block) -> bool:
        """Take the block that follows into this one, if no value is missing between and within them and both waited as long."""
        if not (isinstance(self.tags, range) and isinstance(behind.tags, range) and self.hi == behind.lo):
            return False
        if self.tags.stop != behind.tags.start or self.waited != behind.waited:
            return False
        self.tags, self.values = range(self.tags.start, behind.tags.stop), self.values + behind.values
        self.absorb(behind)
        return True

    def absorb(self, behind: Block) -> None:
        """Extend over the block behind, whose values are taken care of."""
        self.hi = behind.hi
        self.nbytes += behind.nbytes
        if behind.kept:
            self.kept = {**(self.kept or {}), **behind.kept}

    def show_kept(self) -> None:
        """Put the kept failures among the values, each at its place."""
        if not self.kept:
            return
        pairs = [(position(tag), tag, value) for tag, value in zip(self.tags, self.values, strict=True)]
        pairs += [(at, failure.seq, failure) for at, failure in self.kept.items() if failure.seq is not None]
        pairs.sort(key=lambda pair: pair[0])
        self.tags = [tag for _, tag, _ in pairs]
        self.values = [value for _, _, value in pairs]
        self.kept = None

    def hide_kept(self) -> None:
        """The reverse: take kept failures out of the values, so that no user function sees them."""
        if Kept not in set(map(type, self.values)):
            return
        kept = {position(t): v for t, v in zip(self.tags, self.values, strict=True) if is_kept(v)}
        if kept:
            live = [(t, v) for t, v in zip(self.tags, self.values, strict=True) if not is_kept(v)]
            self.tags, self.values = [t for t, _ in live], [v for _, v in live]
            self.kept = {**(self.kept or {}), **kept}
