"""One Parquet file: its row groups are read in pieces, and positions are row numbers.

A row's place is its number: `line` from 1, `byte` from 0, `length` 0; its raw form is the row as
JSON. What does not belong here: what a row means.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import accumulate
from math import isfinite
from typing import Any, Self

from headway.errors import HeadwayError, PlanError
from headway.io.chunk import RECORDS_AT_ONCE, Chunk, Record
from headway.io.columns import MOST_DIGITS, Bool, ColumnType, Date, Exact, Float, Int, Text, Timestamp
from headway.io.content import Content, Seal, opened
from headway.io.jsonl_file import nested
from headway.io.location import STANDARD_INPUT, Location
from headway.io.ranges import Cut, Found, Head, Layout, Place, Range
from headway.text import message

try:
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as missing:
    raise PlanError(f"Parquet needs {missing.name}: pip install 'headway[import]'") from missing

RANGE_ROWS = 12_000


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; `groups` are the numbers of the first rows of its row groups, and the number of all rows."""

    location: Location
    head: Head
    seal: Seal
    groups: tuple[int, ...]

    @classmethod
    def look(cls, location: Location) -> ParquetFile:
        """Read names, types and row groups. Raises PlanError if the file is no Parquet."""
        content = opened(location)
        seal = content.seal
        content.close()
        file = _opened(location)
        schema, metadata = file.schema_arrow, file.metadata
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        file.close(force=True)
        head = Head(tuple(schema.names), len(schema.names), 0, 1, 0, tuple(map(_column_type, schema.types)))
        return cls(location, head, seal, tuple(accumulate(counts, initial=0)))

    @property
    def size(self) -> int:
        """Its rows."""
        return self.groups[-1]

    def with_head(self, head: Head) -> Self:
        """Give the same file read as another head says."""
        return replace(self, head=head)

    def open(self) -> Content | None:
        """To be cut, it need not be open."""
        return None

    def cut(self, content: Any, at: int, line: int, range_bytes: int) -> Cut:
        """Give the next rows of a row group: about as many as others have in a MiB."""
        group_end = next((start for start in self.groups if start > at), at)
        end = min(group_end, at + max(1, RANGE_ROWS * range_bytes >> 20))
        return Cut(end, end - at, end >= self.size, None)

    def reader(self) -> ParquetReader:
        """Make what reads its ranges."""
        return ParquetReader(self)

    def printable(self, raw: bytes) -> tuple[str, bool]:
        """Give a row as JSON."""
        return raw.decode(), False


class ParquetReader:
    """Reads ranges, ascending: a row group is decoded once, as long as none is asked for that lies before."""

    def __init__(self, file: ParquetFile) -> None:
        self._file = file
        self._open: Any = None
        self._batches: Iterator[Any] = iter(())
        self._held: Any = None
        self._at = self._end = 0
        """the next row, and the end of its row group"""

    def read(self, span: Range) -> Any:
        """Give the rows as an Arrow table. Raises HeadwayError if the file is not what it was."""
        if span.start == span.end:
            return pa.table({})
        try:
            if not self._at <= span.start < self._end:
                self._enter(span.start)
            self._take(span.start - self._at)  # another process has these
            return self._take(span.end - span.start)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise HeadwayError(f"{self._file.location.name} cannot be read at row {span.start}: {error}") from error

    def _enter(self, row: int) -> None:
        """Begin at the row group that holds a row."""
        groups = self._file.groups
        number = bisect_right(groups, row) - 1
        if self._open is None:
            self._open = _opened(self._file.location)
            if self._open.metadata.num_rows != self._file.size:
                raise HeadwayError(f"{self._file.location.name} has changed while it was read")
        self._batches = self._open.iter_batches(RANGE_ROWS, row_groups=[number], use_threads=False)
        self._held, self._at, self._end = None, groups[number], groups[number + 1]

    def _take(self, rows: int) -> Any:
        parts = []
        while rows:
            if self._held is None or not self._held.num_rows:
                self._held = next(self._batches)
            parts.append(self._held.slice(0, rows))
            self._held = self._held.slice(parts[-1].num_rows)
            self._at += parts[-1].num_rows
            rows -= parts[-1].num_rows
        return pa.Table.from_batches(parts) if parts else None

    def records(self, data: Any, span: Range, found: Found) -> Iterator[Record]:
        """Give every row."""
        found.lines = found.records = data.num_rows
        return enumerate(zip(*map(_values, data.columns), strict=True))

    def chunks(self, data: Any, span: Range, found: Found, *, by_column: bool = False) -> Iterator[Chunk]:
        """Give every row, in columns."""
        found.lines = found.records = data.num_rows
        columns = [_values(column) for column in data.columns]
        for start in range(0, data.num_rows, RECORDS_AT_ONCE):
            some = [column[start : start + RECORDS_AT_ONCE] for column in columns]
            yield Chunk(range(start, start + len(some[0])), some)

    def places(self, data: Any, span: Range, layout: Layout, records: int) -> Sequence[Place]:
        """Give where each row stands."""
        names = data.schema.names
        return [
            Place(span.file, span.line + number, span.start + number, 0, _noted(names, row))
            for number, row in enumerate(zip(*map(_values, data.columns), strict=True))
        ]

    def nbytes(self, data: Any) -> int:
        """Give the size of what was read."""
        return int(data.nbytes)

    def close(self) -> None:
        """Close the file."""
        self._batches, self._held = iter(()), None
        if self._open is not None:
            self._open.close(force=True)
            self._open = None


def _opened(location: Location) -> Any:
    if location.address == STANDARD_INPUT:
        raise PlanError("Parquet cannot be read from standard input; name the file")
    try:
        if location.is_file:
            return pq.ParquetFile(location.address)
        import fsspec

        return pq.ParquetFile(fsspec.open(location.address, "rb").open())
    except Exception as error:  # each kind of storage has errors of its own
        raise PlanError(f"{location.name} is no Parquet file that can be read: {message(error)}") from error


_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def _noted(names: Sequence[str], row: Sequence[Any]) -> bytes:
    """Give a row as a line of JSON; what that cannot hold as Python writes it, so that nobody takes it for another value."""
    held = [
        isinstance(value, (bytes, timedelta)) or (isinstance(value, float) and not isfinite(value)) for value in row
    ]
    if not any(held):
        return _JSON.encode(dict(zip(names, row, strict=True)))
    parts = (
        _JSON.encode(name) + b":" + (repr(value).encode() if none else _JSON.encode(value))
        for name, value, none in zip(names, row, held, strict=True)
    )
    return b"{" + b",".join(parts) + b"}"


def _values(column: Any) -> list[Any]:
    """Give a column's values; what is nested as JSON text, times of day as text."""
    if pa.types.is_nested(column.type):
        return [value if value is None else _text(value) for value in column.to_pylist()]
    if pa.types.is_time(column.type):
        return [value and value.isoformat() for value in column.to_pylist()]
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        try:
            return column.to_pylist()  # type: ignore[no-any-return]
        except (OverflowError, ValueError):  # a day or an instant of a year that Python does not have
            return [_value(one) for one in column]
    try:
        return column.cast(pa.timestamp("us", column.type.tz)).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:  # as text, which a column refuses where digits would be lost
        return [text and text.removesuffix("000") for text in column.cast(pa.string()).to_pylist()]


def _text(value: Any) -> str:
    """Give a list or an object as JSON; with the word NaN or Infinity, which no JSON column takes, where it has one."""
    text = nested(value)
    return text if "null" not in text or _finite(value) else json.dumps(value, default=str, ensure_ascii=False)


def _finite(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or isfinite(value)


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):  # as text, which a column refuses
        return scalar.cast(pa.string()).as_py()


def _column_type(type: Any) -> ColumnType:
    kinds = pa.types
    if kinds.is_dictionary(type):
        return _column_type(type.value_type)
    if kinds.is_decimal(type) and 0 <= type.scale <= type.precision <= MOST_DIGITS:
        return Exact(type.precision, type.scale)
    tests = (
        (kinds.is_boolean, Bool), (kinds.is_integer, Int), (kinds.is_floating, Float), (kinds.is_date, Date),
        (kinds.is_timestamp, Timestamp),
    )  # fmt: skip
    return next((make() for test, make in tests if test(type)), Text())
