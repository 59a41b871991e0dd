"""Rows that are written together, and which source rows they came from. What does not belong here: which are written."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from headway.io.table import Table
from headway.io.target import Target


class Sources:
    """For each row of a batch the source row that it came from, ascending, counted from 0 in the commit."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._bases: list[int] = []
        self._parts: list[array[int]] = []
        self._length = 0

    def extend(self, base: int, part: array[int]) -> None:
        """Add the rows of a range whose records count from `base`."""
        self._starts.append(self._length)
        self._bases.append(base)
        self._parts.append(part)
        self._length += len(part)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        at = bisect_right(self._starts, index) - 1
        return self._bases[at] + self._parts[at][index - self._starts[at]]

    def rows_of(self, source: int) -> range:
        """Give the rows that came from `source`; behind the last source the empty range at the end."""
        at = max(0, bisect_right(self._bases, source) - 1)
        part, base, start = self._parts[at], self._bases[at], self._starts[at]
        return range(start + bisect_left(part, source - base), start + bisect_right(part, source - base))

    def without(self, rows: Sequence[int]) -> Sources:
        """Give the sources of all rows but some; these ascend."""
        left = Sources()
        for start, base, part in zip(self._starts, self._bases, self._parts, strict=True):
            kept = part[:]
            for row in reversed(rows[bisect_left(rows, start) : bisect_left(rows, start + len(part))]):
                del kept[row - start]
            if kept:
                left.extend(base, kept)
        return left


@dataclass(slots=True)
class Batch:
    """Rows of one table in one commit."""

    table: Table
    rows: Any
    sources: Sources
    cuts: Sequence[int] = ()
    """rows, ascending, that take a value which a row before them gives up: that one has to be written first"""

    def without(self, dropped: Collection[int], end: int, target: Target) -> Batch:
        """Give the rows whose source is not in `dropped` and below `end`."""
        cut = self.sources.rows_of(end).start
        lost = [row for source in sorted(dropped) if source < end for row in self.sources.rows_of(source)]
        lost += range(cut, len(self.sources))
        if not lost:
            return self
        cuts = [row - bisect_left(lost, row) for row in self.cuts]
        return Batch(self.table, target.drop(self.rows, lost), self.sources.without(lost), cuts)
