"""Which positions are done: a watermark, and what is done above it."""

from __future__ import annotations

from bisect import bisect_right

from headway.core.block import Position, Span
from headway.errors import InternalError


class Frontier:
    """A set of disjoint intervals of positions, merged where they touch.

    ``watermark``: everything below it is done. With a window of W rows there are at most W + 1
    intervals, since every gap is an item that holds a permit.
    """

    def __init__(self, at: Position = (0,)) -> None:
        self._los: list[Position] = [at]
        self._his: list[Position] = [at]

    @property
    def watermark(self) -> Position:
        return self._his[0]

    def spans(self) -> list[Span]:
        """The intervals, in order; the first one ends at the watermark."""
        return list(zip(self._los, self._his, strict=True))

    def add(self, lo: Position, hi: Position) -> tuple[int, int]:
        """Mark [lo, hi) as done and return the rows (first, stop) that became whole by it.

        Raises InternalError if a part of it was done before.
        """
        if lo >= hi:
            return 0, 0
        los, his = self._los, self._his
        i = bisect_right(los, lo)  # los[i-1] <= lo < los[i]
        if (i and his[i - 1] > lo) or (i < len(los) and los[i] < hi):
            raise InternalError(f"positions {lo}..{hi} were settled twice")
        touches_left = i > 0 and his[i - 1] == lo
        touches_right = i < len(los) and los[i] == hi
        new_lo = los[i - 1] if touches_left else lo
        new_hi = his[i] if touches_right else hi
        los[i - touches_left : i + touches_right] = [new_lo]
        his[i - touches_left : i + touches_right] = [new_hi]
        # Rows whole by now, less those that the intervals on either side had whole before.
        first = max(new_lo[0] + (len(new_lo) > 1), lo[0])
        stop = min(new_hi[0], hi[0] + (len(hi) > 1))
        return (first, stop) if first < stop else (0, 0)
