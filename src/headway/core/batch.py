"""Batches: consecutive items gathered into one list, and taken apart again.

A batch is a carrier: it has the tags and the interval of its members, which share its fate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.core.block import Block, Failure, Members, Position, Span, Tag, after, is_kept, position
from headway.core.frontier import whole_roots


def _root(tag: Tag) -> int:
    return tag if isinstance(tag, int) else tag[0]


def runs(tags: Sequence[Tag]) -> Iterator[tuple[int, int, Span]]:
    """Cut rising tags where they do not touch: (first index, index behind the last, interval)."""
    if isinstance(tags, range):
        if tags:
            yield 0, len(tags), ((tags.start,), (tags.stop,))
        return
    start = 0
    for i in range(1, len(tags) + 1):
        if i == len(tags) or position(tags[i]) != after(tags[i - 1]):
            yield start, i, (position(tags[start]), after(tags[i - 1]))
            start = i


class Batcher:
    """Gathers values until `size` of them, or `limit` bytes, are there.

    In `total` order a batch covers one contiguous interval, tombstones included; otherwise it
    covers whatever arrived and tombstones go on alone. ``released`` counts permits of rows that
    left no value in the open batch; whoever drives the batcher takes them from there.
    """

    def __init__(self, size: int, within: float | None, limit: int, *, total: bool, show_kept: bool) -> None:
        self.size, self.within, self.limit, self.total = size, within, limit, total
        self._show_kept = show_kept
        self.released = 0
        self._reset()

    def _reset(self) -> None:
        self.tags: list[Tag] = []
        self.values: list[Any] = []
        self.births: list[tuple[float, int]] = []
        self.spans: list[Span] = []
        self.kept: dict[Position, Failure] = {}
        self.nbytes = self.freed = self._roots = 0
        self.since: float | None = None
        self.waited = 0.0

    @property
    def empty(self) -> bool:
        return not self.values

    def deadline(self) -> float | None:
        """When the open batch must leave although it is not full."""
        return None if self.within is None or self.since is None else self.since + self.within

    def push(self, block: Block, now: float) -> list[Block]:
        """Take `block`; return the batches that became full, and tombstones that need not wait."""
        if self._show_kept:
            block.show_kept()
        if not block.values and (self.empty or not self.total):
            return [block]
        out: list[Block] = []
        if not self.total:
            self._send_gaps(block, out)
        at, total, tags, values = 0, len(block.values), block.tags, block.values
        each = block.nbytes // total if total else 0
        if not total:
            self._cover(block, block.hi, ())
        while at < total:
            count = min(self.size - len(self.values), total - at)
            if self.limit and each:
                count = min(count, max(1, (self.limit - self.nbytes + each - 1) // each))
            upto = at + count
            if self.empty:
                self.since, self.waited = now, block.waited
                self.spans = [(block.lo if at == 0 else position(tags[at]),) * 2] if self.total else []
            part = tags[at:upto]
            self.tags.extend(part)
            self.values.extend(values[at:upto])
            self.nbytes += each * count
            self.births.append((block.born, count))
            if self.total:
                hi = position(tags[upto]) if upto < total else block.hi
                self._cover(block, hi, part)
            else:
                self.spans.extend(span for _, _, span in runs(part))
            at = upto
            if len(self.values) >= self.size or (self.limit and self.nbytes >= self.limit):
                out.append(self._send())
        return out

    def _cover(self, block: Block, hi: Position, part: Sequence[Tag]) -> None:
        """Extend the interval of the open batch and return the permits of rows that left no value in it."""
        if block.kept:
            self.kept.update({at: failure for at, failure in block.kept.items() if at < hi})
            block.kept = {at: failure for at, failure in block.kept.items() if at >= hi}
        if isinstance(part, range):
            self._roots += len(part)
        else:
            last = _root(self.tags[-len(part) - 1]) if len(self.tags) > len(part) else None
            for tag in part:
                if _root(tag) != last:
                    last = _root(tag)
                    self._roots += 1
        lo = self.spans[0][0]
        self.spans = [(lo, hi)]
        whole = whole_roots(lo, hi)
        if whole:
            live = self._roots
            live -= len(lo) > 1 and _root(self.tags[0]) == lo[0]
            live -= len(hi) > 1 and _root(self.tags[-1]) == hi[0]
            self.released += whole - live - self.freed
            self.freed = whole - live

    def _send_gaps(self, block: Block, out: list[Block]) -> None:
        """Send on what the block covers beside its values."""
        gaps: list[Span] = []
        at = block.lo
        for _, _, (lo, hi) in runs(block.tags):
            if at < lo:
                gaps.append((at, lo))
            at = hi
        if at < block.hi:
            gaps.append((at, block.hi))
        if gaps:
            rest = block.like(*gaps[0], [], [], 0)
            rest.spans, rest.kept, block.kept = gaps, block.kept, None
            out.append(rest)

    def _send(self) -> Block:
        lo, hi = self.spans[0]
        block = Block(lo, hi, [self.tags[0]], [self.values], self.nbytes, min(born for born, _ in self.births))
        block.spans = self.spans if len(self.spans) > 1 else None
        block.freed, block.waited = self.freed, self.waited
        block.kept = self.kept or None
        shown = sum(map(is_kept, self.values)) if self._show_kept else 0
        block.members = Members(self.tags, self.births, len(self.values) - shown)
        self._reset()
        return block

    def flush(self) -> list[Block]:
        """Send the open batch, full or not."""
        return [] if self.empty else [self._send()]

    def drop_from(self, at: Position) -> int:
        """Forget members at or above the position `at`; return how many there were."""
        if self.empty or self.total and self.spans[0][1] <= at:
            return 0
        keep = [i for i, tag in enumerate(self.tags) if position(tag) < at]
        lost = sum(not is_kept(v) for i, v in enumerate(self.values) if position(self.tags[i]) >= at)
        self.tags = [self.tags[i] for i in keep]
        self.values = [self.values[i] for i in keep]
        self.kept = {k: v for k, v in self.kept.items() if k < at}
        if not self.values:
            self._reset()
        else:
            self.births = [(self.births[0][0], len(keep))]
            self.spans = [(lo, min(hi, at)) for lo, hi in self.spans if lo < at]
        return lost


def unbatch(block: Block) -> list[Block]:
    """The members of a batch as blocks of items.

    A value of the batch's own length gives its members back their tags; another length is an
    expansion of the batch: tags (first tag, c). Raises what iterating the value raises.
    """
    members = block.members
    values = list(block.values[0])
    if members is None or len(values) != len(members.tags):
        first = block.tags[0]
        base = (first,) if isinstance(first, int) else first
        out = block.like(block.lo, block.hi, [(*base, c) for c in range(len(values))], values, block.nbytes)
        out.freed, out.kept, out.spans = block.freed, block.kept, block.spans
        return [out]
    return spread(block, members.tags, values, block.nbytes)


def spread(block: Block, tags: Sequence[Tag], values: list[Any], nbytes: int) -> list[Block]:
    """`values` under their own `tags` in place of a batch; a batch that covers pieces gives a block each."""
    if block.spans is None:
        out = block.like(block.lo, block.hi, tags, values, nbytes)
        out.freed, out.kept = block.freed, block.kept
        out.hide_kept()
        return [out]
    blocks, share = [], nbytes // len(block.spans)
    pairs = sorted(zip(map(position, tags), tags, values, strict=True), key=lambda p: p[0])
    for lo, hi in block.spans:
        mine = [(tag, value) for at, tag, value in pairs if lo <= at < hi]
        blocks.append(block.like(lo, hi, [t for t, _ in mine], [v for _, v in mine], share))
    blocks[0].kept = block.kept
    for part in blocks:
        part.hide_kept()
    return blocks
