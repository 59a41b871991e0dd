"""One CSV file: its header, and the records of its ranges.

What does not belong here: where it is cut (`csv_ends`), what a row means.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from headway.errors import InternalError, PlanError
from headway.io.content import Content, refuse_binary
from headway.io.csv_ends import first_record, record_end
from headway.io.csv_format import SENTINEL, CsvFormat
from headway.io.encoding import ESCAPED, Encoding, resolved, text_lines
from headway.io.location import Location
from headway.io.ranges import Found, Head, Range, Record
from headway.io.text_file import HEAD_BYTES, LONGEST_RECORD, TextFile


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
        lines = text_lines(text)
        found.lines = count = len(lines)
        undecoded = _undecoded(text, lines) if dirty else ()
        lines.append(SENTINEL)
        width, layout, blanks = self.head.width, found.layout, found.blanks
        if span.first:
            blanks.extend([0] * self.head.blanks)
        index, until, shift = -1, 0, 0
        alarms = iter((*undecoded, count))
        alarm = next(alarms)  # a record that reaches beyond this line is looked at
        reader = self.format.reader(lines)
        for record in reader:
            line, until = until, reader.line_num
            if line == count:
                break
            if not record:
                blanks.append(index + 1)
                continue
            index += 1
            if line - index != shift:
                shift = line - index
                layout.starts(index, line)
            if len(record) != width or until > alarm:
                fault = self._fault(record, span, closed=until <= count)
                while alarm < until <= count:
                    alarm = next(alarms)
                if fault is not None:
                    found.faults[index] = fault
                    continue
            yield index, record
        found.records = index + 1

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


def _undecoded(text: str, lines: Sequence[str]) -> list[int]:
    """Give the lines that hold what could not be decoded."""
    ends = list(accumulate(map(len, lines)))
    return sorted({bisect_right(ends, found.start()) for found in ESCAPED.finditer(text)})
