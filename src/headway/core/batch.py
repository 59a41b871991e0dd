"""Batches: consecutive items gathered into one list, and taken apart again.

A batch is a carrier: it has the tags and the interval of its members, which share its fate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.core.block import Block, Failure, Members, Position, Rows, Span, Tag, after, is_kept, position, split_rows


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


def _without(first: int, stop: int, rows: Rows) -> Iterator[tuple[int, int]]:
    """The parts of [first, stop) that lie in none of `rows`."""
    for a, b in rows:
        if first < b and a < stop:
            if first < a:
                yield first, a
            first = b
    if first < stop:
        yield first, stop


class Batcher:
    """Gathers values until `size` of them, or `limit` bytes, are there.

    In `total` order a batch covers one contiguous interval, tombstones included; otherwise it
    covers whatever arrived and tombstones go on alone. ``released`` counts permits of rows that
    left no value in the open batch; whoever drives the batcher takes them from there.
    """

    def __init__(
        self, size: int, within: float | None, limit: int, measure: Callable[[Sequence[Any]], int],
        *, total: bool, show_kept: bool,
    ) -> None:  # fmt: skip
        self.size, self.within, self.limit, self.total = size, within, limit, total
        self._measure = measure
        self._show_kept = show_kept
        self.released = 0
        self._reset()

    def _reset(self) -> None:
        self.tags: list[Tag] = []
        self.values: list[Any] = []
        self.births: list[tuple[float, int]] = []
        self.spans: list[Span] = []
        self.kept: dict[Position, Failure] = {}
        self.freed: Rows = []
        self.nbytes = self.measured = self._next_root = 0
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
        left = block.nbytes
        if not total:
            self._cover(block, block.hi, ())
        while at < total:
            count, nbytes = self._fit(values, at)
            upto = at + count
            if self.empty:
                self.since, self.waited = now, block.waited
                lo = block.lo if at == 0 else position(tags[at])
                self.spans = [(lo, lo)] if self.total else []
                self._next_root = lo[0] + (len(lo) > 1)
            part = tags[at:upto]
            self.tags.extend(part)
            self.values.extend(values[at:upto])
            self.measured += nbytes
            share = left * count // (total - at)
            self.nbytes, left = self.nbytes + share, left - share
            self.births.append((block.born, count))
            if self.total:
                hi = position(tags[upto]) if upto < total else block.hi
                self._cover(block, hi, part)
            else:
                self.spans.extend(span for _, _, span in runs(part))
                self.freed, block.freed = self.freed + block.freed, []
            at = upto
            if len(self.values) >= self.size or self.measured >= self.limit:
                out.append(self._send())
        return out

    def _fit(self, values: list[Any], at: int) -> tuple[int, int]:
        """How many of `values` from `at` on go into the open batch, and their bytes.

        Sizes are taken item by item where the limit is near, so that the cut depends on the items alone.
        """
        count = min(self.size - len(self.values), len(values) - at)
        nbytes = self._measure(values[at : at + count])
        if self.measured + nbytes < self.limit:
            return count, nbytes
        nbytes = 0
        for number in range(count):
            nbytes += self._measure(values[at + number : at + number + 1])
            if self.measured + nbytes >= self.limit:
                return number + 1, nbytes
        return count, nbytes

    def _cover(self, block: Block, hi: Position, part: Sequence[Tag]) -> None:
        """Extend the interval of the open batch and return the permits of rows that left no value in it."""
        if block.kept:
            self.kept.update({at: failure for at, failure in block.kept.items() if at < hi})
            block.kept = {at: failure for at, failure in block.kept.items() if at >= hi}
        self.spans = [(self.spans[0][0], hi)]
        upto = self._next_root
        if isinstance(part, range) and part:
            self._free(upto, part.start, block.freed)
            upto = part.stop
        else:
            for root in map(_root, part):
                self._free(upto, root, block.freed)
                upto = max(upto, root + 1)
        self._free(upto, hi[0], block.freed)
        self._next_root = max(upto, hi[0])
        freed, block.freed = split_rows(block.freed, hi)
        self.freed += freed

    def _free(self, first: int, stop: int, freed: Rows) -> None:
        """Return the permits of the rows [first, stop), which left no value, less what was `freed` before."""
        for rows in _without(first, stop, freed):
            self._release(*rows)

    def _release(self, first: int, stop: int) -> None:
        self.freed.append((first, stop))
        self.released += stop - first

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
            bare = [(lo[0] + (len(lo) > 1), hi[0]) for lo, hi in gaps]
            rest.freed = [(max(a, c), min(b, d)) for a, b in block.freed for c, d in bare if max(a, c) < min(b, d)]
            block.freed = [left for rows in block.freed for left in _without(*rows, bare)]
            out.append(rest)

    def _send(self) -> Block:
        lo, hi = self.spans[0]
        block = Block(lo, hi, [self.tags[0]], [self.values], self.nbytes, min(born for born, _ in self.births))
        block.spans = self.spans if len(self.spans) > 1 else None
        block.freed, block.waited = self.freed, self.waited
        block.kept = self.kept or None
        live = self.tags
        if self._show_kept:
            live = [tag for tag, value in zip(self.tags, self.values, strict=True) if not is_kept(value)]
        children = sum(type(tag) is tuple for tag in live)
        block.members = Members(self.tags, self.births, len(live), children)
        self._reset()
        return block

    def flush(self) -> list[Block]:
        """Send the open batch, full or not."""
        return [] if self.empty else [self._send()]

    def drop_from(self, at: Position) -> list[Block]:
        """Remove and return the open batch if it begins at or behind the position `at`."""
        return self.flush() if not self.empty and min(self.spans)[0] >= at else []


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
    blocks[0].nbytes += nbytes - share * len(blocks)
    for part in blocks:
        part.hide_kept()
    return blocks
