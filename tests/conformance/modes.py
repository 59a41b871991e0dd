"""One description of a pipeline, run in every mode, and what came out of it in comparable form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headway import Failure, Pipeline, SourceError
from headway.how import How
from headway.run.blame import ending_error
from headway.run.wire import RemoteError
from headway.sim.driver import VirtualRun
from headway.watch.report import make_report

MODES = ("inline", "task", "thread", "process", "simulated")
REAL = ("inline", "task", "thread", "process")
CONCURRENT = ("task", "thread", "process")
Describe = Callable[[Any, str], Pipeline[Any]]
"""A pipeline over a source, its stages on a kind of worker."""


@dataclass
class Outcome:
    """All that a user can see of a run."""

    outputs: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    letters: list[Failure] = field(default_factory=list)
    items: dict[str, int] = field(default_factory=dict)
    stages: dict[str, dict[str, int]] = field(default_factory=dict)
    complete: bool = False
    state: str = ""

    @property
    def values(self) -> list[Any]:
        """Outputs in comparable form."""
        return [plain(value) for value in self.outputs]

    @property
    def records(self) -> list[Any]:
        """Dead letters in comparable form, in order of their items."""
        return sorted((record(letter) for letter in self.letters), key=lambda r: (_tag(r[1]), r[0]))

    def counts(self, stage: str) -> tuple[int, int, int, int]:
        """in, out, filtered, failed."""
        row = self.stages[stage]
        return row["in"], row["out"], row["filtered"], row["failed"]


def _tag(seq: Any) -> tuple[int, ...]:
    return (seq,) if isinstance(seq, int) else tuple(seq)


def error_text(error: BaseException) -> tuple[str, str]:
    """Type and text; an error that could not travel is known by the record that stands for it."""
    if isinstance(error, RemoteError):
        name, _, text = str(error).partition(": ")
        return name, text
    try:
        return type(error).__qualname__, str(error)
    except RuntimeError:
        return type(error).__qualname__, "(no text)"


def record(failure: Failure) -> tuple[Any, ...]:
    """stage, seq, attempts, error type, error text, value."""
    return (failure.stage, failure.seq, failure.attempts, *error_text(failure.error), plain(failure.value))


def plain(value: Any) -> Any:
    """A value in a form that can be compared, whatever it is and whichever process it went through."""
    kind = type(value)
    if kind is Failure:
        return ("Failure", *record(value)[:5])
    if kind in (list, tuple):
        return [kind.__name__, *map(plain, value)]
    if kind is dict:
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, BaseException):
        return ("raised", *error_text(value))
    if kind in (int, str, bool, bytes):
        return value
    try:
        return (kind.__qualname__, repr(value))
    except Exception:
        return (kind.__qualname__, "no words")


class Guarded:
    """A source for the virtual clock, which ends where the real one fails, as the driver of a run sees it."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows
        self.error: SourceError | None = None

    def __iter__(self) -> Iterator[Any]:
        count = 0
        try:
            rows = iter(self._rows)
        except BaseException as error:
            self._fail(error, count)
            return
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except BaseException as error:
                self._fail(error, count)
                return
            count += 1
            yield row

    def _fail(self, error: BaseException, count: int) -> None:
        self.error = SourceError(f"the source failed after {count} rows")
        self.error.position, self.error.__cause__ = count, error


def on_of(mode: str) -> str:
    """The kind of worker that a description is given in `mode`."""
    return mode if mode in CONCURRENT else "thread"


def run(mode: str, describe: Describe, source: Any, *, leave: int | None = None, seed: int = 0) -> Outcome:
    """Run to the end, or until `leave` outputs were taken, and close everything."""
    pipeline = describe(source, on_of(mode))
    return {
        "inline": _inline, "task": _task, "thread": _thread, "process": _thread, "simulated": _simulated,
    }[mode](pipeline, source, leave, seed)  # fmt: skip


def _thread(pipeline: Pipeline[Any], source: Any, leave: int | None, seed: int) -> Outcome:
    out = Outcome()
    run = pipeline.open(dead_letters=out.letters)
    try:
        with run:
            if not run._sink and leave != 0:
                for value in run:
                    out.outputs.append(value)
                    if leave is not None and len(out.outputs) == leave:
                        break
    except Exception as error:
        out.error = error
    return _read(out, run.report)


def _task(pipeline: Pipeline[Any], source: Any, leave: int | None, seed: int) -> Outcome:
    out = Outcome()

    async def main() -> Any:
        run = pipeline.open(dead_letters=out.letters)
        try:
            async with run:
                if not run._sink and leave != 0:
                    async for value in run:
                        out.outputs.append(value)
                        if leave is not None and len(out.outputs) == leave:
                            break
        except Exception as error:
            out.error = error
        return run.report

    return _read(out, asyncio.run(main()))


def _inline(pipeline: Pipeline[Any], source: Any, leave: int | None, seed: int) -> Outcome:
    out = Outcome()
    inline = pipeline._inline(How(mode="inline", dead_letters=out.letters))
    values, report = inline.values(), None
    try:
        while leave is None or len(out.outputs) < leave:
            out.outputs.append(next(values))
    except StopIteration:
        report = inline.report
    except Exception as error:
        out.error = error
        report = getattr(error, "report", None)
    try:
        values.close()
    except Exception as error:
        out.error = error
    return _read(out, report)


def _simulated(pipeline: Pipeline[Any], source: Any, leave: int | None, seed: int) -> Outcome:
    guarded = Guarded(source() if callable(source) else source)
    names = [step.name for step in pipeline._steps if hasattr(step, "kind")]
    service = {name: lambda rng, _value: rng.choice([0.0, 0.001, 0.02]) for name in names}
    run = VirtualRun(pipeline._prepare("inline")[0], guarded, service, seed=seed, leave_after=leave).run()
    out = Outcome(outputs=run.outputs, letters=run.dead, error=ending_error(run.engine) or guarded.error)
    return _read(out, make_report(run.engine, "simulated", run.now))


def _read(out: Outcome, report: Any) -> Outcome:
    if report is None:
        return out
    out.items, out.complete, out.state = dict(report.items), report.complete, report.state
    out.stages = {stage.name: dict(stage) for stage in report.stages}
    return out
