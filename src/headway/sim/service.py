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


def recorded(times: Sequence[Sequence[float]], mean: float) -> Draw:
    """As recorded: pairs (seconds, how often), scaled so that their mean is `mean`."""
    counts = list(accumulate(count for _, count in times))
    total = sum(seconds * count for seconds, count in times)
    if not counts or total <= 0:
        return Constant(mean)
    factor, all_ = mean * counts[-1] / total, counts[-1]
    values = [seconds * factor for seconds, _ in times]
    if len(values) == 1:
        return Constant(mean)
    return lambda rng, _value: values[bisect_right(counts, rng.random() * all_)]


def draws(service: Mapping[str, Service]) -> dict[str, Draw]:
    """Numbers as constant times, functions as they are."""
    return {name: s if callable(s) else Constant(float(s)) for name, s in service.items()}
