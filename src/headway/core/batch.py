"""Batches: consecutive items gathered into one list, and taken apart again.

A batch is a carrier: it has the tags and the interval of its members, which share its fate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headway.core.block import Block, Members, Position, Span, Tag, after, child, is_kept, position
from headway.core.plan import BatchPlan
from headway.errors import Failure


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
    covers whatever arrived and tombstones go on alone. ``released`` lists the rows, as ranges,
    that left no value in the open batch, ``grown`` bytes by which its values measure more than they were
    booked with; whoever drives the batcher takes both from there.
    """

    def __init__(self, plan: BatchPlan, measure: Callable[[Sequence[Any]], int]) -> None:
        self.size, self.within, self.limit, self.total = plan.spec.size, plan.spec.within, plan.limit, plan.total
        self._measure, self._show_kept = measure, not plan.spec.for_map
        self.released: list[tuple[int, int]] = []
        self.grown = 0
        self._reset()

    def _reset(self) -> None:
        self.tags: list[Tag] = []
        self.values: list[Any] = []
        self.births: list[tuple[float, int]] = []
        self.spans: list[Span] = []
        self.kept: dict[Position, Failure] = {}
        self.nbytes = self._bare = 0
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
        self.grown -= block.nbytes
        if not total:
            self._cover(block, block.hi, ())
        while at < total:
            count, nbytes = self._fit(values, at)
            upto = at + count
            if self.empty:
                self.since, self.waited = now, block.waited
                lo = block.lo if at == 0 else position(tags[at])
                self.spans = [(lo, lo)] if self.total else []
                self._bare = lo[0] + (len(lo) > 1)
            part = tags[at:upto]
            self.tags.extend(part)
            self.values.extend(values[at:upto])
            self.nbytes += nbytes
            self.grown += nbytes
            self.births.append((block.born, count))
            if self.total:
                hi = position(tags[upto]) if upto < total else block.hi
                self._cover(block, hi, part)
            else:
                self.spans.extend(span for _, _, span in runs(part))
            at = upto
            if len(self.values) >= self.size or self.nbytes >= self.limit:
                out.append(self._send())
        return out

    def _fit(self, values: list[Any], at: int) -> tuple[int, int]:
        """How many of `values` from `at` on go into the open batch, and their bytes.

        Sizes are taken item by item where the limit is near, so that the cut depends on the items alone.
        """
        count = min(self.size - len(self.values), len(values) - at)
        nbytes = self._measure(values[at : at + count])
        if self.nbytes + nbytes < self.limit:
            return count, nbytes
        nbytes = 0
        for number in range(count):
            nbytes += self._measure(values[at + number : at + number + 1])
            if self.nbytes + nbytes >= self.limit:
                return number + 1, nbytes
        return count, nbytes

    def _cover(self, block: Block, hi: Position, part: Sequence[Tag]) -> None:
        """Extend the interval of the open batch and return the permits of rows that left no value in it."""
        if block.kept:
            self.kept.update({at: failure for at, failure in block.kept.items() if at < hi})
            block.kept = {at: failure for at, failure in block.kept.items() if at >= hi}
        self.spans = [(self.spans[0][0], hi)]
        bare = self._bare
        if isinstance(part, range) and part:
            live: Iterable[tuple[int, int]] = ((part.start, part.stop),)
        else:
            live = ((row, row + 1) for row in map(_root, part))
        for first, stop in live:
            if bare < first:
                self.released.append((bare, first))
            bare = max(bare, stop)
        if bare < hi[0]:
            self.released.append((bare, hi[0]))
        self._bare = max(bare, hi[0])

    def _send_gaps(self, block: Block, out: list[Block]) -> None:
        """Send on what the block covers beside its values."""
        at = block.lo
        for lo, hi in [*(span for _, _, span in runs(block.tags)), (block.hi, block.hi)]:
            if at < lo:
                gap = block.like(at, lo, [], [], 0)
                block.share(gap)
                out.append(gap)
            at = hi

    def _send(self) -> Block:
        lo, hi = self.spans[0]
        block = Block(lo, hi, [self.tags[0]], [self.values], self.nbytes, min(born for born, _ in self.births))
        block.spans = self.spans if len(self.spans) > 1 else None
        block.waited, block.kept = self.waited, self.kept or None
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


def unbatch(block: Block, *, same: bool = False) -> list[Block]:
    """The members of a batch as blocks of items.

    A value of the batch's own length gives its members back their tags; another length is an
    expansion of the batch: tags (first tag, c). Raises what iterating the value raises, and ValueError for
    another length where it has to be the `same`: what a batch holds may be different in the next run.
    """
    members, values = block.members, list(block.values[0])
    if members is not None and len(values) == len(members.tags):
        return spread(block, members.tags, values, block.nbytes)
    if same and members is not None:
        raise ValueError(
            f"a batch of {len(members.tags)} came back as {len(values)} items: with a checkpoint give one for each"
        )
    return spread(block, [child(block.tags[0], c) for c in range(len(values))], values, block.nbytes)


def spread(block: Block, tags: Sequence[Tag], values: list[Any], nbytes: int) -> list[Block]:
    """`values` under their own `tags` in place of what `block` holds; a block for each piece that it covers."""
    if block.spans is None:
        out = block.like(block.lo, block.hi, tags, values, nbytes)
        out.kept = block.kept
        out.hide_kept()
        return [out]
    blocks, share = [], nbytes // len(block.spans)
    pairs = sorted(zip(map(position, tags), tags, values, strict=True), key=lambda p: p[0])
    for lo, hi in block.spans:
        mine = [(tag, value) for at, tag, value in pairs if lo <= at < hi]
        part = block.like(lo, hi, [t for t, _ in mine], [v for _, v in mine], share)
        part.kept = {at: failure for at, failure in (block.kept or {}).items() if lo <= at < hi} or None
        blocks.append(part)
    blocks[0].nbytes += nbytes - share * len(blocks)
    for part in blocks:
        part.hide_kept()
    return blocks
