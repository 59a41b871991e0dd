"""What a worker has in hand, open to others: they see it, cut it short, or take it away from a call that hangs.

It also keeps items apart: a change of a context variable made for one is not seen by the next.
"""

from __future__ import annotations

import contextvars
import traceback
import types
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from operator import length_hint
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from headway.core.ticket import Answer, Job
from headway.errors import Raised
from headway.size import sizes

T = TypeVar("T")

_CALLS = tuple(str(Path(__file__).with_name(name)) for name in ("call.py", "run"))
"""Where the user's functions are called."""

_TURNED = ("coroutine raised StopIteration", "coroutine raised StopAsyncIteration")


def raised(error: BaseException, inside: str = "") -> Raised:
    """The record of what a user function raised, without the leading frames of the file `inside`."""
    # A coroutine turns a StopIteration of its own into this; in a plain function it stands as it is.
    told = isinstance(error, RuntimeError) and str(error) in _TURNED
    if told and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
        error = error.__cause__
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None and tb.tb_frame.f_code.co_filename == inside:
        tb = tb.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, tb))
    except Exception:  # a user's __str__ may raise
        text = f"{type(error).__name__} (its text could not be formatted)\n"
    return Raised(error, text)


def user_frames(frames: list[FrameType]) -> str:
    """The stack of a call as text, outermost frame first, without those that lead to the user's function."""
    files = [frame.f_code.co_filename for frame in frames]
    ours = max((at for at, file in enumerate(files) if file.startswith(_CALLS)), default=-1)
    lines = [(frame, frame.f_lineno) for frame in frames[ours + 1 :] or frames]
    return "".join(traceback.StackSummary.extract(lines).format())


class Outcomes:
    """Collects the outcomes of a job. Values are appended before their origin, so that others may read meanwhile."""

    def __init__(self, kind: str, size: Callable[[Any], int] | None, *, atomic: bool, started: float) -> None:
        self.kind, self._size, self._atomic, self.started = kind, size, atomic, started
        self.values: list[Any] = []
        self.origin: list[int] | None = None
        self.failed: list[tuple[int, Raised]] = []
        self.broke: list[int] = []
        self.again: Raised | None = None
        self.taken = 0
        self.members: list[int] = []
        """map_batches: the number of the first member of each batch, and that behind the last."""
        self.nbytes: int | None = None
        self.parked = self.halted = False
        self.sample: float | None = None

    def sparse(self) -> list[int]:
        """From here on outputs name the input that they come from."""
        if self.origin is None:
            self.origin = list(range(len(self.values)))
        return self.origin

    def answer(self, ticket: int, stopped: float, cpu: float) -> Answer:
        """The answer, the job having ended."""
        return Answer(
            ticket, self.taken, self.values, self.origin, self.failed, self.parked,
            halted=self.halted, broke=self.broke, again=self.again,
            nbytes=sizes(self.values, self._size) if self.nbytes is None else self.nbytes,
            started=self.started, stopped=stopped, cpu=cpu, sample=self.sample,
        )  # fmt: skip

    def without(self, ticket: int, first: int, stop: int, why: Raised, now: float) -> Answer:
        """The answer while the call for the inputs [first, stop) still runs: these fail with `why`.

        Children that an expansion has given stand, unless it is atomic.
        """
        low, high = (self.members[first], self.members[stop]) if self.members else (first, stop)
        origin, values = self.origin, self.values
        if origin is None:
            values = [] if self.kind == "sink" else values[:first]
        else:
            made = bisect_left(origin, high if self.kind == "flat_map" and not self._atomic else low)
            values, origin = values[:made], origin[:made]
        failed = [(at, record) for at, record in self.failed.copy() if at < low]
        failed += [(at, why) for at in range(low, high)]
        broke = [at for at in self.broke if at < first] + ([first] if self.members else [])
        if origin is None and self.kind != "sink":
            origin = list(range(len(values)))
        return Answer(
            ticket, stop, values, origin, failed, broke=broke, nbytes=sizes(values, self._size),
            started=self.started, stopped=now,
        )  # fmt: skip


class Cell:
    """A job in the hands of a worker.

    Its inputs are claimed one by one from an iterator over them, whose steps are atomic; whoever exhausts
    that iterator first has taken the rest, exactly, and nothing more is started. ``began`` is when the
    call that runs began, where the stage has a time limit. ``passes`` lists exceptions that are not the
    user's: they end the loop. `lock` is needed where others are on other threads.
    """

    __slots__ = (
        "_count", "_items", "_rest", "abandoned", "base", "began", "clock", "context", "coroutine", "job", "lock", "out", "passes",
        "run", "span", "stop",
    )  # fmt: skip
    base: contextvars.Context
    context: contextvars.Context
    coroutine: Coroutine[Any, Any, Any]

    def __init__(self, lock: AbstractContextManager[Any] | None = None) -> None:
        self.passes: tuple[type[BaseException], ...] = ()
        self.lock = lock or nullcontext()
        self.job: Job | None = None
        self.out: Outcomes | None = None
        self.began: float | None = None
        self.span: tuple[int, int] | None = None
        self.stop = self.abandoned = False
        self.run = "run"
        self.clock: Callable[[], float] | None = None
        self._items: Iterator[Any] = iter(())
        self._rest: list[Any] = []
        self._count = 0

    def begin(self, job: Job, out: Outcomes) -> Iterator[Any]:
        """An iterator over the inputs of `job`; an empty one if the cell was cut before."""
        with self.lock:
            self.job, self.out, self.span = job, out, None
            self._rest, self._items, self._count = [], iter(job.values), len(job.values)
            if self.stop:
                self._rest.extend(self._items)
        return self._items

    @property
    def cursor(self) -> int:
        """Offset of the input that was claimed last, -1 before the first."""
        while True:
            rest = len(self._rest)
            at = self._count - length_hint(self._items) - rest - 1
            if rest == len(self._rest):  # else the rest was taken meanwhile
                return at

    @property
    def at(self) -> int:
        """Offset of the first input of the call that runs."""
        return self.span[0] if self.span is not None else self.cursor

    def enter(self, first: int, stop: int, began: float | None) -> bool:
        """Whether a call for the inputs [first, stop), all claimed before, may begin."""
        with self.lock:
            if not self.stop:
                self.span, self.began = (first, stop), began
            return not self.stop

    def cut(self) -> None:
        """Start nothing more: the answer comes as soon as the call that runs ends."""
        with self.lock:
            self.stop = True
            self._rest.extend(self._items)

    def abandon(self, why: Raised, began: float | None, now: float) -> Answer | None:
        """Cut, and answer without the call that runs; None if the one that began at `began` has ended.

        What the call comes to is to be dropped from then on: ``abandoned`` says so.
        """
        self.cut()
        with self.lock:
            if self.began is None or self.began != began or self.job is None or self.out is None:
                return None
            self.abandoned = True
            job, out = self.job, self.out
        first, stop = self.span or (self.cursor, self.cursor + 1)
        return out.without(job.ticket, first, stop, why, now)

    def end(self) -> None:
        """The job has ended: let go of the contexts, which refer to this cell, and would keep its values with it."""
        del self.base, self.context, self.coroutine

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs: its ticket, when it began, the deadline of its item."""
        began, job = self.began, self.job
        if began is None or job is None or self.abandoned:
            return None
        return job.ticket, began, job.until

    def where(self) -> tuple[int, int, int] | None:
        """Ticket and input of the call that runs, or has just ended; the outputs so far."""
        job, at, out = self.job, self.at, self.out
        if job is None or out is None or at < 0 or self.abandoned:
            return None
        return job.ticket, at, len(out.values)

    @property
    def changed(self) -> bool:
        """Whether a context variable was changed since the context was entered."""
        try:
            return bool(self.context != self.base)
        except Exception:  # values of variables are the user's, and so is their comparison
            return True


class Enter:
    """Awaited inside `isolated`: go on in `context`, or without one in a fresh copy."""

    __slots__ = ("context",)

    def __init__(self, context: contextvars.Context | None = None) -> None:
        self.context = context

    def __await__(self) -> Generator[Enter, None, None]:
        yield self


FRESH = Enter()

current: contextvars.ContextVar[Cell] = contextvars.ContextVar("headway_cell")
"""The cell of the job within which the code runs."""


@types.coroutine
def isolated(coroutine: Coroutine[Any, Any, T], cell: Cell) -> Generator[Any, Any, T]:
    """Run `coroutine` in a copy of the context of the caller, and in another whenever it awaits an `Enter`."""
    base = contextvars.copy_context()
    base.run(current.set, cell)
    cell.base, cell.context, cell.coroutine = base, base.copy(), coroutine
    call: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    try:
        while True:
            try:
                asked = cell.context.run(call, argument)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            call, argument = coroutine.send, None
            if type(asked) is Enter:
                cell.context = base.copy() if asked.context is None else asked.context
                cell.context.run(current.set, cell)
                continue
            try:
                argument = yield asked
            except BaseException as error:
                call, argument = coroutine.throw, error
    finally:
        cell.end()
