"""An import without processes: ranges of any size through the real parser and the real writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.importer.bookkeeping import Bookkeeping, Counts, Position
from headway.importer.declare import bind, read_tables
from headway.importer.limits import RejectLimit
from headway.importer.parse import ParseJob, open_parser, parse_range
from headway.importer.resume import claim
from headway.importer.rowstep import RowJob
from headway.importer.writer import ImportWriter
from headway.io.inputs import InputFormat, Sources, open_ranges
from headway.io.ranges import RANGE_BYTES, Ranges
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
    ranges = ranges_of(path, range_bytes=range_bytes)
    opened = Address.parse(str(target)).open()
    try:
        has_function = process is not None
        binding = bind(read_tables(tables), ranges.head, opened, has_function=has_function, default=None)
        books = Bookkeeping(opened, "test")
        saved = books.saved()
        fresh = saved is None or saved.position is None
        if saved is not None and saved.position is not None:
            ranges.seek(saved.position._asdict())
        start = Position(**ranges.position(), seq=saved.position.seq if saved and saved.position else 0)
        claim(opened, books, binding, "fingerprint", restart=False)
        writer = ImportWriter(
            opened, binding.tables, books, start=start, counts=Counts() if fresh or saved is None else saved.counts,
            fresh=fresh, limit=RejectLimit.parse(max_rejects), ranges=ranges,
        )  # fmt: skip
        rows = RowJob(binding.names, binding.tables, binding.default, binding.projection, process, opened.kind)
        with open_parser(ParseJob(ranges.files, rows)) as parser:
            for span in ranges:
                writer.write([parse_range(span, parser)])
        writer.commit({})
        if writer.stopped is None:
            writer.finish()
        return writer
    finally:
        opened.close()
        ranges.close()


def ranges_of(*paths: Path | str, range_bytes: int = RANGE_BYTES, kind: str | None = None, **format: Any) -> Ranges:
    """Open files as ranges of some size."""
    sources = Sources.parse(paths, kind)
    return open_ranges(sources.locations, InputFormat(sources.format, **format), range_bytes=range_bytes)


def query(target: str | Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask a target something."""
    opened = Address.parse(str(target)).open()
    try:
        return opened.execute(sql)
    finally:
        opened.close()
