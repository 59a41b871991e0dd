"""From a range of the file to the rows and rejects that it holds; runs in the workers.

What does not belong here: order between ranges, conflicts between rows, the database.
"""

from __future__ import annotations

import gc
import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from headway.errors import HeadwayError, InternalError
from headway.importer.collect import TableRows
from headway.importer.rowstep import Fault, Record, RowJob, RowStep
from headway.io.csv_format import ESCAPED, SENTINEL, CsvFormat, text_lines
from headway.io.csv_ranges import CsvRanges, Range
from headway.io.csv_records import Layout, Place, Places

YOUNG_OBJECTS = 50_000
"""New objects before garbage is looked for: a few ranges' rows, which are no garbage."""


@dataclass(frozen=True)
class ParseJob:
    """All that a worker needs to know; it is sent to it once."""

    path: str
    size: int
    format: CsvFormat
    rows: RowJob


class RejectedRow(NamedTuple):
    """A row that was set aside. `record` counts from 0 within its range, `place.byte` within the file."""

    record: int
    place: Place
    fault: Fault


@dataclass(slots=True)
class RangeResult:
    """What a range held. Every number of a record is from 0 within the range, blank lines not counted."""

    span: Range
    lines: int
    records: int
    blanks: array[int]
    """for each blank line the number of the record that follows it"""
    filtered: array[int]
    rejects: list[RejectedRow]
    layout: Layout
    tables: dict[str, TableRows]
    nbytes: int


class RangeParser:
    """Parses ranges of one file and calls the row function on each of their records, in order."""

    def __init__(self, job: ParseJob) -> None:
        self._job = job
        self._step = RowStep(job.rows)
        self._descriptor = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file and the row function's event loop."""
        os.close(self._descriptor)
        self._step.close()

    def parse(self, span: Range) -> RangeResult:
        """Read, parse and convert one range.

        A record that cannot become rows is a reject; what the row function raises never goes
        further. Raises HeadwayError if the file is not what it was when its ranges were made.
        """
        data = read_range(self._descriptor, span, self._job.path)
        text, dirty = self._job.format.decode(data)
        lines = text_lines(text)
        result = RangeResult(span, len(lines), 0, array("q"), array("q"), [], Layout(), {}, 0)
        faults: dict[int, Fault] = {}
        records = self._records(lines, result, _undecoded(text, lines) if dirty else (), faults)
        self._step.offer(records, faults, result.filtered)
        result.tables = self._step.take(faults)
        if faults:
            places = Places(data, span, result.layout, result.records)
            result.rejects = [RejectedRow(record, places[record], faults[record]) for record in sorted(faults)]
        result.nbytes = 2 * len(data)
        return result

    def _records(
        self, lines: list[str], result: RangeResult, undecoded: Sequence[int], faults: dict[int, Fault]
    ) -> Iterator[Record]:
        """Give every record that is whole, and the faults of the others; note where each stands.

        `undecoded`: the lines with bytes that could not be decoded.
        """
        count, width = len(lines), len(self._job.rows.names)
        lines.append(SENTINEL)
        layout = result.layout
        index, until, shift = -1, 0, 0
        alarms = iter((*undecoded, count))
        alarm = next(alarms)  # a record that reaches beyond this line is looked at
        reader = self._job.format.reader(lines)
        for record in reader:
            line, until = until, reader.line_num
            if line == count:
                break
            if not record:
                result.blanks.append(index + 1)
                continue
            index += 1
            if line - index != shift:
                shift = line - index
                layout.starts(index, line)
            if len(record) != width or until > alarm:
                fault = self._framing(record, result.span, closed=until <= count)
                while alarm < until <= count:
                    alarm = next(alarms)
                if fault is not None:
                    faults[index] = fault
                    continue
            yield index, record
        result.records = index + 1

    def _framing(self, record: Sequence[str], span: Range, *, closed: bool) -> Fault | None:
        width = len(self._job.rows.names)
        if not closed:
            if span.end < self._job.size:
                raise InternalError(f"range {span} of {self._job.path} does not end at a record end")
            return Fault("parse", "unclosed_quote", "a quote is open at the end of the file")
        if len(record) != width:
            reason = "too_few_fields" if len(record) < width else "too_many_fields"
            return Fault("parse", reason, f"{len(record)} fields, expected {width}")
        if (bad := ESCAPED.search("".join(record))) is not None:
            byte = ord(bad[0]) - 0xDC00
            return Fault("parse", "bad_encoding", f"byte \\x{byte:02x} is not {self._job.format.encoding}")
        return None


@contextmanager
def open_parser(job: ParseJob) -> Iterator[RangeParser]:
    """Make a worker's parser, and close it at its end. What the row function prints goes to standard error."""
    with redirect_stdout(sys.stderr):
        parser = RangeParser(job)
        before = gc.get_threshold()
        gc.freeze()  # what `setup` loaded stays; collecting would go through it again and again
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
        try:
            yield parser
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()
            parser.close()


def parse_range(span: Range, parser: RangeParser) -> RangeResult:
    """The stage function: one range in, its rows and rejects out."""
    return parser.parse(span)


def sample(source: CsvRanges) -> list[list[str]]:
    """Give the whole records of the first range; the source stands where it stood."""
    before = source.position()
    spans = source.read(1)
    source.seek(before)
    if not spans:
        return []
    with source.path.open("rb") as file:
        file.seek(spans[0].start)
        text, _ = source.format.decode(file.read(spans[0].end - spans[0].start))
    records = source.format.reader(text_lines(text))
    return [record for record in records if len(record) == source.head.width and not ESCAPED.search("".join(record))]


def read_range(descriptor: int, span: Range, path: str) -> bytes:
    """Read the bytes of a range. Raises HeadwayError if the file has become shorter."""
    data = os.pread(descriptor, span.end - span.start, span.start)
    if len(data) < span.end - span.start:
        raise HeadwayError(f"{path} became shorter while it was read")
    return data


def _undecoded(text: str, lines: Sequence[str]) -> list[int]:
    """Give the lines that hold bytes which could not be decoded."""
    ends = list(accumulate(map(len, lines)))
    return sorted({bisect_right(ends, found.start()) for found in ESCAPED.finditer(text)})
