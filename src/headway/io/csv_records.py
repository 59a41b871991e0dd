"""Where each record of a range stands in its file. What does not belong here: what a row means."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from headway.io.csv_format import byte_lines
from headway.io.csv_ranges import Range


class Place(NamedTuple):
    """A record's physical line (from 1), byte offset, length without its line ending, and bytes."""

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

    def line_of(self, record: int) -> int:
        """Give the line, from 0, on which a record starts."""
        found = bisect_right(self._records, record)
        return record + (self._shifts[found - 1] if found else 0)


class Places:
    """The places of records, from the bytes of their range."""

    def __init__(self, data: bytes, span: Range, layout: Layout, records: int) -> None:
        self._data, self._span, self._layout, self._records = data, span, layout, records
        self._offsets: Sequence[int] = list(accumulate(map(len, byte_lines(data)), initial=0))

    def __getitem__(self, record: int) -> Place:
        line = self._layout.line_of(record)
        start = self._offsets[line]
        end = self._offsets[self._layout.line_of(record + 1)] if record + 1 < self._records else len(self._data)
        raw = self._data[start:end].rstrip(b"\r\n")
        return Place(self._span.line + line, self._span.start + start, len(raw), raw)
