"""Files as sources of rows for any pipeline: the import job's own reading, one row at a time.

What does not belong here: how a format is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import HeadwayError, PlanError
from headway.io.inputs import InputFormat, Sources, open_ranges
from headway.io.location import STANDARD_INPUT
from headway.io.ranges import Found, Range, Ranges, Reader
from headway.io.row import Row, row_type
from headway.io.table import unique_names

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


class BadRow(NamedTuple):
    """A record that is no row: where it stands (`line` from 1, `byte` from 0), why, and its text."""

    file: str
    line: int
    byte: int
    reason: str
    message: str
    raw: str


class FileRows:
    """Source of `Row`, in file order; made by `read_csv`, `read_jsonl` and `read_parquet`.

    It can be read again: `close` puts it back to its beginning (standard input excepted). Files are
    opened by the first read. A record that is no row raises HeadwayError at its place, or goes to
    `rejects` as a `BadRow`, a range of a MiB at a time.
    """

    def __init__(
        self, sources: Sources, format: InputFormat, rejects: list[BadRow] | Callable[[BadRow], object] | None
    ) -> None:
        for location in sources.locations:
            if location.is_file and not Path(location.address).exists():
                raise PlanError(f"{location.name}: there is no such file")
        self._sources, self._format = sources, format
        self._reject = rejects.append if isinstance(rejects, list) else rejects
        self._ranges: Ranges | None = None
        self._reader: Reader | None = None
        self._reader_of = -1
        self._row: type[Row] = Row
        self._begun: Mapping[str, Any] = {}
        """the position of the range that is being given"""
        self._rows: Sequence[Sequence[Any]] = ()
        self._given = 0
        self._bad: HeadwayError | None = None
        """what comes behind the rows of the range"""

    def read(self, n: int, /) -> Sequence[Row]:
        """Give up to `n` rows; none at the end. Raises HeadwayError where the input cannot be read on."""
        if not self._filled():
            return ()
        make = self._row
        rows = [make(values) for values in self._rows[self._given : self._given + n]]
        self._given += len(rows)
        return rows

    def __iter__(self) -> Iterator[Row]:
        """Give the rows from where the source stands, and close it."""
        try:
            while self._filled():
                make = self._row
                for values in self._rows[self._given :]:
                    self._given += 1
                    yield make(values)
        finally:
            self.close()

    def position(self) -> dict[str, Any]:
        """Where the next row is, for `seek`; JSON."""
        self._opened()
        return {**self._begun, "rows": self._given}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Go on at an earlier `position`. Raises HeadwayError if the input has become shorter."""
        ranges = self._opened()
        ranges.seek(position)
        self._rows, self._given, self._bad = (), 0, None
        self._begun = ranges.position()
        skipped = position["rows"]
        if skipped and (not self.read(1) or len(self._rows) < skipped):
            raise HeadwayError(
                f"{position['file']} has become shorter since row {skipped} behind byte {position['byte']}"
            )
        self._given = skipped

    def fingerprint(self) -> str:
        """Tell this input from another: names, and size and hash of the first and last 64 KiB of each."""
        was_open = self._ranges is not None
        files = [(file.location.name, *file.seal) for file in self._opened().files]
        if not was_open and all(location.address != STANDARD_INPUT for location in self._sources.locations):
            self.close()
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()

    def close(self) -> None:
        """Close the files; the next read begins at the first row."""
        if self._reader is not None:
            self._reader.close()
        if self._ranges is not None:
            self._ranges.close()
        self._ranges, self._reader, self._reader_of = None, None, -1
        self._rows, self._given, self._bad = (), 0, None

    def _opened(self) -> Ranges:
        if self._ranges is None:
            self._ranges = open_ranges(self._sources.locations, self._format)
            head = self._ranges.head
            self._row = row_type(unique_names(head.names if head.names is not None else [""] * head.width))
            self._begun = self._ranges.position()
        return self._ranges

    def _filled(self) -> bool:
        """Read until a row is there; False at the end."""
        ranges = self._opened()
        while self._given >= len(self._rows):
            if self._bad is not None:
                raise self._bad
            self._begun = ranges.position()
            spans = ranges.read(1)
            self._rows, self._given = (), 0
            if not spans:
                return False
            self._take(ranges, spans[0])
        return True

    def _take(self, ranges: Ranges, span: Range) -> None:
        if self._reader is None or self._reader_of != span.file:
            if self._reader is not None:
                self._reader.close()
            self._reader, self._reader_of = ranges.files[span.file].reader(), span.file
        data, found = self._reader.read(span), Found()
        records = list(self._reader.records(data, span, found))
        ranges.release(span.number + 1)
        if found.faults:
            places = self._reader.places(data, span, found.layout, found.records)
            file = ranges.files[span.file]
            for record, why in sorted(found.faults.items()):
                place = places[record]
                bad = BadRow(file.location.name, place.line, place.byte, *why, file.printable(place.raw)[0])
                if self._reject is None:
                    self._bad = HeadwayError(
                        f"{bad.file}, line {bad.line} (byte {bad.byte}): {bad.reason}: {bad.message}. "
                        "To go on without such records, say where they go: rejects=LIST or a function"
                    )
                    records = [(index, values) for index, values in records if index < record]
                    break
                self._reject(bad)
        self._rows = [values for _, values in records]


def read_csv(
    source: Paths,
    *,
    delimiter: str | None = None,
    quote: str | None = '"',
    escape: str | None = None,
    encoding: str | None = None,
    no_header: bool = False,
    rejects: list[BadRow] | Callable[[BadRow], object] | None = None,
) -> FileRows:
    """The rows of CSV files, whose values are texts: a source for any pipeline.

    `source`: a path, a pattern, an address, ``"-"``, or several of them; the options are those of
    ``headway import``. `rejects`: a list or a function that gets a `BadRow` for each record that is
    none; without it the first one raises HeadwayError. Raises PlanError for a mistake in the options.
    """
    format = InputFormat("csv", delimiter, quote, escape, encoding, not no_header)
    return FileRows(Sources.parse(source, "csv"), format, rejects)


def read_jsonl(
    source: Paths,
    *,
    encoding: str | None = None,
    rejects: list[BadRow] | Callable[[BadRow], object] | None = None,
) -> FileRows:
    """The rows of JSON lines: a source as `read_csv` is one.

    Columns are the keys in the first MiB of each file; values are texts, int, Decimal, bool and None,
    and JSON text where they are nested.
    """
    return FileRows(Sources.parse(source, "jsonl"), InputFormat("jsonl", encoding=encoding), rejects)


def read_parquet(source: Paths) -> FileRows:
    """The rows of Parquet files, with the values that the file's types have in Python: a source as `read_csv` is one."""
    return FileRows(Sources.parse(source, "parquet"), InputFormat("parquet"), None)
