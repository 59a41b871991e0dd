"""A driver that tells a recorder what it hands out and what comes back."""

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


class RecordingDriver(Driver):
    """The same run, with `notes` taken."""

    notes: Notes

    def dispatch(self, slot: Slot, job: Job) -> None:
        """Note it, and hand it out."""
        self.notes.dispatched(
            job.ticket, slot.stage.spec.name, slot.number, list(job.tags), job.attempt, perf_counter()
        )
        super().dispatch(slot, job)

    def _on_answer(self, worker: Any, answer: Answer) -> None:
        failed = [offset for offset, _ in answer.failed]
        self.notes.answered(answer.ticket, answer.taken, failed, answer.started, answer.stopped, perf_counter())
        super()._on_answer(worker, answer)
