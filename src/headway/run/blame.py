"""The exception for what ended a run, the same for every kind of driver. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from headway.call import raised
from headway.core.engine import Engine
from headway.core.spec import StageSpec
from headway.errors import (
    CheckpointError,
    Failure,
    InternalError,
    ItemTimeout,
    RunError,
    RunErrors,
    SinkError,
    SourceError,
    StageError,
    TooManyFailures,
    WorkerDied,
)  # fmt: skip
from headway.text import shown, told

Blamed = RunError | InternalError | CheckpointError


def stage_error(failure: Failure) -> StageError:
    """The exception for an item whose failure ends the run; the original is its cause."""
    original = failure.error
    text = (
        f"stage {failure.stage!r} failed at item {failure.seq} ({shown(failure.value)}), attempt {failure.attempts}: "
        f"{told(original)}"
    )
    kind: type[StageError] = StageError
    if isinstance(original, WorkerDied | ItemTimeout):
        kind = WorkerDied if isinstance(original, WorkerDied) else ItemTimeout
    error = kind(
        text, stage=failure.stage or "", seq=-1 if failure.seq is None else failure.seq,
        value=failure.value, attempts=failure.attempts,
    )  # fmt: skip
    if isinstance(original, WorkerDied):
        error.__dict__.update({k: v for k, v in original.__dict__.items() if k in ("exitcode", "signal")})
    error.__cause__ = original
    return error


def ending_error(engine: Engine) -> RunError | None:
    """The exception for the item, or the number of items, that ended the run."""
    if engine.cause is None:
        return None
    if not engine.too_many:
        return stage_error(engine.cause)
    error = TooManyFailures(engine.too_many)
    error.__cause__ = engine.cause.error
    return error


def source_error(rows: int, cause: BaseException) -> SourceError | CheckpointError:
    """The source raised after it had given `rows` rows."""
    cause = raised(cause).error
    if isinstance(cause, CheckpointError):
        return cause
    error = SourceError(f"the source failed after {rows} rows: {told(cause)}")
    error.position, error.__cause__ = rows, cause
    return error


def worker_error(stage: StageSpec, what: str, cause: BaseException) -> RunError | CheckpointError:
    """A worker's `what` ("set-up" or "clean-up") raised, or its sink could not be opened, committed or closed."""
    cause = raised(cause).error
    if isinstance(cause, CheckpointError):
        return cause
    error: RunError
    if stage.kind == "sink" and not callable(stage.fn):
        error = SinkError(f"the sink {stage.name!r} failed: {told(cause)}")
    else:
        error = StageError(f"the {what} of stage {stage.name!r} failed: {told(cause)}", stage=stage.name)
    error.__cause__ = cause
    return error


def hopeless_error(stage: StageSpec, deaths: int, last: BaseException) -> RunError:
    """The workers of a stage die without finishing anything."""
    error = RunError(
        f"stage {stage.name!r}: {deaths} workers died one after another and not one item was finished between: "
        f"this is the machine or the environment, not an item. The last: {told(last)}"
    )
    error.__cause__ = last
    return error


def one_error(errors: Sequence[Blamed]) -> Blamed | None:
    """The one exception for all of `errors`."""
    if len(errors) > 1:
        return RunErrors("several things failed", list(errors))
    return errors[0] if errors else None
