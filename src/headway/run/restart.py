"""How soon a worker that died is followed by another, and when there is no point in it."""

from __future__ import annotations

from collections import deque

AT_ONCE, AT_ONCE_S = 10, 10.0
"""So many deaths of a stage within so many seconds are followed by a new worker at once."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
"""Beyond that there are pauses, each twice as long as the one before."""
HOPELESS, HOPELESS_S = 5, 60.0
"""So many deaths within so many seconds, and not one item settled between: it is not the items."""


class Restarts:
    """The deaths of the workers of one stage. Times are seconds of the driver's clock."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=64)
        self._barren: list[float] = []

    def settled(self) -> None:
        """An item of the stage was settled by a worker that lived."""
        self._barren.clear()

    def died(self, now: float) -> None:
        """A worker died."""
        self._deaths.append(now)
        self._barren = [at for at in self._barren if at > now - HOPELESS_S] + [now]

    @property
    def hopeless(self) -> int:
        """The deaths without an item settled between, at the one that makes them so many that the run has to end."""
        return HOPELESS if len(self._barren) == HOPELESS else 0

    def pause_s(self, now: float) -> float:
        """Seconds before the next worker is started."""
        more = sum(at > now - AT_ONCE_S for at in self._deaths) - AT_ONCE
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(more - 1, 10)) if more > 0 else 0.0
