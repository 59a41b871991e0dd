"""An import without processes: ranges of any size through the real parser and the real writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headway.importer.bookkeeping import Bookkeeping, Counts, Position
from headway.importer.declare import bind, read_tables
from headway.importer.job import _claim, _read
from headway.importer.limits import RejectLimit
from headway.importer.parse import ParseJob, open_parser, parse_range
from headway.importer.rowstep import RowJob
from headway.importer.writer import ImportWriter
from headway.io.csv_format import CsvFormat
from headway.io.csv_ranges import CsvRanges
from headway.io.target import Address


def import_in_ranges(
    path: Path,
    target: str | Path,
    tables: Mapping[str, Any],
    process: Callable[..., Any] | None,
    *,
    range_bytes: int,
    max_rejects: int | str | None = None,
) -> ImportWriter:
    """Import `path` into `target` on this thread and give the closed writer."""
    source, format = CsvRanges(path, range_bytes=range_bytes), CsvFormat()
    opened = Address.parse(str(target)).open()
    try:
        has_function = process is not None
        binding = bind(read_tables(tables), source.head, opened, has_function=has_function, default=None)
        books = Bookkeeping(opened, "test")
        saved = books.saved()
        start = Position(str(path), **source.position(), seq=0)
        counts = Counts(read=source.head.blanks, skipped=source.head.blanks)
        if saved is not None and saved.position is not None:
            start, counts = saved.position, saved.counts
            source.seek(start._asdict())
        _claim(opened, books, binding, "fingerprint")
        writer = ImportWriter(
            opened,
            binding.tables,
            books,
            start=start,
            counts=counts,
            fresh=saved is None or saved.position is None,
            limit=RejectLimit.parse(max_rejects),
            format=format,
            read=partial(_read, path),
        )
        rows = RowJob(binding.names, binding.tables, binding.default, binding.projection, process, opened.kind)
        job = ParseJob(str(path), source.size, format, rows)
        with open_parser(job) as parser:
            for span in source:
                writer.write([parse_range(span, parser)])
        writer.commit({})
        if writer.stopped is None:
            writer.finish()
        return writer
    finally:
        opened.close()
        source.close()


def query(target: str | Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask a target something."""
    opened = Address.parse(str(target)).open()
    try:
        return opened.execute(sql)
    finally:
        opened.close()
