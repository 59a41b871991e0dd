"""The one loop that runs user functions over a job, for every kind of worker and for the simulator.

It turns each result, filter and exception into an outcome, claims item by item (see claim.py), and keeps
paused expansions and the states of a scan. It starts no thread, reads no queue and knows no engine.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any, TypeVar

from headway.claim import FRESH, Cell, Enter, Outcomes, isolated
from headway.claim import raised as _raised
from headway.core.block import DROP
from headway.core.policy import Retry
from headway.core.ticket import Answer, Job
from headway.errors import Failure, HeadwayError, InternalError, Raised, RetryAfter, WorkerDied
from headway.size import one_size, size_of
from headway.states import States
from headway.writing import Writing

T = TypeVar("T")

PART_BYTES = 1 << 20
"""An expansion pauses after this many bytes of children."""


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
    return _raised(error, __file__)


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


def unstarted(job: Job) -> Answer:
    """The answer for a job that its worker, which was given up, did not begin; a paused expansion is lost with it."""
    if not job.resumed:
        return Answer(job.ticket, 0)
    lost = WorkerDied("the worker that held this paused expansion was given up")
    return Answer(job.ticket, 1, origin=[], failed=[(0, raised(lost))])


@dataclass(slots=True)
class _Paused:
    """An expansion that has paused: its children to come, its item, its context, the seconds that it ran."""

    children: Iterator[Any] | AsyncIterator[Any]
    job: Job
    context: Any
    ran_s: float


class Caller(Writing):
    """Runs the jobs of one worker of one stage.

    The loops are written once, as coroutines: with a plain function they never wait, so `drive`
    runs them without an event loop. `clock` and `cpu_clock` give seconds (None: no stamps, for a
    virtual clock). With `halts` (True, or classes of exceptions) a job ends at its first such failure;
    with `RetryAfter` it always does. With `writes` the function takes up to WRITE_ITEMS values at once
    (a sink's `write`); a failure that `retry` covers then ends the job, others are traced to their item.
    `timed`: the start of each call is published. A scan keeps its `states` by key and begins with `initial`.
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
        per_member: bool = False,
        halts: bool | tuple[type[BaseException], ...] = False,
        retry: Retry | None = None,
        timed: bool = False,
        initial: Any = None,
        states: dict[Any, Any] | None = None,
        run: str = "run",
        clock: Callable[[], float] | None = None,
        cpu_clock: Callable[[], float] | None = None,
    ) -> None:
        self.kind, self.fn, self._size = kind, fn, size
        self._atomic, self._most, self._writes, self._retry = atomic, most_children, writes, retry
        self._per_member = per_member
        classes = halts if isinstance(halts, tuple) else (BaseException,) if halts else ()
        self._halts: tuple[type[BaseException], ...] = (RetryAfter, *classes)
        self.asynchronous = is_async(fn)
        self._clock, self._cpu_clock = clock, cpu_clock
        self._timer = clock if timed else None
        self._states, self._run = States(initial, states), run
        self._plain = kind not in ("filter", "scan") and self._timer is None
        self._random = random.Random(0).random  # picks the item to be timed
        self._paused: dict[int, _Paused] = {}

    async def run(self, job: Job, cell: Cell) -> Answer:
        """Run `job`, one call at a time. Raises nothing but what ``cell.passes`` names."""
        if job.resumed:
            paused = self._paused.pop(job.ticket, None)
            if paused is None:
                return unstarted(job)
            job = replace(paused.job, limit=job.limit)
            return await self._answer(job, cell, functools.partial(self._resume, paused))
        loop = {"flat_map": self._expand, "map_batches": self._batches}.get(self.kind, self._calls)
        if self._writes:
            loop = self._write_batches if self._per_member else self._write
        return await self._answer(job, cell, loop)

    async def _answer(self, job: Job, cell: Cell, loop: Callable[..., Coroutine[Any, Any, None]]) -> Answer:
        started, cpu = self._stamps()
        out = Outcomes(self.kind, self._size, atomic=self._atomic, started=started)
        cell.run, cell.clock = self._run, self._clock
        await isolated(loop(job, cell.begin(job, out), cell, out), cell)
        if self.kind == "sink":
            out.values, out.origin = [], None
        stopped, cpu_stopped = self._stamps()
        return out.answer(job.ticket, stopped, cpu_stopped - cpu)

    async def close(self) -> None:
        """Close paused generators. What they raise is dropped: their items have no fate left to change."""
        while self._paused:
            children = self._paused.popitem()[1].children
            close = getattr(children, "aclose", None) or getattr(children, "close", None)
            try:
                if close is not None and inspect.isawaitable(waiting := close()):
                    await waiting
            except Exception:  # noqa: S110 - see the docstring
                pass

    def _stamps(self) -> tuple[float, float]:
        return (self._clock() if self._clock else 0.0), (self._cpu_clock() if self._cpu_clock else 0.0)

    def _failed(self, offset: int, error: BaseException, cell: Cell, out: Outcomes) -> None:
        """The call for the input at `offset` raised."""
        if isinstance(error, cell.passes):
            raise error
        record = raised(error)
        out.failed.append((offset, record))
        out.sparse()
        if isinstance(record.error, self._halts):
            out.halted = True
            cell.cut()

    async def _calls(self, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        """map, filter, scan and plain sinks: a call for each item."""
        count, clock = len(job.values), self._clock
        if clock is not None and count > 1:
            # One item picked at random is timed alone; clock calls around each would cost more than small calls do.
            await self._span(islice(values, int(self._random() * count)), job, cell, out)
            taken, began = out.taken, clock()
            await self._span(islice(values, 1), job, cell, out)
            if out.taken > taken:
                out.sample = clock() - began
        await self._span(values, job, cell, out)

    async def _span(self, values: Iterator[Any], job: Job, cell: Cell, out: Outcomes) -> None:
        """Call the function for each of `values`, which are claimed as they are drawn."""
        if self._plain and out.origin is None:
            while await self._dense(values, cell, out):
                await FRESH
            if out.origin is None:
                return
        await self._each(values, job, cell, out)

    async def _each(self, values: Iterator[Any], job: Job, cell: Cell, out: Outcomes) -> None:
        """The loop that publishes what others may need, with all that the hot one leaves out."""
        fn, asynchronous, push, timer = self.fn, self.asynchronous, out.values.append, self._timer
        filters, scans, states, keys = self.kind == "filter", self.kind == "scan", self._states, job.keys
        context, base = cell.context, cell.base
        for at, value in enumerate(values, out.taken):
            try:
                changed = context != base
            except Exception:  # values of context variables are the user's, and so is their comparison
                changed = True
            if changed:
                await FRESH
                context = cell.context
            if timer is not None:
                cell.began = timer()
            try:
                if scans:
                    key = None if keys is None else keys[at]
                    result = fn(states.before(key), value)
                else:
                    result = fn(value)
                if asynchronous:
                    result = await result
                if filters:
                    result = value if result and result is not DROP else DROP
                elif scans:
                    result = states.settle(key, result, cell, timed=timer is not None)
            except BaseException as error:
                self._failed(at, error, cell, out)
            else:
                if result is DROP:
                    out.sparse()
                else:
                    push(result)
                    if out.origin is not None:
                        out.origin.append(at)
            cell.began = None
            out.taken = at + 1

    async def _dense(self, values: Iterator[Any], cell: Cell, out: Outcomes) -> bool:
        """The hot loop: while every call gives a value, outputs need no record of their inputs.

        Whether it ended because a context variable was changed.
        """
        fn, push, context, base = self.fn, out.values.append, cell.context, cell.base
        try:
            if self.asynchronous:
                for value in values:
                    result = await fn(value)
                    if result is DROP:
                        break
                    push(result)
                    if context != base:
                        return True
                else:
                    out.taken = len(out.values)
                    return False
            else:
                for value in values:
                    result = fn(value)
                    if result is DROP:
                        break
                    push(result)
                    if context != base:
                        return True
                else:
                    out.taken = len(out.values)
                    return False
            out.sparse()
        except BaseException as error:  # whatever a user function raises is an outcome
            at = len(out.values)
            if at > cell.cursor:  # it was the comparison of the contexts, whose values are the user's
                return True
            self._failed(at, error, cell, out)
        out.taken = len(out.values) + 1
        return False

    async def _expand(self, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        out.nbytes, out.origin = 0, []
        for at, value in enumerate(values):
            cell.began = self._timer() if self._timer else None
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
                    return
            cell.began = None
            out.taken = at + 1
            if len(out.values) >= job.limit or out.nbytes >= PART_BYTES:
                return
            if cell.changed:
                await FRESH

    async def _resume(self, paused: _Paused, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        out.nbytes, out.origin = 0, []
        next(values, None)
        await Enter(paused.context)
        cell.began = self._timer() - paused.ran_s if self._timer else None
        await self._children(paused.children, 0, job, cell, out)
        cell.began = None
        out.taken = 0 if out.parked else 1

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
                    self._pause(children, at, job, cell)
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
            if self._atomic and not isinstance(error, cell.passes):
                del out.values[first:], origin[first:]
            self._failed(at, error, cell, out)
        finally:
            out.nbytes = nbytes

    def _pause(self, children: Iterator[Any] | AsyncIterator[Any], at: int, job: Job, cell: Cell) -> None:
        keys = None if job.keys is None else job.keys[at : at + 1]
        one = replace(job, values=[None], tags=job.tags[at : at + 1], keys=keys)
        ran_s = self._timer() - cell.began if self._timer and cell.began is not None else 0.0
        self._paused[job.ticket] = _Paused(children, one, cell.context, ran_s)

    async def _batches(self, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        """map_batches: a call for each list; offsets count members."""
        origin = out.sparse()
        out.members = list(accumulate(map(len, job.values), initial=0))  # the function may change its list
        for at, batch in enumerate(values):
            first, stop = out.members[at : at + 2]
            cell.began = self._timer() if self._timer else None
            try:
                results = self.fn(batch)
                if self.asynchronous:
                    results = await results
                results = list(results)
                if len(results) != stop - first:
                    raise ValueError(f"{stop - first} items went in and {len(results)} came back: give one for each")
            except BaseException as error:
                had = len(out.failed)
                self._failed(first, error, cell, out)
                out.failed += [(member, out.failed[had][1]) for member in range(first + 1, stop)]
                out.broke.append(at)
            else:
                for offset, result in enumerate(results, first):
                    if type(result) is Failure and result.seq is None:
                        out.failed.append((offset, raised(result.error)))
                    elif result is not DROP:
                        out.values.append(result)
                        origin.append(offset)
            cell.began = None
            out.taken = at + 1
            if cell.changed:
                await FRESH
