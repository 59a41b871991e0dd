"""Stands for a function that is not called: only how many values it gives, and so what flows on, is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.ticket import Answer, Job
from headway.errors import InternalError


class Modelled:
    """Gives on what it gets: `gives` values for each input, drawn where that is no whole number.

    An expansion pauses where its job says so, and goes on with the next of that ticket, as a real one does.
    """

    def __init__(self, kind: str, gives: float, random: Callable[[], float]) -> None:
        self._kind, self._gives, self._random = kind, gives, random
        self._left: dict[int, tuple[Any, int]] = {}

    def answer(self, job: Job) -> Answer:
        """What a worker would answer for the whole job."""
        if job.resumed:
            return self._resume(job)
        values, taken = job.values, len(job.values)
        if self._kind in ("sink", "consume"):
            return Answer(job.ticket, taken)
        if self._kind == "flat_map":
            return self._expand(job)
        if self._kind == "map_batches":
            values = [value for batch in values for value in batch]
            if self._gives >= 1.0:
                return Answer(job.ticket, taken, values, list(range(len(values))))
        elif self._gives >= 1.0:
            return Answer(job.ticket, taken, values)
        kept = [at for at in range(len(values)) if self._random() < self._gives]
        return Answer(job.ticket, taken, [values[at] for at in kept], kept)

    def _resume(self, job: Job) -> Answer:
        """Go on with the expansion that paused."""
        ticket, limit = job.ticket, job.limit
        if ticket not in self._left:
            raise InternalError(f"ticket {ticket} has no expansion that paused")
        value, left = self._left.pop(ticket)
        if left > limit:
            self._left[ticket] = value, left - limit
            return Answer(ticket, 0, [value] * limit, [0] * limit, parked=True)
        return Answer(ticket, 1, [value] * left, [0] * left)

    def _expand(self, job: Job) -> Answer:
        values: list[Any] = []
        origin: list[int] = []
        for at, value in enumerate(job.values):
            count = int(self._gives + self._random())
            fits = min(count, job.limit - len(values))
            values += [value] * fits
            origin += [at] * fits
            if fits < count:
                self._left[job.ticket] = value, count - fits
                return Answer(job.ticket, at, values, origin, parked=True)
            if len(values) >= job.limit:
                return Answer(job.ticket, at + 1, values, origin)
        return Answer(job.ticket, len(job.values), values, origin)
