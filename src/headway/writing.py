"""The loops that give values to a sink: many at once, and in halves where that fails. Part of `call.Caller`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from typing import Any

from headway.claim import FRESH, Cell, Outcomes, raised
from headway.core.policy import Retry
from headway.core.ticket import Job
from headway.errors import RetryAfter

WRITE_ITEMS = 1000
"""Most items that a sink is given at once."""


class Writing:
    """Writes the values of a job. A write that fails is made again in halves, the left one first, down to the item."""

    fn: Callable[..., Any]
    asynchronous: bool
    _retry: Retry | None
    _timer: Callable[[], float] | None

    def _failed(self, offset: int, error: BaseException, cell: Cell, out: Outcomes) -> None:
        """The call for the input at `offset` raised."""
        raise NotImplementedError

    def _waits(self, error: BaseException, job: Job) -> bool:
        """Whether the write that raised `error` is to be made again later, as a whole."""
        covered = self._retry is not None and self._retry.covers(error, job.attempt)
        return covered or isinstance(error, RetryAfter)

    async def _write_batches(self, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        """A sink's `write` for each batch, whose members fail alone; offsets count members. See `_write`.

        A batch of which a part was written is not written again as a whole, whatever `retry` covers.
        """
        out.members = list(accumulate(map(len, job.values), initial=0))
        for at, batch in enumerate(values):
            first = out.members[at]
            waiting = [(first, list(batch))]
            while waiting:
                start, some = waiting.pop()
                cell.began = self._timer() if self._timer else None
                try:
                    written = self.fn(some)
                    if self.asynchronous:
                        await written
                except BaseException as error:
                    record = raised(error)
                    if len(some) == len(batch) and self._waits(record.error, job):
                        out.again = record
                        return
                    if len(some) == 1 or isinstance(error, cell.passes):
                        self._failed(start, error, cell, out)
                    else:
                        half = len(some) // 2
                        waiting += [(start + half, some[half:]), (start, some[:half])]
            cell.began = None
            out.taken = at + 1
            if cell.changed:
                await FRESH

    async def _write(self, job: Job, values: Iterator[Any], cell: Cell, out: Outcomes) -> None:
        """A sink's `write`, for as many values as it may be given at once.

        If that fails, each half is written, the left one first, down to the item that fails; what `retry`
        covers is left to be written again as a whole.
        """
        waiting: list[list[Any]] = []
        while True:
            some = waiting.pop() if waiting else list(islice(values, WRITE_ITEMS))
            if not some or not cell.enter(out.taken, out.taken + len(some), self._timer() if self._timer else None):
                return
            try:
                written = self.fn(some)
                if self.asynchronous:
                    await written
            except BaseException as error:
                cell.began = None
                if isinstance(error, cell.passes):
                    raise
                record = raised(error)
                if self._waits(record.error, job):
                    out.again = record
                    return
                if len(some) > 1:
                    half = len(some) // 2
                    waiting += [some[half:], some[:half]]
                    continue
                self._failed(out.taken, error, cell, out)
            cell.began = None
            out.taken += len(some)
            if cell.changed:
                await FRESH
