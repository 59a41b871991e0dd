"""The columns of a range of CSV, by Arrow's parser, where it surely reads what Python's `csv` does.

That is where quotes stand as RFC 4180 has them, lines end with LF or CRLF and none is blank, and
the text is UTF-8: there every CSV parser finds the same fields. Of anything else nothing is given,
and the other parser reads it. What does not belong here: what a row means.
"""

from __future__ import annotations

import codecs
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv

from headway.io.chunk import ArrowColumn, without
from headway.io.csv_ends import regular
from headway.io.csv_format import CsvFormat
from headway.io.ranges import Layout

MOST_UNDECODABLE = 100
"""Bytes of a range that are not UTF-8, up to which its other records are worth this way."""


class Columns(NamedTuple):
    """What a range holds, as `Found` and `Chunk` tell it; `sources` are the numbers of the whole records."""

    records: int
    lines: int
    layout: Layout
    faults: dict[int, tuple[str, str]]
    sources: array[int]
    columns: list[ArrowColumn]


def columns(data: bytes, format: CsvFormat, width: int) -> Columns | None:
    """Give the columns of whole records; None where two parsers might not agree."""
    if not (format.plain and format.encoding == "utf-8" and data) or data.startswith(codecs.BOM_UTF8):
        return None
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None
    delimiter, quote = format.delimiter.encode(), (format.quote or "").encode()
    if len(delimiter) > 1 or len(quote) > 1:
        return None
    parts = data.split(quote) if quote else [data]
    if not (len(parts) & 1 and regular(parts, delimiter)) or _blank_line(data, parts):
        return None
    layout, lines, records = _layout(data, parts)
    undecodable = _undecodable(data)
    if len(undecodable) > MOST_UNDECODABLE:
        return None
    narrow = list[tuple[int, int]]()
    table = _parsed(_blotted(data, undecodable), format, width, narrow)
    if table is None or table.num_rows + len(narrow) != records:
        return None
    sources = array("q", range(records))
    faults: dict[int, tuple[str, str]] = {}
    for number, found in reversed(narrow):
        del sources[number - 1]
        reason = "too_few_fields" if found < width else "too_many_fields"
        faults[number - 1] = reason, f"{found} fields, expected {width}"
    texts = [ArrowColumn(column.combine_chunks()) for column in table.columns]
    spoilt = dict[int, tuple[str, str]]()
    for start, _ in undecodable:
        record = bisect_right(range(records), data.count(b"\n", 0, start), key=layout.line_of) - 1
        spoilt.setdefault(record, ("bad_encoding", f"byte \\x{data[start]:02x} is not {format.encoding}"))
    if lost := [bisect_left(sources, record) for record in spoilt if record not in faults]:
        sources = array("q", without(sources, lost))
        texts = [column.without(lost) for column in texts]
    return Columns(records, lines, layout, spoilt | faults, sources, texts)


def _blank_line(data: bytes, parts: Sequence[bytes]) -> bool:
    """Whether there is a blank line outside of quotes; `parts` are the text between them."""
    if data.startswith((b"\n", b"\r\n")):
        return True
    if b"\n\n" not in data and b"\n\r\n" not in data:
        return False
    return any(b"\n\n" in part or b"\n\r\n" in part for part in parts[::2])


def _layout(data: bytes, parts: Sequence[bytes]) -> tuple[Layout, int, int]:
    """Give on which line each record starts, and how many lines and records there are; `parts` are split at quotes."""
    layout, line, shift, counted = Layout(), 0, 0, 0
    long = [index for index in range(1, len(parts), 2) if b"\n" in parts[index]]
    ends = list(accumulate(map(len, parts))) if long else []
    for index in long:
        more = parts[index].count(b"\n")
        line += data.count(b"\n", counted, ends[index - 1] + index)  # a quote stands before each part but the first
        layout.starts(line - shift + 1, line + more + 1)
        line, shift, counted = line + more, shift + more, ends[index] + index
    lines = line + data.count(b"\n", counted) + (not data.endswith(b"\n"))
    return layout, lines, lines - shift


def _parsed(data: bytes | bytearray, format: CsvFormat, width: int, narrow: list[tuple[int, int]]) -> Any | None:
    """Parse into columns of texts; `narrow` gets number, from 1, and width of the records of another width."""
    names = [str(place) for place in range(width)]

    def other_width(row: Any) -> str:
        narrow.append((row.number, row.actual_columns))
        return "skip"

    try:
        with csv.open_csv(  # `read_csv` would take the signals of the process meanwhile
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=format.delimiter,
                quote_char=format.quote or False,
                newlines_in_values=True,
                invalid_row_handler=other_width,
            ),
            csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        ) as reader:
            return reader.read_all()
    except pa.ArrowInvalid:
        return None


def _undecodable(data: bytes) -> list[tuple[int, int]]:
    """Give where bytes start and end that are not UTF-8, if they are not more than `MOST_UNDECODABLE`."""
    found = list[tuple[int, int]]()
    view, at = memoryview(data), 0
    while len(found) <= MOST_UNDECODABLE:
        try:
            codecs.utf_8_decode(view[at:], "strict", True)
            break
        except UnicodeDecodeError as error:
            found.append((at + error.start, at + error.end))
            at += error.end
    return found


def _blotted(data: bytes, spots: Sequence[tuple[int, int]]) -> bytes | bytearray:
    """Give the data with question marks in place of some bytes."""
    if not spots:
        return data
    blotted = bytearray(data)
    for start, end in spots:
        blotted[start:end] = b"?" * (end - start)
    return blotted
