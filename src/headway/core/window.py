"""How far the source may run ahead: permits in items, a limit in bytes, a budget of children."""

from __future__ import annotations


class Window:
    """What is in flight between the source and the final order point.

    ``used`` rows hold a permit (taken before they are tagged, returned when their fate is final);
    ``nbytes`` is the estimate of all values in flight; ``children`` counts the un-emitted children
    of all expansions, with what workers have been allowed to make. The awaited item is exempt from
    the byte limit, and one row is always admitted; so the true bound of memory is the limit, the
    growth of what was in hand, and one item.
    """

    __slots__ = ("budget", "bytes_limit", "children", "items", "largest", "nbytes", "peak", "used")

    def __init__(self, items: int, bytes_limit: int, budget: int) -> None:
        self.items, self.bytes_limit, self.budget = items, bytes_limit, budget
        self.used = self.peak = self.nbytes = self.largest = self.children = 0

    @property
    def over(self) -> bool:
        """Whether the byte limit is reached: only the awaited item may be dispatched then."""
        return self.nbytes >= self.bytes_limit

    def room(self) -> int:
        """Rows that may be read now. One until a first row's size is known."""
        if not self.used:
            free = self.items
        elif self.over:
            return 0
        else:
            free = self.items - self.used
        if not self.largest:
            return min(free, 1)
        return max(0, min(free, max(1, (self.bytes_limit - self.nbytes) // self.largest)))

    def admit(self, rows: int, nbytes: int, largest: int) -> None:
        """Take a permit for each of `rows`."""
        self.used += rows
        self.peak = max(self.peak, self.used)
        self.nbytes += nbytes
        self.largest = max(self.largest, largest, 1)

    def children_left(self) -> int:
        """Children that workers may still make."""
        return max(0, self.budget - self.children)
