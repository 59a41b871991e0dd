"""A driver that tells recorders what it hands out, what comes back, and why slots without work are idle."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.run.driver import Driver


class Notes(Protocol):
    """Where it is noted. Times are seconds of one clock."""

    def dispatched(self, ticket: int, stage: str, slot: int, tags: list[Any], attempt: int, now: float) -> None:
        """Items were handed to a slot."""

    def answered(self, ticket: int, taken: int, failed: list[int], started: float, stopped: float, now: float) -> None:
        """The first `taken` of them have been called, from `started` to `stopped`; those at the offsets `failed` failed."""

    def idle(self, stage: str, state: str, now: float) -> None:
        """From now on the slots of `stage` that have nothing in hand are idle for this reason."""


class RecordingDriver(Driver):
    """The same run, with `notes` taken."""

    notes: tuple[Notes, ...] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle: dict[int, str] = {}

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Note it, and hand it out."""
        tags, now = list(job.tags), perf_counter()
        for notes in self.notes:
            notes.dispatched(job.ticket, slot.stage.spec.name, slot.number, tags, job.attempt, now)
        super().dispatch(slot, job)

    def _on_answer(self, worker: Any, answer: Answer) -> None:
        failed = [offset for offset, _ in answer.failed]
        now = perf_counter()
        for notes in self.notes:
            notes.answered(answer.ticket, answer.taken, failed, answer.started, answer.stopped, now)
        super()._on_answer(worker, answer)

    def _after(self) -> None:
        """Once no event waits: note where the reason of idleness has changed."""
        super()._after()
        now = perf_counter()
        for stage in self.engine.stages:
            state = stage.meter.idle_state
            if self._idle.get(stage.index) != state:
                self._idle[stage.index] = state
                for notes in self.notes:
                    notes.idle(stage.spec.name, state, now)
