"""How long a call takes in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

Draw = Callable[[random.Random, Any], float]
Service = float | Draw


def constant(seconds: float) -> Draw:
    """Every call takes `seconds`."""
    return lambda _rng, _value: seconds


def exponential(mean: float) -> Draw:
    """Exponentially distributed with that mean."""
    return lambda rng, _value: rng.expovariate(1 / mean) if mean > 0 else 0.0


def uniform(low: float, high: float) -> Draw:
    """Evenly distributed between `low` and `high`."""
    return lambda rng, _value: rng.uniform(low, high)


def draws(service: Mapping[str, Service]) -> dict[str, Draw]:
    """Numbers as constant times, functions as they are."""
    return {name: s if callable(s) else constant(float(s)) for name, s in service.items()}
