"""One CSV file: its header, and the records of its ranges.

What does not belong here: where it is cut (`csv_ends`), what a row means.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice

from headway.errors import InternalError, PlanError
from headway.io.content import Content, refuse_binary
from headway.io.csv_ends import first_record, record_end
from headway.io.csv_format import SENTINEL, CsvFormat
from headway.io.encoding import ESCAPED, Encoding, resolved, text_lines
from headway.io.location import Location
from headway.io.ranges import Found, Head, Range, Record
from headway.io.text_file import HEAD_BYTES, LONGEST_RECORD, TextFile

AT_ONCE = 128
"""Records that are looked at together; where one of them is out of the ordinary each is looked at."""


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
        if span.first:
            found.blanks.extend([0] * self.head.blanks)
        alarms = iter((*undecoded, count))
        return chain.from_iterable(self._parts(lines, count, alarms, span, found))

    def _parts(
        self, lines: list[str], count: int, alarms: Iterator[int], span: Range, found: Found
    ) -> Iterator[Iterable[Record]]:
        """Give the records, some at a time: those of one line each and of the right width need no look at each."""
        width, layout = self.head.width, found.layout
        index, until, shift = 0, 0, 0
        alarm = next(alarms)  # a record that reaches beyond this line is looked at
        reader = self.format.reader(lines)
        while some := list(islice(reader, AT_ONCE)):
            line, until = until, reader.line_num
            if until - line == len(some) and until <= alarm and {*map(len, some)} == {width}:
                if line - index != shift:
                    shift = line - index
                    layout.starts(index, line)
                yield zip(range(index, index + len(some)), some, strict=True)
                index += len(some)
                continue
            whole: list[Record] = []
            again = self.format.reader(lines[line:until])
            first, end = line, line
            for record in again:
                line, end = end, first + again.line_num
                if line == count:
                    break
                if not record:
                    found.blanks.append(index)
                    continue
                if line - index != shift:
                    shift = line - index
                    layout.starts(index, line)
                fault = None
                if len(record) != width or end > alarm:
                    fault = self._fault(record, span, closed=end <= count)
                    while alarm < end <= count:
                        alarm = next(alarms)
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


def _undecoded(text: str, lines: Sequence[str]) -> list[int]:
    """Give the lines that hold what could not be decoded."""
    ends = list(accumulate(map(len, lines)))
    return sorted({bisect_right(ends, found.start()) for found in ESCAPED.finditer(text)})
