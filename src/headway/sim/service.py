"""How long a call takes in virtual time."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

Draw = Callable[[random.Random, Any], float]
Service = float | Draw

STRATA = 64


@dataclass(frozen=True, slots=True)
class Constant:
    """Every call takes `seconds`."""

    seconds: float

    def __call__(self, _rng: random.Random, _value: Any) -> float:
        """The same for every value."""
        return self.seconds


def exponential(mean: float) -> Draw:
    """Exponentially distributed with that mean."""
    return lambda rng, _value: rng.expovariate(1 / mean) if mean > 0 else 0.0


def uniform(low: float, high: float) -> Draw:
    """Evenly distributed between `low` and `high`."""
    return lambda rng, _value: rng.uniform(low, high)


class Recorded:
    """Times as recorded: `values` with the sums of how often each was seen up to there.

    They are drawn in strata (Cochran, Sampling Techniques, chapter 5): of every 64 draws one is from each 64th of
    them, in a shuffled order, so that a short simulation has the mean that was measured. A new generator begins anew.
    """

    def __init__(self, values: Sequence[float], sums: Sequence[int]) -> None:
        self._values, self._sums = values, sums
        self._rng: random.Random | None = None
        self._order: list[int] = []

    def __call__(self, rng: random.Random, _value: Any) -> float:
        """The next one."""
        if rng is not self._rng:
            self._rng, self._order = rng, []
        if not self._order:
            self._order = list(range(STRATA))
            rng.shuffle(self._order)
        at = (self._order.pop() + rng.random()) / STRATA * self._sums[-1]
        return self._values[min(bisect_right(self._sums, at), len(self._values) - 1)]


def recorded(times: Sequence[Sequence[float]], mean: float) -> Draw:
    """As recorded: pairs (seconds, how often), scaled so that their mean is `mean`."""
    counts = list(accumulate(int(count) for _, count in times))
    total = sum(seconds * count for seconds, count in times)
    if not counts or total <= 0 or len(counts) == 1:
        return Constant(mean)
    factor = mean * counts[-1] / total
    return Recorded([seconds * factor for seconds, _ in times], counts)


def draws(service: Mapping[str, Service]) -> dict[str, Draw]:
    """Numbers as constant times, functions as they are."""
    return {name: s if callable(s) else Constant(float(s)) for name, s in service.items()}
