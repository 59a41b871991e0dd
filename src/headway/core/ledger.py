"""The fate of every item, and the times of a whole run."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.block import Block
from headway.gauges import Histogram, Spans


@dataclass(slots=True)
class Fates:
    """Items by fate. ``late`` counts answers that came after their ticket was retired."""

    read: int = 0
    children: int = 0
    written: int = 0
    filtered: int = 0
    dead: int = 0
    expanded: int = 0
    unread: int = 0
    late: int = 0

    @property
    def balanced(self) -> bool:
        """read + children = written + filtered + dead + expanded + unread."""
        return self.read + self.children == self.written + self.filtered + self.dead + self.expanded + self.unread


SOURCE_STATES = ("reading", "window_wait", "blocked", "ended")
"""Of the source: asked for rows; the window has no permit; the first queue has no room; not asked any more."""


class Timeline:
    """Birth and emission times, for fill, steady and drain; latency with and without the wait for order."""

    def __init__(self, now: float) -> None:
        self.started_at = now
        self.first_birth: float | None = None
        self.first_emission: float | None = None
        self.last_emission: float | None = None
        self.end_of_input: float | None = None
        self.stopped_at: float | None = None
        self.latency = Histogram()
        self.latency_unordered = Histogram()
        self.emitted_roots = self.emitted_first = self.emitted_at_end = 0
        self.steady_until: float | None = None
        self.source = Spans(SOURCE_STATES, now, 1)
        self._tail = (0, 200)

    def asked(self, now: float) -> None:
        """The source is asked for its first row: what was opened before took none of its time."""
        self.source = Spans(SOURCE_STATES, now, 1)

    def emit(self, block: Block, roots: int, now: float) -> None:
        """A block left at the last order point, and with it so many rows."""
        self.emitted_roots += roots
        if not block.values:
            return
        self.first_emission = now if self.first_emission is None else self.first_emission
        self.last_emission = now
        if now == self.first_emission:
            self.emitted_first = self.emitted_roots
        if self.end_of_input is None:
            self.emitted_at_end, self.steady_until = self.emitted_roots, now
        births = block.members.births if block.members is not None else ((block.born, len(block.values)),)
        for born, count in births:
            self.latency.record(now - born, count)
            self.latency_unordered.record(max(0.0, now - born - block.waited), count)

    def slow_tail(self) -> int:
        """Rows that pass while the slowest of 200 is under way: throughput x the 99.5th percentile of latency."""
        rows, upto = self._tail
        if self.emitted_roots > upto and self.first_birth is not None and self.last_emission is not None:
            rate = self.emitted_roots / max(self.last_emission - self.first_birth, 1e-9)
            rows = max(rows, int(rate * (self.latency.quantile(0.995) or 0.0)))
            self._tail = rows, self.emitted_roots * 9 // 8
        return rows
