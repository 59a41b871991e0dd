"""The one loop that runs user functions over a job, for every kind of worker and for the simulator.

It turns each result, filter and exception into an outcome, claims item by item so that a block in
hand can be cut, and keeps paused expansions. It starts no thread, reads no queue and knows no engine.
"""

from __future__ import annotations

import functools
import inspect
import random
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from itertools import islice
from operator import length_hint
from typing import Any, TypeVar

from headway.core.block import DROP
from headway.core.ticket import Answer, Job
from headway.errors import Failure, HeadwayError, InternalError, Raised
from headway.size import one_size, size_of, sizes

T = TypeVar("T")

PART_BYTES = 1 << 20
"""An expansion pauses after this many bytes of children."""
WRITE_ITEMS = 1000
"""Most items that a sink is given at once."""
_TURNED = ("coroutine raised StopIteration", "coroutine raised StopAsyncIteration")


def is_async(fn: Any) -> bool:
    """Whether calling `fn` gives a coroutine or an async generator."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for f in (fn, getattr(fn, "__call__", None)):  # noqa: B004 - the method itself is looked at
        if inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f):
            return True
    return False


def raised(error: BaseException) -> Raised:
    """The record of what a user function raised, without the frames of this module."""
    # A coroutine turns a StopIteration of its own into this; in a plain function it stands as it is.
    told = isinstance(error, RuntimeError) and str(error) in _TURNED
    if told and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
        error = error.__cause__
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, tb))
    except Exception:  # a user's __str__ may raise
        text = f"{type(error).__name__} (its text could not be formatted)\n"
    return Raised(error, text)


class Cell:
    """What a worker publishes of the job in its hands: ``cursor``, the offset of the input that was begun last.

    It is read off the iterator over the inputs, so publishing costs nothing. Whoever sets ``stop``
    gets the outcomes so far as soon as the call that runs ends. ``passes`` lists exceptions that
    are not the user's: they end the loop.
    """

    __slots__ = ("_count", "_items", "passes", "stop")

    def __init__(self, passes: tuple[type[BaseException], ...] = ()) -> None:
        self._items: Iterator[Any] = iter(())
        self._count = 0
        self.stop = False
        self.passes = passes

    def begin(self, values: list[Any]) -> Iterator[Any]:
        """An iterator over the inputs of a job."""
        self._items, self._count = iter(values), len(values)
        return self._items

    @property
    def cursor(self) -> int:
        """Offset of the input that was begun last, -1 before the first."""
        return self._count - length_hint(self._items) - 1


class Outcomes:
    """Collects the outcomes of a job."""

    __slots__ = ("failed", "nbytes", "origin", "parked", "sample", "taken", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.origin: list[int] | None = None
        self.failed: list[tuple[int, Raised]] = []
        self.taken = 0
        self.nbytes: int | None = None
        self.parked = False
        self.sample: float | None = None

    def sparse(self) -> list[int]:
        """From here on outputs name the input that they come from."""
        if self.origin is None:
            self.origin = list(range(len(self.values)))
        return self.origin

    def fail(self, offset: int, error: BaseException) -> list[int]:
        """The call for the input at `offset` raised `error`."""
        self.failed.append((offset, raised(error)))
        return self.sparse()


class ExpansionTooLarge(HeadwayError):
    """An atomic expansion gave more children than may be in flight."""


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, on the spot."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise InternalError("a plain function waited; it was taken for one that does not")


class Caller:
    """Runs the jobs of one worker of one stage.

    The loops are written once, as coroutines: with a plain function they never wait, so `drive`
    runs them without an event loop. `clock` and `cpu_clock` give seconds (None: no stamps, for a
    virtual clock). With `halts` a job ends at its
    first failure. With `writes` the function takes up to WRITE_ITEMS values at once (a sink's `write`).
    """

    def __init__(
        self,
        kind: str,
        fn: Callable[..., Any],
        *,
        size: Callable[[Any], int] | None = None,
        atomic: bool = False,
        most_children: int = 1 << 20,
        writes: bool = False,
        halts: bool = False,
        clock: Callable[[], float] | None = None,
        cpu_clock: Callable[[], float] | None = None,
    ) -> None:
        self.kind, self.fn, self._size = kind, fn, size
        self._atomic, self._most, self._writes, self._halts = atomic, most_children, writes, halts
        self.asynchronous = is_async(fn)
        self._clock, self._cpu_clock = clock, cpu_clock
        self._random = random.Random(0).random  # picks the item to be timed
        self._parked: dict[int, Iterator[Any] | AsyncIterator[Any]] = {}

    async def run(self, job: Job, cell: Cell) -> Answer:
        """Run `job`, one call at a time. Raises nothing but what ``cell.passes`` names."""
        started, cpu = self._stamps()
        out = Outcomes()
        if cell.stop:
            pass
        elif self.kind == "flat_map":
            await self._expand(job, cell, out)
        elif self.kind == "map_batches":
            await self._batches(job, cell, out)
        elif self._writes:
            await self._write(job, cell, out)
        else:
            await self._calls(job, cell, out)
        return self._answer(job.ticket, out, started, cpu)

    async def resume(self, ticket: int, limit: int, cell: Cell) -> Answer:
        """Continue the paused expansion of `ticket` for up to `limit` children."""
        started, cpu = self._stamps()
        out = Outcomes()
        out.origin, out.nbytes = [], 0
        await self._children(self._parked.pop(ticket), 0, Job(ticket, [], (), limit), cell, out)
        out.taken = 0 if out.parked else 1
        return self._answer(ticket, out, started, cpu)

    async def close(self) -> None:
        """Close paused generators. What they raise is dropped: their items have no fate left to change."""
        while self._parked:
            _, children = self._parked.popitem()
            close = getattr(children, "aclose", None) or getattr(children, "close", None)
            try:
                if close is not None and inspect.isawaitable(waiting := close()):
                    await waiting
            except Exception:  # noqa: S110 - see the docstring
                pass

    def _stamps(self) -> tuple[float, float]:
        return (self._clock() if self._clock else 0.0), (self._cpu_clock() if self._cpu_clock else 0.0)

    def _answer(self, ticket: int, out: Outcomes, started: float, cpu: float) -> Answer:
        stopped, cpu_stopped = self._stamps()
        nbytes = sizes(out.values, self._size) if out.nbytes is None else out.nbytes
        return Answer(
            ticket, out.taken, out.values, out.origin, out.failed, out.parked, nbytes,
            started, stopped, cpu_stopped - cpu, out.sample,
        )  # fmt: skip

    async def _calls(self, job: Job, cell: Cell, out: Outcomes) -> None:
        """map, filter and plain sinks: a call for each item."""
        values, count, clock = cell.begin(job.values), len(job.values), self._clock
        if clock is not None and count > 1:
            # One item picked at random is timed alone; clock calls around each would cost more than small calls do.
            await self._span(islice(values, int(self._random() * count)), job, cell, out)
            if not cell.stop and cell.cursor + 1 < count:
                began = clock()
                await self._span(islice(values, 1), job, cell, out)
                out.sample = clock() - began
        if not cell.stop:
            await self._span(values, job, cell, out)
        out.taken = cell.cursor + 1
        if self.kind == "sink":
            out.values, out.origin = [], None

    async def _span(self, values: Iterator[Any], job: Job, cell: Cell, out: Outcomes) -> None:
        """Call the function for each of `values`, which draw from ``cell.items``."""
        if out.origin is None and self.kind != "filter":
            await self._dense(values, cell, out)
        if cell.stop or cell.cursor + 1 >= len(job.values):
            return
        fn, asynchronous, filters, push = self.fn, self.asynchronous, self.kind == "filter", out.values.append
        for at, value in enumerate(values, cell.cursor + 1):
            try:
                result = fn(value)
                if asynchronous:
                    result = await result
                if filters:
                    result = value if result and result is not DROP else DROP
            except BaseException as error:
                self._failed(at, error, cell, out)
            else:
                if result is DROP:
                    out.sparse()
                else:
                    push(result)
                    if out.origin is not None:
                        out.origin.append(at)
            if cell.stop:  # set by another thread meanwhile
                return  # type: ignore[unreachable]

    async def _dense(self, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        """The hot loop: while every call gives a value, outputs need no record of their inputs."""
        fn, push = self.fn, out.values.append
        try:
            if self.asynchronous:
                for value in values:
                    result = await fn(value)
                    if result is DROP:
                        out.sparse()
                        return
                    push(result)
                    if cell.stop:
                        return
            else:
                for value in values:
                    result = fn(value)
                    if result is DROP:
                        out.sparse()
                        return
                    push(result)
                    if cell.stop:
                        return
        except BaseException as error:  # whatever a user function raises is an outcome
            self._failed(cell.cursor, error, cell, out)

    def _failed(self, offset: int, error: BaseException, cell: Cell, out: Outcomes) -> None:
        if isinstance(error, cell.passes):
            raise error
        out.fail(offset, error)
        if self._halts:
            cell.stop = True

    async def _expand(self, job: Job, cell: Cell, out: Outcomes) -> None:
        out.origin, out.nbytes = [], 0
        values = cell.begin(job.values)
        while not cell.stop and len(out.values) < job.limit and out.nbytes < PART_BYTES:
            value = next(values, cell)
            if value is cell:
                break
            at = cell.cursor
            try:
                children = self.fn(value)
                if inspect.isawaitable(children):
                    children = await children
                children = children.__aiter__() if hasattr(children, "__aiter__") else iter(children)
            except BaseException as error:
                self._failed(at, error, cell, out)
            else:
                await self._children(children, at, job, cell, out)
                if out.parked:
                    break
            out.taken = at + 1

    async def _children(
        self, children: Iterator[Any] | AsyncIterator[Any], at: int, job: Job, cell: Cell, out: Outcomes
    ) -> None:
        """Take children until they end, or pause where the job has given enough."""
        first, asynchronous = len(out.values), hasattr(children, "__anext__")
        origin = out.sparse()
        size, nbytes = self._size or size_of, out.nbytes or 0
        try:
            while True:
                if not self._atomic and (len(out.values) >= job.limit or nbytes >= PART_BYTES or cell.stop):
                    self._parked[job.ticket] = children
                    out.parked = True
                    return
                value = await children.__anext__() if asynchronous else next(children)  # type: ignore[arg-type, union-attr]
                if value is DROP:
                    continue
                out.values.append(value)
                origin.append(at)
                nbytes += one_size(size, value)
                if self._atomic and len(out.values) - first > self._most:
                    raise ExpansionTooLarge(f"more than {self._most} children, which is all that may be in flight")
        except BaseException as error:
            if isinstance(error, StopAsyncIteration if asynchronous else StopIteration):
                return
            if isinstance(error, cell.passes):
                raise
            if self._atomic:
                del out.values[first:], origin[first:]
            out.fail(at, error)
        finally:
            out.nbytes = nbytes

    async def _batches(self, job: Job, cell: Cell, out: Outcomes) -> None:
        """map_batches: a call for each list; offsets count members."""
        members = 0
        origin = out.sparse()
        for at, batch in enumerate(cell.begin(job.values)):
            try:
                results = self.fn(batch)
                if self.asynchronous:
                    results = await results
                results = list(results)
                if len(results) != len(batch):
                    raise ValueError(f"{len(batch)} items went in and {len(results)} came back: give one for each")
            except BaseException as error:
                if isinstance(error, cell.passes):
                    raise
                record = raised(error)
                out.failed += [(members + i, record) for i in range(len(batch))]
            else:
                for offset, result in enumerate(results, members):
                    if type(result) is Failure and result.seq is None:
                        out.failed.append((offset, raised(result.error)))
                    elif result is not DROP:
                        out.values.append(result)
                        origin.append(offset)
            members += len(batch)
            out.taken = at + 1
            if cell.stop:
                break

    async def _write(self, job: Job, cell: Cell, out: Outcomes) -> None:
        """A sink's `write`, for as many values as it may be given at once."""
        for start in range(0, len(job.values), WRITE_ITEMS):
            await self._write_some(job.values[start : start + WRITE_ITEMS], start, cell, out)
            out.taken = min(start + WRITE_ITEMS, len(job.values))
            if self._halts and out.failed:
                out.taken = out.failed[-1][0] + 1
                break
            if cell.stop:
                break

    async def _write_some(self, values: list[Any], start: int, cell: Cell, out: Outcomes) -> None:
        """Write `values`; if that fails, each half, the left one first, down to the item that fails."""
        try:
            written = self.fn(values)
            if self.asynchronous:
                await written
        except BaseException as error:
            if isinstance(error, cell.passes):
                raise
            if len(values) == 1:
                out.failed.append((start, raised(error)))
                return
        else:
            return
        half = len(values) // 2
        await self._write_some(values[:half], start, cell, out)
        if self._halts and out.failed:
            return
        await self._write_some(values[half:], start + half, cell, out)
