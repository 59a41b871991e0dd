"""Looks at the calls that run, on timers of the loop: for time limits, and for silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import perf_counter

from headway.core.engine import Engine
from headway.errors import StallError
from headway.run.crew import Crew
from headway.run.doctor import Doctor
from headway.run.limits import sweep
from headway.run.loop import LoopTime
from headway.run.tuner import EVERY_S, Tuner


class Rounds:
    """One timer for the time limits of all stages, one for the doctor. `post` has a call run on the loop.

    The loop's own time is measured as long as it goes round.
    """

    def __init__(
        self, engine: Engine, crew: Crew, post: Callable[[Callable[[], None]], None], loop_time: LoopTime
    ) -> None:
        self._engine, self._crew, self._post, self._loop_time = engine, crew, post, loop_time
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._sweep_at = inf
        self._stopped = False

    def begin(self, stall_after_s: float | None, stalled: Callable[[StallError], None]) -> None:
        """Start: `stalled` gets the error when nothing has moved for `stall_after_s` seconds (None: never)."""
        self._loop_time.begin()
        self._sweep()
        if stall_after_s is None:
            return
        doctor = Doctor(stall_after_s, self._engine, self._crew)

        def look() -> None:
            error = doctor.look(perf_counter())
            if error is not None:
                stalled(error)
            else:
                self._at(perf_counter() + doctor.every_s, look)

        look()

    def tune(self, tuner: Tuner) -> None:
        """Look now and then whether stages should have other numbers of workers."""
        if not tuner.wanted:
            return

        def look() -> None:
            now = perf_counter()
            for stage, workers in tuner.look(now):
                self._engine.scale(stage, workers, now)
            self._at(perf_counter() + EVERY_S, look)

        look()

    def expect(self, until: float | None) -> None:
        """A job with this deadline was handed out."""
        if until is not None and until < self._sweep_at:
            self._at(until, self._sweep)
            self._sweep_at = until

    def stop(self) -> None:
        """No more looks."""
        self._loop_time.stop()
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _sweep(self) -> None:
        self._sweep_at = sweep(self._crew, perf_counter())
        self._at(self._sweep_at, self._sweep)

    def _at(self, due: float, look: Callable[[], None]) -> None:
        """Have `look` called at `due`, and not before."""
        if (timer := self._timers.pop(look, None)) is not None:
            timer.cancel()
        if due < inf and not (self._stopped or self._engine.finished):
            self._timers[look] = self._loop.call_later(due - perf_counter(), self._post, look)
