"""Reads the source of a run: never ahead of what was granted, never on the loop's time.

A plain iterable or `Source` is read in a thread of its own, an async one in a task of the loop; a
list, tuple or range, which cannot block, on the loop itself.
Rows wait in ``rows`` until the driver takes them; it is told once, however many come meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from sys import maxsize
from typing import Any, Protocol

from headway.errors import CheckpointError
from headway.run.mailbox import Mailbox
from headway.size import FLAT, one_size, size_of

READ_AT_ONCE = 1024
"""Most rows that `Source.read` is asked for at once."""


@dataclass(frozen=True)
class Start:
    """Where to begin: `seek` to a position, if there is one, at which row number `row` comes; read `skip` rows and drop them.

    `notes`: note the source's positions on the way.
    """

    row: int = 0
    skip: int = 0
    seek: tuple[Any] | None = None
    notes: bool = False

    def missing(self, read: int) -> CheckpointError:
        """What to raise where the source has only `read` rows from the beginning of this run."""
        return CheckpointError(
            f"the source has only {self.row + read:,} rows now; this job stood at row {self.row + self.skip:,}. Nothing was "
            "done. Give it the source that it had, or a name of its own (job=NAME) to run this one from its beginning"
        )


class Reader(Protocol):
    """What both kinds offer to the driver."""

    marks: deque[tuple[int, Any]]
    """Positions of the source, each with the number of the row that comes there, where they are noted."""

    def start(self) -> None:
        """Begin; nothing is read yet."""

    def take(self) -> list[Any]:
        """The rows that have come since."""

    def grant(self, total: int, each: int) -> None:
        """Read until `total` rows were read since the start, or one of more than `each` bytes, which is to be taken first."""

    def stop(self) -> None:
        """Read no more and close the source; a read that blocks is left alone."""

    async def join(self, timeout_s: float) -> bool:
        """Wait until the source is closed; whether it is."""


def open_rows(source: Any) -> Any:
    """What a source's description gives to be read: factories are called, iterables asked for an iterator."""
    try:
        if callable(source) and not _is_rows(source):
            source = source()
        if not _is_rows(source):
            raise TypeError(
                f"a source must be an iterable, an async iterable, a Source or a function that returns one, not "
                f"{type(source).__qualname__}"
            )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _Unopened(error)
    return source


def close_unread(source: Any) -> None:
    """Close a source of which nothing was read."""
    if not (hasattr(source, "__iter__") or hasattr(source, "__aiter__")) and hasattr(source, "close"):
        source.close()


class _Unopened:
    """Stands for a source whose factory raised: the run ends as if the first read had."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __iter__(self) -> Iterator[Any]:
        raise self._error


def _is_rows(source: Any) -> bool:
    if isinstance(source, type):  # a class whose instances can be iterated, as `itertools.count`, makes them
        return False
    return hasattr(source, "__iter__") or hasattr(source, "__aiter__") or hasattr(source, "read")


def make_reader(
    source: Any,
    mailbox: Mailbox,
    on_rows: Callable[[], None],
    on_end: Callable[[BaseException | None], None],
    size: Callable[[Any], int] | None = None,
    start: Start = Start(),
) -> Reader:
    """The reader for `source`. `on_rows` and `on_end` are called on the loop; after `on_end` no rows come.

    `size`: the user's own function for the bytes of a row.
    """
    if hasattr(source, "__aiter__"):
        return TaskReader(source, mailbox, on_rows, on_end, size, start)
    if type(source) in (list, tuple, range):
        return MemoryReader(source, mailbox, on_rows, on_end, size, start)
    return ThreadReader(source, mailbox, on_rows, on_end, size, start)


class _Reader:
    """What both kinds keep: the rows that wait, what was granted and read, whether the driver was told."""

    def __init__(
        self,
        source: Any,
        mailbox: Mailbox,
        on_rows: Callable[[], None],
        on_end: Callable[[BaseException | None], None],
        size: Callable[[Any], int] | None = None,
        start: Start = Start(),
    ) -> None:
        self.rows: deque[Any] = deque()
        self.marks: deque[tuple[int, Any]] = deque()
        self._start = start
        self._source, self._mailbox, self._on_rows, self._on_end = source, mailbox, on_rows, on_end
        self._granted = self._read = self._taken = self._large = 0
        self._each = maxsize
        self._size = partial(one_size, size) if size is not None else size_of
        self._stopping = self._told = False

    def take(self) -> list[Any]:
        """The rows that have come, on the loop."""
        self._told = False
        pop = self.rows.popleft
        rows = [pop() for _ in range(len(self.rows))]
        self._taken += len(rows)
        return rows

    def _full(self) -> bool:
        """Whether no more may be read before the loop has taken what there is, or has granted more."""
        return self._read >= self._granted or self._large > self._taken


class MemoryReader(_Reader):
    """Takes rows from what is in memory already: that never blocks, so it needs no thread."""

    _ended = False

    def start(self) -> None:
        """Nothing is to be started."""
        self._tell()

    def grant(self, total: int, each: int) -> None:
        """Allow rows up to the number `total`; their bytes are there already."""
        self._granted = total
        self._tell()

    def _tell(self) -> None:
        """Have the rows taken that may be; after the last one comes the end."""
        there = len(self._source) - self._start.skip
        if self._read >= there and not self._told:
            if not self._ended:
                self._ended = True
                self._mailbox.post(self._on_end, self._start.missing(len(self._source)) if there < 0 else None)
        elif self._granted > self._read and not self._told and not self._stopping:
            self._told = True
            self._mailbox.post(self._on_rows)

    def take(self) -> list[Any]:
        """The rows that may be taken."""
        self._told = False
        rows = (
            []
            if self._stopping
            else list(self._source[self._start.skip + self._read : self._start.skip + self._granted])
        )
        self._read += len(rows)
        return rows

    def stop(self) -> None:
        """Give no more rows."""
        self._stopping = True
        if not self._ended:
            self._ended = True
            self._mailbox.post(self._on_end, None)

    async def join(self, timeout_s: float) -> bool:
        """Nothing runs."""
        return True


class ThreadReader(_Reader):
    """Reads in a daemon thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._waiting = False
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name="headway-source", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def grant(self, total: int, each: int) -> None:
        """Allow rows up to the number `total`; it may be less than before."""
        self._granted, self._each = total, each
        if self._waiting:
            self._wake.set()

    def stop(self) -> None:
        """End the thread when the read that may be going on returns."""
        self._stopping = True
        self._wake.set()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the thread."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_s, 0.0005
        while not self._ended.is_set() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        if self._ended.is_set():
            self._thread.join(timeout_s)
        return self._ended.is_set()

    def _may_read(self) -> bool:
        """Wait for a grant; False when the reading is to end."""
        while self._full() and not self._stopping:
            self._waiting = True
            if self._full() and not self._stopping:
                self._wake.wait()
            self._wake.clear()
            self._waiting = False
        return not self._stopping

    def _main(self) -> None:
        error: BaseException | None = None
        rows: Iterator[Any] | None = None
        try:
            if hasattr(self._source, "__iter__"):
                rows = iter(self._source)
                self._skip(lambda count: sum(1 for _ in islice(rows, count)))
                self._iterate(rows)
            else:
                self._fetch()
        except BaseException as raised:
            error = None if self._stopping else raised  # nobody waits for more
        try:
            close = getattr(rows, "close", None) if inspect.isgenerator(rows) else None
            if close is None and rows is None:
                close = getattr(self._source, "close", None)
            if close is not None:
                close()
        except BaseException as raised:
            error = error or raised
        self._mailbox.post(self._on_end, error)
        self._ended.set()

    def _iterate(self, rows: Iterator[Any]) -> None:
        if not self._may_read():
            return
        push, size, read = self.rows.append, self._size, 0
        for row in rows:
            large = type(row) not in FLAT and size(row) > self._each
            push(row)
            del row  # not held while this thread waits
            read += 1  # noqa: SIM113 - `enumerate` would hold the row too
            self._read = read
            if large:
                self._large = read
            if not self._told:
                self._told = True
                self._mailbox.post(self._on_rows)
            if (large or read >= self._granted or self._stopping) and not self._may_read():
                return

    def _skip(self, read: Callable[[int], int]) -> None:
        """Drop what an earlier run has done; `read` drops up to so many rows and gives their number."""
        left = self._start.skip
        while left and not self._stopping:
            got = read(min(left, READ_AT_ONCE))
            if not got:
                raise self._start.missing(self._start.skip - left)
            left -= got

    def _fetch(self) -> None:
        start = self._start
        if start.seek is not None:
            self._source.seek(*start.seek)
        self._skip(lambda count: len(self._source.read(count)))
        while self._may_read():
            rows = self._source.read(min(READ_AT_ONCE, self._granted - self._read))
            if not len(rows):
                return
            self.rows.extend(rows)
            self._read += len(rows)
            if start.notes:
                self.marks.append((start.row + start.skip + self._read, self._source.position()))
            if any(self._size(row) > self._each for row in rows):
                self._large = self._read
            del rows  # not held while this thread waits
            if not self._told:
                self._told = True
                self._mailbox.post(self._on_rows)


class TaskReader(_Reader):
    """Reads an async iterable in a task of the loop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._main(), name="headway-source")

    def grant(self, total: int, each: int) -> None:
        """Allow rows up to the number `total`."""
        self._granted, self._each = total, each
        self._wake.set()

    def stop(self) -> None:
        """Cancel the read that may be going on and close the source."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def join(self, timeout_s: float) -> bool:
        """Wait for the task."""
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        return bool(done)

    async def _main(self) -> None:
        error: BaseException | None = None
        rows: AsyncIterator[Any] | None = None
        try:
            rows = self._source.__aiter__()
            for number in range(self._start.skip):
                try:
                    await rows.__anext__()
                except StopAsyncIteration:
                    raise self._start.missing(number) from None
                if not number % 100:
                    await asyncio.sleep(0)
            while True:
                while self._full():
                    self._wake.clear()
                    await self._wake.wait()
                self.rows.append(await rows.__anext__())
                self._read += 1
                if self._size(self.rows[-1]) > self._each:
                    self._large = self._read
                if not self._told:
                    self._told = True
                    self._mailbox.post(self._on_rows)
                if not self._read % 100:
                    await asyncio.sleep(0)  # a source that never waits must not hold the loop
        except BaseException as raised:
            # Only the end of a source that was opened is its end.
            ended = self._stopping or (rows is not None and isinstance(raised, StopAsyncIteration))
            error = None if ended else raised
        try:
            if hasattr(rows, "aclose"):
                await rows.aclose()  # type: ignore[union-attr]
        except BaseException as raised:
            error = error or raised
        self._mailbox.post(self._on_end, error)
