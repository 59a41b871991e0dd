"""Input files as ranges: pieces of about 1 MiB, each ending at a record end, in file order.

A range is only numbers where any process can read its bytes, so that it costs nothing to send;
of what can only be read in sequence it carries its bytes. What does not belong here: how a format
is cut, what the records hold.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headway.errors import HeadwayError
from headway.io.chunk import Chunk, Record
from headway.io.columns import ColumnType
from headway.io.content import Content, Seal
from headway.io.location import STANDARD_INPUT, Location

RANGE_BYTES = 1 << 20


class Range(NamedTuple):
    """Whole records of one file: its bytes `start` to `end`; `line` is the physical line of `start`.

    `first` and `last`: of its file, where the file is read from its beginning. Of Parquet the rows
    are counted instead of bytes and lines.
    """

    number: int
    file: int
    start: int
    end: int
    line: int
    first: bool
    last: bool
    data: bytes | None = None


class Head(NamedTuple):
    """What stands before the first row: the names, or only how many fields the first record has.

    `start` and `line` are where the rows begin, `blanks` the blank lines before; `types` are those
    that the file itself declares.
    """

    names: tuple[str, ...] | None
    width: int
    start: int
    line: int
    blanks: int
    types: tuple[ColumnType, ...] | None = None


class Place(NamedTuple):
    """A record's file, physical line (from 1), byte offset, length without its line ending, and bytes."""

    file: int
    line: int
    byte: int
    length: int
    raw: bytes


class Layout:
    """Which line of a range a record starts on, told while the range is parsed.

    Most records have one line each; only where that changes is anything kept.
    """

    __slots__ = ("_records", "_shift", "_shifts")

    def __init__(self) -> None:
        self._records, self._shifts, self._shift = array("q"), array("q"), 0

    def starts(self, record: int, line: int) -> None:
        """Tell that record number `record` starts on `line`, both from 0 within the range."""
        if line - record != self._shift:
            self._shift = line - record
            self._records.append(record)
            self._shifts.append(self._shift)

    def shifted(self, records: Iterable[int], shifts: Iterable[int]) -> None:
        """Tell of whole numbers of lines by which records, ascending, and those behind them are shifted; nothing was told yet."""
        self._records.extend(records)
        self._shifts.extend(shifts)

    def line_of(self, record: int) -> int:
        """Give the line, from 0, on which a record starts."""
        found = bisect_right(self._records, record)
        return record + (self._shifts[found - 1] if found else 0)


@dataclass(slots=True)
class Found:
    """What a range holds besides its good records; complete once all of them were given."""

    lines: int = 0
    records: int = 0
    blanks: array[int] = field(default_factory=lambda: array("q"))
    """for each blank line the number of the record that follows it"""
    layout: Layout = field(default_factory=Layout)
    faults: dict[int, tuple[str, str]] = field(default_factory=dict)
    """records that are none: a short reason, and a sentence"""


class Cut(NamedTuple):
    """Where the next range ends, the lines in it, and whether the file ends with it."""

    end: int
    lines: int
    last: bool
    data: bytes | None


class Places(Protocol):
    """Where the records of a range stand, by number from 0."""

    def __getitem__(self, record: int, /) -> Place: ...


class Reader(Protocol):
    """Reads the ranges of one file, in any process, ascending if it can be helped."""

    def read(self, span: Range) -> Any:
        """Give what a range holds. Raises HeadwayError if the file is not what it was."""
        ...

    def records(self, data: Any, span: Range, found: Found) -> Iterator[Record]:
        """Give the good records, in order; what else there is goes into `found`."""
        ...

    def chunks(self, data: Any, span: Range, found: Found, *, by_column: bool = False) -> Iterator[Chunk]:
        """Give the same, some records at a time; `by_column`: nobody looks at single records."""
        ...

    def places(self, data: Any, span: Range, layout: Layout, records: int) -> Places:
        """Give where each record stands."""
        ...

    def nbytes(self, data: Any) -> int:
        """Give the size of what `read` gave."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class InputFile(Protocol):
    """One file of known format, looked at once. It can be sent to another process."""

    @property
    def location(self) -> Location:
        """Where it is."""
        ...

    @property
    def head(self) -> Head:
        """What stands before its rows."""
        ...

    @property
    def seal(self) -> Seal:
        """What it is known by."""
        ...

    @property
    def size(self) -> int | None:
        """In the unit of positions; None where it is known only at the end."""
        ...

    def with_head(self, head: Head) -> InputFile:
        """Give the same file read as another head says."""
        ...

    def open(self) -> Content | None:
        """Open it, to be cut."""
        ...

    def cut(self, content: Any, at: int, line: int, range_bytes: int) -> Cut:
        """Find the range that begins at a place, which is a record start."""
        ...

    def reader(self) -> Reader:
        """Make what reads its ranges."""
        ...

    def printable(self, raw: bytes) -> tuple[str, bool]:
        r"""Give a record as text with undecodable bytes as ``\xNN``, and whether there were any."""
        ...


class Ranges:
    """Source of `Range` over files, in their order and without gaps.

    A file without rows is one empty range. `contents` are inputs that are open already, by number of
    their file; they are closed here. Raises HeadwayError where one record is longer than 256 MiB.
    `position` is where the next range begins, for `seek`.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        contents: Mapping[int, Content] | None = None,
        *,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self.files, self._range_bytes = files, range_bytes
        self._contents: dict[int, Content | None] = dict(contents or {})
        self._kept: dict[int, Range] = {}
        self._lines: dict[int, int] = {}
        self._stopped = False
        self.number = self._file = 0
        self._at = self._line = 0
        self._fresh = True
        """the first range of the current file is still to come"""

    @property
    def head(self) -> Head:
        """What all files have before their rows: names, width and types."""
        return self.files[0].head

    @property
    def size(self) -> int | None:
        """The size of all files; None where one is known only at its end."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def ended(self) -> bool:
        """Whether the last file was given to its end."""
        return self._file >= len(self.files)

    def read(self, n: int) -> Sequence[Range]:
        """Give up to `n` ranges; none at the end of the last file."""
        ranges: list[Range] = []
        while len(ranges) < n and not self.ended and not self._stopped:
            if (span := self._next()) is not None:
                ranges.append(span)
        return ranges

    def __iter__(self) -> Iterator[Range]:
        while ranges := self.read(1):
            yield ranges[0]

    def position(self) -> dict[str, Any]:
        """Where the next range begins; behind the last one, the end of the last file."""
        if self._fresh and not self.ended:
            head = self.files[self._file].head
            return self._position(self._file, head.start, head.line)
        return self._position(min(self._file, len(self.files) - 1), self._at, self._line)

    def _position(self, file: int, at: int, line: int) -> dict[str, Any]:
        name = self.files[file].location.name if self.files else ""
        return {"file": name, "byte": at, "line": line, "number": self.number}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Go on at an earlier `position`. Raises HeadwayError if its file is none of these."""
        names = [file.location.name for file in self.files]
        if position["file"] not in names:
            raise HeadwayError(f"{position['file']} is none of the files: {', '.join(names)}")
        went_back = self._at > position["byte"] or self.number > position["number"]
        self._file = names.index(position["file"])
        for number, content in list(self._contents.items()):
            passed = number == self._file and went_back and content is not None and not content.whole
            if number < self._file or (passed and self.file.location.address != STANDARD_INPUT):
                self._shut(number)
        self._at, self._line, self.number = position["byte"], position["line"], position["number"]
        self._fresh = False

    def goes_on(self) -> bool:
        """Whether the current file has more; what is read in sequence is read up to there."""
        size = self.files[self._file].size
        return self._at < size if size is not None else bool(self.peek(1))

    def before(self, n: int) -> bytes:
        """Give the last bytes before the position, up to `n`, without those of the file's head; before `peek`."""
        content, begin = self._content(), max(self.file.head.start, self._at - n)
        return content.peek(begin, self._at - begin)[0] if content is not None and begin < self._at else b""

    def skip(self, n: int) -> None:
        """Go on behind bytes that end the line before."""
        self._at += n

    def peek(self, n: int) -> bytes:
        """Give the next bytes of the current file, which is text."""
        content = self._content()
        assert content is not None
        return content.peek(self._at, n)[0]

    @property
    def is_last(self) -> bool:
        """Whether the current file is the last one."""
        return self._file >= len(self.files) - 1

    @property
    def file(self) -> InputFile:
        """The current file."""
        return self.files[self._file]

    def bytes_before(self, name: str) -> int:
        """Give the size of the files before one, as far as it is known."""
        sizes = []
        for file in self.files:
            if file.location.name == name:
                break
            sizes.append(file.size or 0)
        return sum(sizes)

    def lines_ahead(self) -> int:
        """Give the lines in ranges that were given and not released."""
        return sum(list(self._lines.values()))

    def lines_of(self, span: Range) -> int:
        """Give the lines in a range that was not released."""
        return self._lines.get(span.number, 0)

    def places(self, span: Range, layout: Layout, records: int) -> Places:
        """Give where the records of a range stand that was not released yet."""
        span = self._kept.get(span.number, span)
        reader = self.files[span.file].reader()
        try:
            return reader.places(reader.read(span), span, layout, records)
        finally:
            reader.close()

    def release(self, number: int) -> None:
        """Forget the bytes of all ranges below a number."""
        for given in [given for given in list(self._lines) if given < number]:
            del self._lines[given]
            self._kept.pop(given, None)

    def sample(self) -> list[Sequence[Any]]:
        """Give the good records of the first range that has any; nothing is taken from what `read` gives."""
        for number, file in enumerate(self.files):
            kept = self._contents.get(number)
            content = kept if kept is not None else file.open()
            head, reader = file.head, file.reader()
            try:
                cut = file.cut(content, head.start, head.line, self._range_bytes)
                span = Range(0, number, head.start, cut.end, head.line, first=True, last=cut.last, data=cut.data)
                records = [record for _, record in reader.records(reader.read(span), span, Found())]
            finally:
                reader.close()
                if content is not None and content is not kept:
                    content.close()
            if records:
                return records
        return []

    def stop(self) -> None:
        """Give no more ranges, from now on; from any thread."""
        self._stopped = True

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        for number in list(self._contents):
            self._shut(number)

    def _next(self) -> Range | None:
        file = self.files[self._file]
        first, self._fresh = self._fresh, False
        if first:
            self._at, self._line = file.head.start, file.head.line
        elif not self.goes_on():
            self._turn()
            return None
        cut = file.cut(self._content(), self._at, self._line, self._range_bytes)
        span = Range(self.number, self._file, self._at, cut.end, self._line, first, cut.last, cut.data)
        if cut.data is not None:
            self._kept[span.number] = span
        self._lines[span.number] = cut.lines
        self.number, self._at, self._line = self.number + 1, cut.end, self._line + cut.lines
        if cut.last:
            self._turn()
        return span

    def _turn(self) -> None:
        """Go to the next file."""
        self._shut(self._file)
        self._file += 1
        self._fresh = True

    def _shut(self, number: int) -> None:
        content = self._contents.pop(number, None)
        if content is not None:
            content.close()

    def _content(self) -> Content | None:
        if self._file not in self._contents:
            self._contents[self._file] = self.files[self._file].open()
        return self._contents[self._file]
