"""Instruments: a histogram, a level over time, seconds by state, the most frequent keys.

They count what they are told, read no clock (every time is an argument), and know nothing of stages or items.
"""

from __future__ import annotations

from math import exp, log
from typing import Any

_STEP = log(1.04)


class Histogram:
    """Counts of positive values in buckets 4% wide, so a quantile is right within 2%. Mergeable."""

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.max = 0.0

    def record(self, value: float, count: int = 1) -> None:
        # Several times a block: a dict and an `if` take half as long as a Counter and `max`.
        bucket = int(log(value) // _STEP) if value > 1e-9 else -10_000
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += count
        if value > self.max:  # noqa: PLR1730
            self.max = value

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` of the records lies; None without records."""
        if not self.count:
            return None
        left = q * self.count
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return 0.0 if bucket == -10_000 else min(self.max, exp((bucket + 0.5) * _STEP))
        return self.max

    def pairs(self) -> list[tuple[float, int]]:
        """(value, how often), rising."""
        return [(exp((at + 0.5) * _STEP) if at > -10_000 else 0.0, n) for at, n in sorted(self.buckets.items())]


class Level:
    """A number that changes now and then: its mean over time, and the most it was."""

    __slots__ = ("_area", "_since", "begun", "most", "value")

    def __init__(self, now: float) -> None:
        self.value = self.most = 0
        self._area, self._since, self.begun = 0.0, now, now

    def set(self, value: int, now: float) -> None:
        """From now on it is `value`."""
        if self.value:
            self._area += self.value * (now - self._since)
        self.value, self._since = value, now
        if value > self.most:  # noqa: PLR1730 - as in `Histogram.record`
            self.most = value

    def mean(self, now: float) -> float:
        """The mean from the start until now."""
        spent = now - self.begun
        return (self._area + self.value * (now - self._since)) / spent if spent > 0 else 0.0


class Heavy:
    """The most frequent of many keys (Misra and Gries, 1982): a count is too low by at most 1/256 of all, never too high."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self.seen = 0

    def add(self, key: Any) -> None:
        """Count a key."""
        self.seen += 1
        if key in self.counts:
            self.counts[key] += 1
        elif len(self.counts) < 256:
            self.counts[key] = 1
        else:
            self.counts = {key: count - 1 for key, count in self.counts.items() if count > 1}


class Spans:
    """Seconds by state, without a gap, of slots that are all in one state."""

    def __init__(self, states: tuple[str, ...], now: float, slots: int) -> None:
        self.spans = dict.fromkeys(states, 0.0)
        self._idle, self._idle_state, self._idle_since = slots, states[0], now

    def idle(self, slots: int, state: str, now: float) -> None:
        """From now on `slots` slots have nothing in hand, for the reason `state`."""
        if slots == self._idle and state == self._idle_state:
            return
        if self._idle:
            self.spans[self._idle_state] += (now - self._idle_since) * self._idle
        self._idle, self._idle_state, self._idle_since = slots, state, now

    @property
    def idle_state(self) -> str:
        """Why slots that have nothing in hand are idle."""
        return self._idle_state

    def times(self, now: float) -> dict[str, float]:
        """Seconds of slots by state, the open idle time included; what is in hand is not counted yet."""
        spans = dict(self.spans)
        spans[self._idle_state] += max(0.0, now - self._idle_since) * self._idle
        return spans
