"""How far the source may run ahead: permits in items, a limit in bytes, a budget of children."""

from __future__ import annotations

from bisect import bisect_left


class RowSet:
    """A set of rows, kept as ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []

    def add(self, first: int, stop: int) -> int:
        """Add the rows [first, stop) and return how many were not in the set."""
        i, j = bisect_left(self._stops, first), bisect_left(self._firsts, stop + 1)
        known = sum(min(stop, b) - max(first, a) for a, b in zip(self._firsts[i:j], self._stops[i:j], strict=True))
        new = stop - first - known
        if i < j:
            first, stop = min(first, self._firsts[i]), max(stop, self._stops[j - 1])
        self._firsts[i:j], self._stops[i:j] = [first], [stop]
        return new

    def discard(self, first: int, stop: int) -> int:
        """Take the rows [first, stop) out and return how many were in the set."""
        i, j = bisect_left(self._stops, first + 1), bisect_left(self._firsts, stop)
        ranges = list(zip(self._firsts[i:j], self._stops[i:j], strict=True))
        left = [(a, first) for a, _ in ranges[:1] if a < first] + [(stop, b) for _, b in ranges[-1:] if b > stop]
        self._firsts[i:j], self._stops[i:j] = [a for a, _ in left], [b for _, b in left]
        return sum(min(stop, b) - max(first, a) for a, b in ranges)


class Window:
    """What is in flight between the source and the final order point.

    ``used`` rows hold a permit (taken before they are tagged, returned when their fate is final);
    ``nbytes`` is the estimate of all values in flight; ``children`` counts the un-emitted children
    of all expansions, with what workers have been allowed to make. The awaited item is exempt from
    the byte limit, and one row is always admitted; so the true bound of memory is the limit, the
    growth of what was in hand, and one item.
    """

    def __init__(self, items: int, bytes_limit: int, budget: int) -> None:
        self.items, self.bytes_limit, self.budget = items, bytes_limit, budget
        self._early = RowSet()
        self.used = self.peak = self.nbytes = self.largest = self.children = 0

    @property
    def over(self) -> bool:
        """Whether the byte limit is reached: only the awaited item may be dispatched then."""
        return self.nbytes >= self.bytes_limit

    def room(self) -> int:
        """Rows that may be read now. One until a first row's size is known."""
        if self.used and self.over:
            return 0
        by_bytes = max(1, (self.bytes_limit - self.nbytes) // self.largest) if self.largest else 1
        return max(0, min(self.items - self.used, by_bytes))

    def each(self, rows: int) -> int:
        """Bytes that each of `rows` may have so that all have room."""
        return (self.bytes_limit - self.nbytes) // max(1, rows)

    def admit(self, rows: int, nbytes: int, largest: int) -> None:
        """Take a permit for each of `rows`."""
        self.used += rows
        self.peak = max(self.peak, self.used)
        self.nbytes += nbytes
        self.largest = max(self.largest, largest, 1)

    def children_left(self) -> int:
        """Children that workers may still make."""
        return max(0, self.budget - self.children)

    def release_early(self, first: int, stop: int) -> None:
        """Return the permits of rows that hold no memory any more, although they are not emitted."""
        self.used -= self._early.add(first, stop)

    def release(self, first: int, stop: int) -> None:
        """Return the permits of rows that were emitted."""
        self.used -= stop - first - self._early.discard(first, stop)
