"""What a child publishes of the job in its hands, in memory that outlives it.

The child writes the outcome of a call before it moves its cursor, so its death, at whatever instant,
costs the call at the cursor and nothing else. The parent reads: which call runs, since when, and after
a death what had been done. One word says how far the child is: twice the calls done since it started,
plus one while a call runs; it is stored last, and whole.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from headway.call import Caller, drive, is_async, raised
from headway.claim import Cell
from headway.core.block import DROP, Tag
from headway.core.ticket import Answer, Job
from headway.errors import Failure, Raised
from headway.run.wire import Gaps, Pack, local, pack_gaps, part_of, portable, unpack_gaps
from headway.run.worker import Recipe

SIZE = 1 << 20
"""Bytes of one worker's memory. Pages that no outcome reaches are never allocated."""
CALLS = 1024
"""Most calls of a job that are recorded; a block has no more."""

_STATE, _TICKET, _BASE, _BEGAN, _TAKEN, _GAPS, _RESUMED, _ENDS = range(8)
_AREA = 8 * (_ENDS + CALLS)
_NONE = -1


class Journal:
    """The memory: made by the parent, mapped by the child from the descriptor that it is given."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = _segment() if handle is None else handle
        self.memory = mmap.mmap(self.handle, SIZE)
        head = memoryview(self.memory)[:_AREA]
        self.words, self.times = head.cast("q"), head.cast("d")
        if handle is None:
            self.words[_TICKET] = _NONE

    def release(self) -> None:
        """Close the descriptor: the mapping is enough, and goes with this object."""
        os.close(self.handle)

    def running(self) -> tuple[int, float] | None:
        """Ticket and start of the call that runs."""
        words = self.words
        while (state := words[_STATE]) & 1:
            ticket, began = words[_TICKET], self.times[_BEGAN]
            if words[_STATE] == state:  # else these may be of two calls
                return ticket, began
        return None

    def where(self) -> tuple[int, int, int] | None:
        """Ticket and offset of the input of the call that runs; how far the child is."""
        words = self.words
        state, ticket = words[_STATE], words[_TICKET]
        at, end = (state >> 1) - words[_BASE], _AREA + words[_GAPS]
        gaps = unpack_gaps(self.memory[_AREA:end]) if end > _AREA and state & 1 else None
        if not state & 1 or words[_STATE] != state:
            return None
        return ticket, at if gaps is None else gaps.good[at], state

    @property
    def ticket(self) -> int:
        """Ticket of the job in hand, -1 if none is."""
        return self.words[_TICKET]

    def begun(self, job: Job) -> bool:
        """Whether `job`, which has its ticket, is in hand: not the part of an expansion before it, which was answered."""
        return self.words[_RESUMED] == job.resumed

    def rebuild(self, recipe: Recipe, job: Job) -> tuple[Answer, int | None]:
        """After the child's death: the answer that it could have given for `job`, and the offset of the call that ran.

        The outcomes are run through the same loop as in the child, so nothing is decided a second way.
        """
        words = self.words
        done = (words[_STATE] >> 1) - words[_BASE]
        cursor: int | None = done if words[_STATE] & 1 else None
        if cursor is None and job.resumed:
            cursor = 0  # its generator is gone, also before the child has said that it goes on
        start, end = _AREA, _AREA + words[_GAPS]
        gaps = unpack_gaps(self.memory[start:end]) if end > start else None
        if cursor is not None and gaps is not None:
            cursor = gaps.good[cursor]
        if not records(recipe):
            answer = Answer(job.ticket, 0)
        else:
            spans = []
            for signed in words[_ENDS : _ENDS + done]:
                start, end = end, abs(signed)
                spans.append((signed > 0, self.memory[start:end]))
            answer = _replay(recipe, job, spans, gaps)
        answer.started = self.times[_TAKEN]
        answer.stopped = perf_counter() if cursor is None else self.times[_BEGAN]
        return answer, cursor


def records(recipe: Recipe) -> bool:
    """Whether outcomes are recorded: not where a block may be run again, nor for what a generator has yet to give."""
    return not recipe.idempotent and recipe.kind != "flat_map"


def _segment() -> int:
    """A descriptor of `SIZE` bytes of memory without a name: nothing is left when the last process has closed it."""
    if sys.platform == "linux":
        handle = os.memfd_create("headway")
    else:
        import tempfile

        handle, name = tempfile.mkstemp()
        os.unlink(name)  # noqa: PTH108 - by the name that was just made
    os.ftruncate(handle, SIZE)
    return handle


def _replay(recipe: Recipe, job: Job, spans: list[tuple[bool, bytes]], gaps: Gaps | None) -> Answer:
    told: dict[int, Raised] = {}
    outcomes = iter(spans)

    def recorded(*_: Any) -> Any:
        good, data = next(outcomes)
        if good:
            return pickle.loads(data)
        record = local(*pickle.loads(data))
        told[id(record.error)] = record
        raise record.error

    good: Sequence[int] = gaps.good if gaps is not None else range(len(job.values))
    part = part_of(job, good[: len(spans)])
    caller = Caller(recipe.kind, recorded, size=recipe.size, halts=recipe.halts, states=recipe.states)
    answer = drive(caller.run(part, Cell()))
    # The worker's own traceback is what was raised; here it was only raised again.
    answer.failed = [(offset, told.get(id(why.error), why)) for offset, why in answer.failed]
    return gaps(answer) if gaps is not None else answer


class Writer:
    """The child's side. Jobs are announced with `begin` and `end`; between them calls write what happens."""

    def __init__(self, journal: Journal, recipe: Recipe) -> None:
        self._journal, self._words, self._times = journal, journal.words, journal.times
        self._states = recipe.states
        self._cell = Cell()
        self._end, self._slot = _AREA, _ENDS
        self._ran_s = 0.0
        self._paused: dict[int, float] = {}

    @property
    def ticket(self) -> int:
        """Ticket of the job in hand, -1 if none is."""
        return self._words[_TICKET]

    @property
    def tag(self) -> Tag | None:
        """Tag of the item whose call was begun last in the job in hand."""
        job, at = self._cell.job, self._cell.at
        return job.tags[at] if self.ticket != _NONE and job is not None and 0 <= at < len(job.tags) else None

    def begin(self, job: Job, cell: Cell, gaps: Gaps | None) -> None:
        """The job is taken. One that goes on has taken the time before its pause already."""
        words = self._words
        lacking = pack_gaps(gaps, SIZE // 4) if gaps is not None else b""
        words[_BASE], words[_GAPS] = words[_STATE] >> 1, len(lacking)
        self._end, self._slot = _AREA + len(lacking), _ENDS
        self._journal.memory[_AREA : self._end] = lacking
        self._cell = cell
        self._times[_TAKEN] = perf_counter()
        words[_RESUMED], words[_TICKET] = job.resumed, job.ticket
        self._ran_s = self._paused.pop(job.ticket, 0.0) if job.resumed else 0.0

    def states(self, answer: Answer) -> dict[Any, Any]:
        """Scans: the states that the job in hand has changed."""
        job, kept = self._cell.job, self._states
        if job is None or not kept:
            return {}
        keys = [None] if job.keys is None else job.keys[: answer.taken]
        return {key: kept[key] for key in keys if key in kept}

    def pause(self) -> None:
        """The expansion in hand has paused."""
        self._paused[self.ticket] = perf_counter() - self._times[_BEGAN]

    def end(self) -> None:
        """The job has been answered."""
        self._words[_STATE] += self._words[_STATE] & 1
        self._words[_TICKET] = _NONE

    def published(self, values: Iterator[Any]) -> Iterator[Any]:
        """`values`, publishing the cursor where nothing is recorded."""
        words, times, clock = self._words, self._times, perf_counter
        state = words[_STATE] - 1
        for value in values:
            times[_BEGAN] = clock() - self._ran_s
            state += 2
            words[_STATE] = state
            yield value

    def recording(self, recipe: Recipe) -> Callable[..., Any]:
        """The stage's function, writing the outcome of each call. Flat, since it runs once for each row."""
        fn, words, times, memory, clock = recipe.fn, self._words, self._times, self._journal.memory, perf_counter
        turn, members = _TURNS.get(recipe.kind), recipe.kind == "map_batches"
        pack, dropped = Pack("result"), _quick(DROP)
        quick: Callable[[Any], bytes] = _quick
        last = _ENDS + CALLS

        def write(data: bytes, state: int, sign: int = 1) -> None:
            start, slot = self._end, self._slot
            end = start + len(data)
            if end > SIZE or slot == last:
                # No room: the job ends here, and its answer takes this outcome along before the cursor moves.
                self._cell.cut()
                return
            memory[start:end] = data
            words[slot] = sign * end
            self._end, self._slot = end, slot + 1
            words[_STATE] = state + 1

        def packed(result: Any) -> bytes:
            nonlocal quick
            if result is DROP:
                return dropped
            try:
                return quick(result)
            except BaseException:
                quick = pack
                return pack(sendable(result, pack) if members else result)

        def failed(error: BaseException, state: int) -> None:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next or error.__traceback__
            write(_quick(portable(raised(error))), state, -1)

        def call(*values: Any) -> Any:
            # `packed` and `write` in one piece: two calls less for each row.
            times[_BEGAN] = clock()
            words[_STATE] = state = words[_STATE] + 1
            try:
                result = fn(*values)
                if turn is not None:
                    result = turn(result)
                try:
                    data = dropped if result is DROP else quick(result)
                except BaseException:
                    data = packed(result)
            except BaseException as error:
                failed(error, state)
                raise
            start, slot = self._end, self._slot
            end = start + len(data)
            if end > SIZE or slot == last:
                self._cell.cut()
                return result
            memory[start:end] = data
            words[slot] = end
            self._end, self._slot = end, slot + 1
            words[_STATE] = state + 1
            return result

        async def call_async(*values: Any) -> Any:
            times[_BEGAN] = clock()
            words[_STATE] = state = words[_STATE] + 1
            try:
                result = await fn(*values)
                if turn is not None:
                    result = turn(result)
                data = packed(result)
            except BaseException as error:
                failed(error, state)
                raise
            write(data, state)
            return result

        return call_async if is_async(fn) else call


def sendable(results: list[Any], pack: Callable[[Any], bytes]) -> list[Any]:
    """`results` of a batch, with a failure in the place of each member that cannot be sent: the others stand."""
    members = []
    for member in results:
        try:
            pack(member)
        except BaseException as error:
            record = raised(member.error if type(member) is Failure else error)
            member = Failure(local(*portable(record)).error)
        members.append(member)
    return members


_quick: Callable[[Any], bytes] = partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL)
_TURNS: dict[str, Callable[[Any], Any]] = {
    "map_batches": list,
    "filter": lambda result: result is not DROP and bool(result),
    "sink": lambda _result: None,
}
"""What is kept of a result, by kind of stage; the whole of it by default."""
