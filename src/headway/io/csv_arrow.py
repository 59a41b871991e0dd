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
from headway.io.encoding import bare_cr
from headway.io.ranges import Layout

_COUNTED = array("q")
"""Numbers from 0, counted once."""
_LOOKED_AT = 1 << 14
"""Bytes that are decoded to find out which of them cannot be."""
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
    if bare_cr(data):
        return None
    delimiter, quote = format.delimiter.encode(), (format.quote or "").encode()
    if len(delimiter) > 1 or len(quote) > 1:
        return None
    parts = data.split(quote) if quote else [data]
    if not (len(parts) & 1 and regular(parts, delimiter)):
        return None
    undecodable = _undecodable(data)
    if len(undecodable) > MOST_UNDECODABLE:
        return None
    narrow = list[_Narrow]()
    table = _parsed(_blotted(data, undecodable), format, width, narrow)
    if table is None:
        return None
    records, lines = table.num_rows + len(narrow), data.count(b"\n") + (not data.endswith(b"\n"))
    sources = _numbers(records)
    faults: dict[int, tuple[str, str]] = {}
    for found in reversed(narrow):
        del sources[found.record]
        reason = "too_few_fields" if found.fields < width else "too_many_fields"
        faults[found.record] = reason, f"{found.fields} fields, expected {width}"
    texts = [ArrowColumn(column.combine_chunks()) for column in table.columns]
    layout = Layout()
    if lines != records + _lay_out(layout, texts, sources, narrow):
        return None  # a blank line is no record of either parser, but a line
    spoilt = dict[int, tuple[str, str]]()
    line = counted = 0
    for start, _ in undecodable:
        line, counted = line + data.count(b"\n", counted, start), start
        record = bisect_right(range(records), line, key=layout.line_of) - 1
        spoilt.setdefault(record, ("bad_encoding", f"byte \\x{data[start]:02x} is not {format.encoding}"))
    if lost := [bisect_left(sources, record) for record in spoilt if record not in faults]:
        sources = array("q", without(sources, lost))
        texts = [column.without(lost) for column in texts]
    return Columns(records, lines, layout, spoilt | faults, sources, texts)


def _numbers(count: int) -> array[int]:
    """Count from 0."""
    while len(_COUNTED) < count:
        _COUNTED.extend(range(len(_COUNTED), 2 * len(_COUNTED) + 1000))
    return _COUNTED[:count]


class _Narrow(NamedTuple):
    """A record of another width: its number from 0, its fields, and the line breaks within them."""

    record: int
    fields: int
    breaks: int


def _lay_out(layout: Layout, texts: Sequence[ArrowColumn], sources: Sequence[int], narrow: Sequence[_Narrow]) -> int:
    """Tell a layout which records start behind others of several lines; give the line breaks within all of them."""
    found = [(each.record, each.breaks) for each in narrow if each.breaks]
    for column in texts:
        rows, counts = column.counted("\n")
        found += zip(map(sources.__getitem__, rows), counts, strict=True)
    found.sort()  # of a record with breaks in two fields the second entry is the one that counts
    layout.shifted((record + 1 for record, _ in found), accumulate(count for _, count in found))
    return sum(count for _, count in found)


def _parsed(data: bytes | bytearray, format: CsvFormat, width: int, narrow: list[_Narrow]) -> Any | None:
    """Parse into columns of texts; `narrow` gets the records of another width."""
    names = [str(place) for place in range(width)]

    def other_width(row: Any) -> str:
        narrow.append(_Narrow(row.number - 1, row.actual_columns, row.text.count("\n")))
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
    view, pieces = memoryview(data), [(0, len(data))]
    while pieces and len(found) <= MOST_UNDECODABLE:
        start, stop = pieces.pop()
        if _is_utf8(view[start:stop]):
            continue
        if stop - start > _LOOKED_AT and (middle := _character(data, (start + stop) // 2)) < stop:
            pieces += (middle, stop), (start, middle)
            continue
        at = start
        while len(found) <= MOST_UNDECODABLE:
            try:
                codecs.utf_8_decode(view[at:stop], "strict", True)
                break
            except UnicodeDecodeError as error:
                found.append((at + error.start, at + error.end))
                at += error.end
    return found


def _is_utf8(data: memoryview) -> bool:
    """Whether all of it is: much quicker to tell than to decode."""
    ends = pa.array([0, len(data)], pa.int32()).buffers()[1]
    try:
        pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)]).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _character(data: bytes, at: int) -> int:
    """Give where the next byte stands that does not go on with a character."""
    return next((place for place in range(at, len(data)) if data[place] & 0xC0 != 0x80), len(data))


def _blotted(data: bytes, spots: Sequence[tuple[int, int]]) -> bytes | bytearray:
    """Give the data with question marks in place of some bytes."""
    if not spots:
        return data
    blotted = bytearray(data)
    for start, end in spots:
        blotted[start:end] = b"?" * (end - start)
    return blotted
