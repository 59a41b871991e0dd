"""Counting and timing of one stage. Reads no clock: every time is an argument."""

from __future__ import annotations

from headway.gauges import Heavy, Histogram, Level, Spans

STATES = ("starved", "busy", "overhead", "paused", "throttled", "blocked", "lane_wait")
"""What a slot's time is divided into."""


class StageMeter(Spans):
    """Fates and slot times of one stage.

    The time of a slot is split without a gap: while it has a block in hand into ``busy`` (the
    block's loop runs) and ``overhead`` (transport and wake-up around it); with nothing in hand into
    ``paused`` (the stage asked for it, or waits with an item for another attempt), ``throttled`` (its rate is
    used up), ``blocked`` (work is queued, no room downstream), ``lane_wait`` (all that is queued waits for
    its key) and ``starved``: ``spans``, seconds of all slots.

    ``cpu`` is the part of the busy seconds spent on a processor, ``handoff_s`` the transport of the ``handed``
    items that found an idle slot and an empty queue; ``depth`` and ``nbytes`` are those of the queue.
    """

    def __init__(self, now: float, *, expands: bool = False) -> None:
        super().__init__(STATES, now, 0)
        self.expands = expands
        self.items_in = self.items_out = self.filtered = self.failed = self.expanded = 0
        self.restarts = self.retries = self.timeouts = self.hedges = 0
        self.cpu = 0.0
        self.handoff_s, self.handed = 0.0, 0
        self.timed = 0
        self.recent_calls = self.recent_busy = 0.0
        self.service = Histogram()
        self.depth, self.nbytes = Level(now), Level(now)
        self.keys = Heavy()

    def begin(self, now: float) -> None:
        """The first row has come: what was before is not counted."""
        self.spans = dict.fromkeys(STATES, 0.0)
        self._idle_since = now
        self.depth, self.nbytes = Level(now), Level(now)

    def block(self, mark: float, started: float, stopped: float, calls: int, cpu: float, sample: float | None) -> None:
        """A block of `calls` calls ran from `started` to `stopped`; its slot was in transport since `mark`."""
        self.spans["overhead"] += started - mark
        self.spans["busy"] += stopped - started
        self.cpu += cpu
        if calls:
            self.timed += calls
            decay = 0.97 if self.recent_calls > 256 else 1.0
            self.recent_calls = self.recent_calls * decay + calls
            self.recent_busy = self.recent_busy * decay + (stopped - started)
            self.service.record((stopped - started) / calls if sample is None else sample)

    @property
    def balanced(self) -> bool:
        """in = out + filtered + failed; where items are expanded, in = expanded + filtered + failed."""
        return self.items_in == self.filtered + self.failed + (self.expanded if self.expands else self.items_out)

    @property
    def mean_service(self) -> float | None:
        """Mean seconds of a call lately; None until 16 were measured."""
        return self.recent_busy / self.recent_calls if self.timed >= 16 else None
