"""One CSV file: its header, and the records of its ranges.

What does not belong here: where it is cut (`csv_ends`), what a row means.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING

from headway.errors import InternalError, PlanError
from headway.io.chunk import RECORDS_AT_ONCE, Chunk, Record
from headway.io.content import Content, refuse_binary
from headway.io.csv_ends import first_record, record_end
from headway.io.csv_format import SENTINEL, CsvFormat
from headway.io.encoding import Encoding, resolved, sound
from headway.io.location import Location
from headway.io.ranges import Found, Head, Range
from headway.io.text_file import HEAD_BYTES, LONGEST_RECORD, TextFile

if TYPE_CHECKING:
    from headway.io.csv_arrow import Columns


ARROW_BYTES = 1 << 14
"""A range from which on Arrow's parser pays: its calls take about as long as Python's takes for some hundred records."""


@cache
def _arrow_columns() -> Callable[[bytes, CsvFormat, int], Columns | None] | None:
    """Give Arrow's parser, where there is one."""
    try:
        from headway.io.csv_arrow import columns
    except ModuleNotFoundError:
        return None
    return columns


@dataclass(frozen=True)
class CsvFile(TextFile):
    """A CSV file whose encoding is settled."""

    format: CsvFormat

    @classmethod
    def look(
        cls,
        location: Location,
        content: Content,
        format: CsvFormat,
        *,
        encoding: str | None = None,
        header: bool = True,
    ) -> CsvFile:
        """Read the header, or the first record where there is none. `encoding`: None to go by the byte order mark.

        Raises PlanError if the file is no text, or another encoding than was said.
        """
        start, _ = content.peek(0, 16)
        refuse_binary(start, location.name)
        name, begin = resolved(encoding, start, location.name)
        format = replace(format, encoding=name)
        wanted = HEAD_BYTES
        while True:
            data, at_end = content.peek(0, wanted)
            found = first_record(data[begin:], format, at_end=at_end)
            if found is not None:
                break
            wanted *= 2
            if wanted > LONGEST_RECORD:
                raise PlanError(f"{location.name}: no record ends in the first {LONGEST_RECORD >> 20} MiB")
        names, length, lines, blanks = found
        if header:
            head = Head(names, len(names), begin + length, 1 + lines, blanks)
        else:
            head = Head(None, len(names), begin, 1, 0)
        return cls(location, head, content.seal, content.size, format)

    @property
    def text(self) -> Encoding:
        """Its encoding."""
        return self.format.text

    def record_end(self, data: bytes) -> int:
        """Give where the last complete record ends."""
        return record_end(data, self.format)

    def records(self, data: bytes, span: Range, found: Found) -> Iterator[Record]:
        """Give every record that is whole and has as many fields as the header."""
        for chunk in self._parsed(data, span, found):
            yield from zip(chunk.sources, chunk.rows, strict=True)

    def chunks(self, data: bytes, span: Range, found: Found, *, by_column: bool = False) -> Iterator[Chunk]:
        """Give the same in chunks: as columns from Arrow's parser where it surely reads the same.

        Where records are looked at, and Arrow is not at work already, loading it would take some 45 MB of each process
        for less than a tenth of its time. A few records are read before Arrow has begun.
        """
        worth = len(data) >= ARROW_BYTES and (by_column or "pyarrow" in sys.modules)
        columns = _arrow_columns() if worth else None
        quick = columns(data, self.format, self.head.width) if columns is not None else None
        if quick is None or not (span.last or data.endswith(b"\n")):
            yield from self._parsed(data, span, found)
            return
        found.records, found.lines, found.layout, found.faults = quick.records, quick.lines, quick.layout, quick.faults
        if span.first:
            found.blanks.extend([0] * self.head.blanks)
        if quick.sources:
            yield Chunk(quick.sources, quick.columns)

    def _parsed(self, data: bytes, span: Range, found: Found) -> Iterator[Chunk]:
        """Give the records by row, as Python's parser reads them.

        Lines are made as they are read, so that they and their records stay near the processor. Where
        all records of a chunk are whole and of the right width, none is looked at alone.
        """
        text, dirty = self.text.decode(data)
        if span.first:
            found.blanks.extend([0] * self.head.blanks)
        width, layout, count = self.head.width, found.layout, sys.maxsize
        index, until, stop = 0, 0, 0
        lines = io.StringIO(text, newline="")
        reader = self.format.reader(chain(lines, (SENTINEL,)))

        def at_end() -> Iterator[list[str]]:
            """What is left behind the last line, the sentinel: it comes together with the records before it."""
            if lines.tell() == len(text):
                yield from reader

        while True:
            records, ends, behind_long = list[list[str]](), list[int](), list[tuple[int, int]]()
            due = until
            for record in chain(islice(reader, RECORDS_AT_ONCE), at_end()):
                records.append(record)
                due += 1
                if reader.line_num != due:
                    due = reader.line_num
                    behind_long.append((index + len(records), due))
                ends.append(due)
            if not records:
                break
            start, stop = stop, lines.tell()
            suspect = dirty and not sound(text[start:stop])
            if stop < len(text) and {*map(len, records)} == {width} and not suspect:
                layout.starts(index, until)
                for number, line in behind_long:
                    layout.starts(number, line)
                yield Chunk(range(index, index + len(records)), rows=records)
                until = due
                index += len(records)
                continue
            if stop == len(text):
                found.lines = count = due - 1  # the sentinel's line is none
            numbers, whole = list[int](), list[Sequence[str]]()
            for record, end in zip(records, ends, strict=True):
                line, until = until, end
                if line == count:
                    break
                if not record:
                    found.blanks.append(index)
                    continue
                layout.starts(index, line)
                fault = None
                if len(record) != width or suspect or end > count:
                    fault = self._fault(record, span, closed=end <= count)
                if fault is None:
                    numbers.append(index)
                    whole.append(record)
                else:
                    found.faults[index] = fault
                index += 1
            if numbers:
                yield Chunk(numbers, rows=whole)
        found.records = index

    def _fault(self, record: Sequence[str], span: Range, *, closed: bool) -> tuple[str, str] | None:
        width = self.head.width
        if not closed:
            if not span.last:
                raise InternalError(
                    f"a range of {self.location.name} at byte {span.start} does not end at a record end"
                )
            return "unclosed_quote", "a quote is open at the end of the file"
        if len(record) != width:
            reason = "too_few_fields" if len(record) < width else "too_many_fields"
            return reason, f"{len(record)} fields, expected {width}"
        what = self.text.fault("".join(record))
        return None if what is None else ("bad_encoding", what)
