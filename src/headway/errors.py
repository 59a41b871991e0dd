"""The exceptions of Headway, and the failure of an item as data; nothing else.

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
    ├─ PredecessorFailed    an item's error: an earlier one of its key had failed
    ├─ CheckpointError      resume refused: what differs, and how to accept it
    └─ InternalError        a broken invariant: a bug of Headway itself
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Self


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


class PredecessorFailed(HeadwayError):
    """An item was not run because an earlier one of its key had failed (``on_key_failure="block_key"``)."""


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
    seq: int | tuple[int, ...] = -1
    age: float = 0.0


class RunErrors(ExceptionGroup[Exception], RunError):
    """Several failures at one stop, first cause first."""

    def __new__(cls, message: str, exceptions: Sequence[Exception]) -> Self:
        return super().__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception]) -> None:
        super().__init__(message, exceptions)

    def derive(self, excs: Sequence[Exception]) -> RunErrors:  # type: ignore[override]
        return RunErrors(self.message, excs)


class RetryAfter(Exception):
    """Raised by a stage's function: pause the whole stage for `seconds`, then make this call again.

    It does not count as an attempt. An item that asks for more than ``Retry.max_pause`` in all fails with it.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds} s")
        self.seconds = float(seconds)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float]]:
        return type(self), (self.seconds,)


class Raised(NamedTuple):
    """What a user function raised, and the traceback text of the place where it ran."""

    error: BaseException
    traceback: str


class Failure:
    """An item that failed, as data.

    User code makes one from an error alone (a slot of ``map_batches``); the engine fills ``seq``
    (the item's tag), ``stage``, ``attempts``, ``value`` (the input of that stage) and ``traceback``.
    """

    __slots__ = ("attempts", "error", "seq", "stage", "traceback", "value")

    def __init__(
        self,
        error: BaseException,
        *,
        seq: int | tuple[int, ...] | None = None,
        stage: str | None = None,
        attempts: int = 1,
        value: Any = None,
        traceback: str = "",
    ) -> None:
        self.error, self.seq, self.stage = error, seq, stage
        self.attempts, self.value, self.traceback = attempts, value, traceback

    def __repr__(self) -> str:
        return f"Failure({self.error!r}, seq={self.seq}, stage={self.stage!r})"


class Kept(Failure):
    """A failure that the engine holds at its place (``on_error="keep"``) on the way to whoever gets it.

    Its type tells it from a `Failure` that is an item of the run like any other.
    """

    __slots__ = ()

    def plain(self) -> Failure:
        """The same as a `Failure`, as it is handed over."""
        return Failure(
            self.error,
            seq=self.seq,
            stage=self.stage,
            attempts=self.attempts,
            value=self.value,
            traceback=self.traceback,
        )


def handed_over(value: Any) -> Any:
    """A value as a consumer gets it: kept failures, also those in a batch, become plain ones."""
    if type(value) is Kept:
        return value.plain()
    if type(value) is list and Kept in set(map(type, value)):
        return [handed_over(each) for each in value]
    return value


def raise_clean(error: BaseException) -> NoReturn:
    """Raise `error` with its own cause, not with what is being handled around it."""
    raise error from error.__cause__
