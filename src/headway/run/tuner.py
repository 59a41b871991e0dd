"""Finds the numbers of workers while a run goes on: more where the limit is, until the target or until nothing is gained.

It looks at the engine now and then and says what to change; it keeps no time and starts nothing itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headway.core.engine import Engine
from headway.core.stage import Stage

EVERY_S = 0.5
"""Between two looks."""
LEAST_ROWS = 20
"""Rows that have to be emitted between two looks; it looks again later if there were fewer."""
FULL = 0.85
"""A stage that has something in hand for this share of its slots' time may be the limit."""
GAIN = 0.05
"""A change that gives less is taken back, and not tried again for REST looks."""
REST = 40

log = logging.getLogger("headway.scaling")


@dataclass(slots=True)
class _Seen:
    """A stage as it was at the last look."""

    held: float = 0.0
    calls: int = 0
    timeouts: int = 0
    rest: int = 0


@dataclass(slots=True)
class _Trial:
    stage: Stage
    before: int
    rate: float
    predicted: float


class Tuner:
    """Decides for the stages with a range of workers. `target`: rows a second that are enough, None for the most.

    Only the stage that limits the rate gets more workers: its slots always have something in hand, and of those
    it could do least. So a stage that starves, or waits for the next one, stays as it is. The rate seen after a
    change is logged beside the one predicted; without a gain the change is taken back. A stage whose calls
    timed out, or that asked for a pause (`RetryAfter`), gets half as many.
    """

    def __init__(self, engine: Engine, target: float | None = None) -> None:
        self._engine, self._target = engine, target
        self._seen: dict[int, _Seen] = {stage.index: _Seen() for stage in engine.stages}
        self._least = {stage.index: stage.spec.workers for stage in engine.stages}
        self._trial: _Trial | None = None
        self._at: float | None = None
        self._rows = 0

    @property
    def wanted(self) -> bool:
        """Whether there is anything to decide."""
        return any(stage.spec.most for stage in self._engine.stages)

    def look(self, now: float) -> list[tuple[Stage, int]]:
        """What to change: stages, and how many workers each shall have."""
        engine = self._engine
        if self._at is None or engine.finished or not engine.reading:
            self._note(now)
            return []
        rows, seconds = engine.times.emitted_roots - self._rows, now - self._at
        eased = self._eased()
        if not eased and (rows < LEAST_ROWS or seconds <= 0):
            return []
        rate = rows / seconds if seconds > 0 else 0.0
        held = {stage.index: self._held(stage, now) / (seconds * len(stage.slots)) for stage in engine.stages}
        least = {stage.index: self._capacity(stage, rate, held[stage.index]) for stage in engine.stages}
        self._note(now)
        return eased or self._judged(rate) or self._more(rate, held, least)

    def _note(self, now: float) -> None:
        self._at, self._rows = now, self._engine.times.emitted_roots
        for stage in self._engine.stages:
            seen, meter = self._seen[stage.index], stage.meter
            seen.held, seen.calls, seen.timeouts = self._total(stage, now), meter.timed, meter.timeouts
            seen.rest = max(0, seen.rest - 1)

    def _total(self, stage: Stage, now: float) -> float:
        """Seconds in which slots had something in hand."""
        spans = stage.meter.spans
        return spans["busy"] + spans["overhead"] + sum(now - slot.mark for slot in stage.slots if slot.tickets)

    def _held(self, stage: Stage, now: float) -> float:
        return self._total(stage, now) - self._seen[stage.index].held

    def _capacity(self, stage: Stage, rate: float, held: float) -> float:
        """Rows a second that the stage could do if it never waited, as far as can be told."""
        return rate / held if held > 0 else float("inf")

    def _eased(self) -> list[tuple[Stage, int]]:
        """Stages that were asked to take it easier: half of their workers."""
        eased = []
        for stage in self._engine.stages:
            seen = self._seen[stage.index]
            paused = self._at is not None and stage.hold_until > self._at
            if stage.spec.most and (stage.meter.timeouts > seen.timeouts or paused) and not seen.rest:
                fewer = max(self._least[stage.index], len(stage.slots) // 2)
                seen.rest, seen.timeouts = 4, stage.meter.timeouts
                if fewer < len(stage.slots):
                    log.info("%s: %d workers, half as many, after a time limit or a pause", stage.spec.name, fewer)
                    eased.append((stage, fewer))
                self._trial = None
        return eased

    def _judged(self, rate: float) -> list[tuple[Stage, int]]:
        """What is to be taken back of the last change."""
        trial, self._trial = self._trial, None
        if trial is None:
            return []
        name, now = trial.stage.spec.name, len(trial.stage.slots)
        log.info(
            "%s: %d workers: predicted %.4g rows/s, observed %.4g, before %.4g",
            name,
            now,
            trial.predicted,
            rate,
            trial.rate,
        )
        if rate >= (1 + GAIN) * trial.rate:
            return []
        self._seen[trial.stage.index].rest = REST
        log.info("%s: back to %d workers, since more gave nothing", name, trial.before)
        return [(trial.stage, trial.before)]

    def _more(self, rate: float, held: dict[int, float], least: dict[int, float]) -> list[tuple[Stage, int]]:
        if self._target is not None and rate >= self._target:
            return []
        full = [stage for stage in self._engine.stages if held[stage.index] >= FULL]
        if not full:
            return []
        stage = min(full, key=lambda stage: least[stage.index])
        now, most = len(stage.slots), stage.spec.most
        if not most or now >= most or self._seen[stage.index].rest:
            return []
        workers = min(most, max(now + 1, now * 3 // 2))
        others = [capacity for index, capacity in least.items() if index != stage.index]
        predicted = min([least[stage.index] * workers / now, *others])
        if self._target is not None and predicted > self._target:  # no more than are needed
            workers = min(workers, max(now + 1, -int(-now * self._target // least[stage.index])))
        self._trial = _Trial(stage, now, rate, predicted)
        log.info("%s: %d workers instead of %d, predicted %.4g rows/s", stage.spec.name, workers, now, predicted)
        return [(stage, workers)]
