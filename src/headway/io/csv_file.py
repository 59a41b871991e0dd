"""One CSV file: its header, and the records of its ranges.

What does not belong here: where it is cut (`csv_ends`), what a row means.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from operator import attrgetter

from headway.errors import InternalError, PlanError
from headway.io.chunk import Chunk, Record
from headway.io.content import Content, refuse_binary
from headway.io.csv_ends import first_record, record_end
from headway.io.csv_format import SENTINEL, CsvFormat
from headway.io.encoding import Encoding, resolved, sound
from headway.io.location import Location
from headway.io.ranges import Found, Head, Range
from headway.io.text_file import HEAD_BYTES, LONGEST_RECORD, TextFile

AT_ONCE = 64
"""Records that are looked at together, few enough to stay near the processor."""


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
        text, dirty = self.text.decode(data)
        found.lines = self.text.line_breaks(data) + (text[-1:] not in ("", "\r", "\n"))
        if span.first:
            found.blanks.extend([0] * self.head.blanks)
        return chain.from_iterable(self._parts(text, dirty, span, found))

    def chunks(self, data: bytes, span: Range, found: Found) -> Iterator[Chunk]:
        """Give the same as columns: from Arrow's parser where it surely reads the same.

        Where Arrow is not at work already, loading it would take some 45 MB of each process for a tenth of its time.
        """
        quick = None
        if "pyarrow" in sys.modules:
            from headway.io.csv_arrow import columns

            quick = columns(data, self.format, self.head.width)
        if quick is None or not (span.last or data.endswith(b"\n")):
            yield from super().chunks(data, span, found)
            return
        found.records, found.lines, found.layout, found.faults = quick.records, quick.lines, quick.layout, quick.faults
        if span.first:
            found.blanks.extend([0] * self.head.blanks)
        if quick.sources:
            yield Chunk(quick.sources, quick.columns)

    def _parts(self, text: str, dirty: bool, span: Range, found: Found) -> Iterator[Iterable[Record]]:
        """Give the records, some at a time: where all have one line and the right width none needs a look.

        Lines are made as they are read, so that they and their records stay near the processor.
        """
        width, layout, count = self.head.width, found.layout, found.lines
        index, until, shift, stop = 0, 0, 0, 0
        lines = io.StringIO(text, newline="")
        reader = self.format.reader(chain(lines, (SENTINEL,)))
        ended = zip(reader, map(attrgetter("line_num"), repeat(reader)), strict=False)
        while some := list(islice(ended, AT_ONCE)):
            records, ends = zip(*some, strict=True)
            start, stop = stop, lines.tell()
            suspect = dirty and not sound(text[start:stop])
            sure = ends[-1] <= count and {*map(len, records)} == {width} and not suspect
            if sure and ends[-1] - until == len(records) and until - index == shift:
                until = ends[-1]
                yield zip(range(index, index + len(records)), records, strict=True)
                index += len(records)
                continue
            whole: list[Record] = []
            for record, end in some:
                line, until = until, end
                if line == count:
                    break
                if not record:
                    found.blanks.append(index)
                    continue
                if line - index != shift:
                    shift = line - index
                    layout.starts(index, line)
                fault = None
                if not sure and (len(record) != width or suspect or end > count):
                    fault = self._fault(record, span, closed=end <= count)
                if fault is None:
                    whole.append((index, record))
                else:
                    found.faults[index] = fault
                index += 1
            yield whole
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
