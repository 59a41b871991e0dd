"""The exceptions of Headway, and nothing else.

::

    HeadwayError
    ├─ PlanError            the description cannot work: which line of it, and what would
    ├─ RunError             the run ended badly; carries .report
    │  ├─ StageError        a user function failed: .stage .seq .attempts .value, original as __cause__
    │  │  ├─ ItemTimeout
    │  │  └─ WorkerDied     .exitcode .signal
    │  ├─ TooManyFailures
    │  ├─ SourceError       .position
    │  ├─ SinkError
    │  ├─ StallError        .stage .seq .age
    │  └─ RunErrors         several at once: an ExceptionGroup too, first cause first
    ├─ CheckpointError      resume refused: what differs, and how to accept it
    └─ InternalError        a broken invariant: a bug of Headway itself
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self


class HeadwayError(Exception):
    """Base of every error that Headway raises on purpose."""


class PlanError(HeadwayError):
    """The description cannot work. Raised before the first item is read."""


class CheckpointError(HeadwayError):
    """A resume was refused. The text says what differs and how to accept it."""


class InternalError(HeadwayError):
    """A broken invariant of the engine: a bug of Headway, never the user's."""


class RunError(HeadwayError):
    """The run ended badly. ``report`` is the report of that run (None while it is being made)."""

    report: Any = None


class StageError(RunError):
    """A user function failed and the policy was to stop.

    ``stage`` is its name, ``seq`` the item's number from 0, ``value`` the input of that stage,
    ``attempts`` the calls made. The original exception is ``__cause__``; its type and message
    stand at the end of the text.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: str = "",
        seq: int | tuple[int, ...] = -1,
        value: object = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(message)
        self.stage, self.seq, self.value, self.attempts = stage, seq, value, attempts


class ItemTimeout(StageError):
    """One call took longer than the stage's ``timeout``."""


class WorkerDied(StageError):
    """The process that ran the item ended. ``exitcode`` or ``signal`` says how."""

    exitcode: int | None = None
    signal: int | None = None


class TooManyFailures(RunError):
    """More items failed than ``max_failures`` allows, or more than can be kept."""


class SourceError(RunError):
    """The source raised. ``position`` is the number of rows that it had given."""

    position: int = 0


class SinkError(RunError):
    """The sink could not be opened, written or committed."""


class StallError(RunError):
    """Nothing moved for longer than ``stall_after``."""

    stage: str = ""
    seq: int = -1
    age: float = 0.0


class RunErrors(ExceptionGroup[Exception], RunError):
    """Several failures at one stop, first cause first."""

    def __new__(cls, message: str, exceptions: Sequence[Exception]) -> Self:
        return super().__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception]) -> None:
        super().__init__(message, exceptions)

    def derive(self, excs: Sequence[Exception]) -> RunErrors:  # type: ignore[override]
        return RunErrors(self.message, excs)
