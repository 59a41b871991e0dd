"""The import job: files into the tables of one target, in file order.

Put together from a source of ranges, one stage that parses them in processes, and one ordered
writer. What does not belong here: how any of the three works, and what a terminal shows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from headway.errors import HeadwayError, PlanError, RunError, SinkError, StageError, WorkerDied
from headway.importer.batchfunction import SEQ
from headway.importer.bookkeeping import JOBS, Bookkeeping, Counts, Position, SavedJob
from headway.importer.declare import Binding, Declaration, TableCame, bind, read_tables
from headway.importer.identity import fields_of, identity
from headway.importer.infer import infer
from headway.importer.limits import RejectLimit
from headway.importer.lookup_process import RANGES_UNDER_WAY, LookupProcess
from headway.importer.options import ImportOptions, rejects_file, workers_of
from headway.importer.parse import Looked, ParseJob, open_worker, parse_range
from headway.importer.preview import NoTarget, Preview, describe, try_sample
from headway.importer.report import in_rows
from headway.importer.result import ImportResult, TooManyRejects
from headway.importer.resume import check_end, check_files, check_options, check_restart, check_unchanged, claim
from headway.importer.rowfunction import is_per_batch, load, lookups_of
from headway.importer.rowstep import RowJob
from headway.importer.schema import Schema, SchemaDeclaration
from headway.importer.stopping import Told, run_until_stopped
from headway.importer.writer import ImportWriter, Stopped
from headway.io.inputs import InputFormat, Sources, open_ranges
from headway.io.ranges import Range, Ranges
from headway.io.target import Address, Target
from headway.machine import give_back_memory
from headway.page import check_page
from headway.pipeline import Pipeline
from headway.text import message, told
from headway.watch.report import Report

COMMITS_A_TIDYING = 4


class ImportJob:
    """One run of an import. `begin` is called once everything is checked, `advance` after every commit.

    `stopping` is called at the first SIGINT or SIGTERM, with the number of lines that were read and are
    being finished.

    Every mistake that can be seen without reading rows raises PlanError, at the latest when `run`
    is called and before anything is written.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | Path,
        *,
        table: str | None = None,
        format: str | None = None,
        delimiter: str | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        encoding: str | None = None,
        no_header: bool = False,
        key: str | Sequence[str] = (),
        mode: str | None = None,
        keep: str | None = None,
        process: str | Callable[..., Any] | None = None,
        tables: str | Path | Mapping[str, Any] | None = None,
        schema: str | Path | Mapping[str, Any] | None = None,
        column: Sequence[str] | Mapping[str, str] = (),
        workers: int | str = "auto",
        max_rejects: int | str | None = None,
        rejects: str | Path | None = None,
        job: str | None = None,
        restart: bool = False,
        accept_changed: bool = False,
        dry_run: bool = False,
        ui: bool | str = False,
        begin: Callable[[ImportJob], None] = lambda _job: None,
        advance: Callable[[ImportJob], None] = lambda _job: None,
        stopping: Callable[[ImportJob, int], None] = lambda _job, _lines: None,
    ) -> None:
        self.sources, self.address = Sources.parse(source, format), Address.parse(str(target))
        self.workers = workers_of(workers)
        self.limit = RejectLimit.parse(max_rejects)
        self._schema = SchemaDeclaration(schema, column)
        self._process, self._rejects = process, rejects_file(rejects, self.sources.locations, self.address)
        self._restart, self._accept_changed, self.dry_run = restart, accept_changed, dry_run
        check_page(ui)
        self._begin, self._advance, self._stopping, self._ui = begin, advance, stopping, ui
        key = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) else tuple(key)
        if tables is not None:
            if key or mode or keep:
                raise PlanError("--key, --mode and --keep stand in the file given by --tables, per table")
            self._declarations, self._default = read_tables(tables), table
        else:
            self._declarations = [Declaration(table or self.sources.table_name(), None, key, mode, keep)]
            self._declarations[0].meaning()  # a pair that is not legal is refused before the file is looked at
            self._default = self._declarations[0].name
        function = load(process)[0] if isinstance(process, str) else process
        self._lookups = lookups_of(function) if function is not None else {}
        self._per_batch = function is not None and is_per_batch(function)
        self._format = InputFormat(self.sources.format, delimiter, quote, escape, encoding, not no_header)
        self.table_names = [declaration.name for declaration in self._declarations]
        self.name = job or f"{self.sources.name}:{','.join(self.table_names)}"
        self.size: int | None = None
        """of all files, in the unit of positions; None where one is known only at its end"""
        self.unit = "rows" if self.sources.format == "parquet" else "bytes"
        self.start_byte = 0
        self.counts, self.bytes_done, self.started = Counts(), 0, time.monotonic()
        self.binding: Binding | None = None
        self.schema: Schema | None = None
        self.stopped: Stopped | None = None
        self.began = False
        """everything was checked and the first row may have been read"""
        self._told: Told | None = None
        self._commits = 0
        self.result = ImportResult(self.name)

    def run(self) -> ImportResult:
        """Import the files.

        Raises PlanError (nothing was touched), CheckpointError (the job cannot go on from what the
        target holds), HeadwayError (another process is at it), TooManyRejects, another RunError, or
        KeyboardInterrupt. What was committed is a prefix of the input; once it began, `self.result`
        tells which.
        """
        # Or Arrow's allocator takes some 25 MB of each process at once that are never needed; before Arrow is loaded.
        os.environ.setdefault("MIMALLOC_ARENA_EAGER_COMMIT", "0")
        ranges = open_ranges(self.sources.locations, self._format)
        try:
            self.size = ranges.size
            if self.dry_run:
                self.result.preview = self._look(ranges)
                return self.result
            refusal = (
                f"job {self.name!r} is being run by another process, into {self.address}; "
                "wait for it to end, or stop it: the same command then goes on where it stopped"
            )
            with self.address.held(self.name, refusal=refusal):
                return self._open_and_run(ranges)
        finally:
            ranges.close()

    def _look(self, ranges: Ranges) -> Preview:
        """Look at what would be done; the target is not touched."""
        nowhere: Any = NoTarget()
        schema = self._fields(ranges, nowhere, None)
        self._check_names(schema.names)
        binding = self._bind(ranges, nowhere, schema)
        seen = describe(binding, schema, job=self.name, source=str(self.sources), target=str(self.address))
        job = self._parse_job(ranges, binding, schema)
        with ExitStack() as stack:
            seen.plan = self._pipeline(ranges, lambda _rows: None, job, stack).plan().to_dict()
        try_sample(seen, job.rows, ranges, unit=self.unit, lookups=self._lookups, workers=self.workers)
        return seen

    def _bind(self, ranges: Ranges, target: Target, schema: Schema) -> Binding:
        return bind(
            self._declarations, ranges.head, target, has_function=self._process is not None, default=self._default,
            file=ranges.files[0].location.name, schema=schema,
        )  # fmt: skip

    def _open_and_run(self, ranges: Ranges) -> ImportResult:
        was_there = self.address.exists()
        target = self.address.open()
        try:
            return self._run(ranges, target)
        finally:
            # Another job may have begun in the same new file: its database is not ours to remove.
            untouched = self.binding is None and not was_there and target.describe(JOBS) is None
            target.close()
            if untouched:
                self.address.remove()

    def _run(self, ranges: Ranges, target: Target) -> ImportResult:
        books = Bookkeeping(target, self.name)
        saved = None if self._restart else books.saved()
        schema = self._fields(ranges, target, books.saved())
        fingerprint = identity(
            ranges.files, self._format, process=self._process, declarations=self._declarations, table=self._default,
            schema=self._schema, fields=schema,
        )  # fmt: skip
        if self._restart:
            check_restart(target, self._declarations)
        elif saved is not None and not self._go_on(ranges, saved, fingerprint, books):
            return self._nothing_to_do(saved, books)
        self._check_names(schema.names)
        binding = self._bind(ranges, target, schema)
        try:
            claimed = claim(target, books, binding, fingerprint, restart=self._restart)
        except TableCame:  # what was found out about it does not hold
            return self._run(ranges, target)
        moved = claimed is not None and claimed.position != (saved.position if saved else None)
        if claimed is not None and moved and not self._go_on(ranges, claimed, fingerprint, books):
            return self._nothing_to_do(claimed, books)  # by a run that the lock does not reach
        fresh = claimed is None or claimed.position is None
        counts = Counts() if fresh or claimed is None else claimed.counts
        start = Position(**ranges.position(), seq=claimed.position.seq if claimed and claimed.position else 0)
        self.binding, self.schema, self.counts, self.started = binding, schema, counts, time.monotonic()
        self.start_byte = self.bytes_done = ranges.bytes_before(start.file) + start.byte
        writer = ImportWriter(
            target, binding.tables, books, start=start, counts=counts, fresh=fresh, limit=self.limit, ranges=ranges,
            on_commit=self._moved,
        )  # fmt: skip
        self.result.resumed_at, self.began = start.seq or None, True
        self._begin(self)
        report: Report | None = None
        try:
            with ExitStack() as stack:
                self._told = Told(
                    lambda: self._stopping(self, ranges.lines_ahead()),
                    lambda report: in_rows(report, writer.counts.since(counts), writer.set_aside, writer.notes),
                    self._ui,
                )
                report = run_until_stopped(
                    self._pipeline(ranges, writer, self._parse_job(ranges, binding, schema), stack), self._told
                )
            self._conclude(ranges, writer)
        except (RunError, KeyboardInterrupt) as error:
            report = getattr(error, "report", None)
            if isinstance(error, StageError) and isinstance(error.value, (Range, Looked)):
                span = error.value if isinstance(error.value, Range) else error.value.span
                error.args = (self._told_by_lines(error, span, ranges),)
            elif isinstance(error, SinkError) and isinstance(error.__cause__, HeadwayError):
                error.args = error.__cause__.args  # which says it all
            raise
        finally:
            self._settle(writer, counts, report)
            if self._rejects is not None:
                books.export_rejects(self._rejects)
        self._check_limit()
        return self.result

    def _pipeline(
        self, ranges: Ranges, writer: ImportWriter | Callable[[Any], None], job: ParseJob, stack: ExitStack
    ) -> Pipeline[Any]:
        """Ranges, their keys looked up, parsed in processes, written in order.

        Few are under way: each holds a MiB or two, and a drain finishes all of them.
        """
        begun: Pipeline[Any] = Pipeline(ranges, name="import", window=4 * self.workers + self.address.ranges_a_commit)
        if job.rows.lookups:
            lookups = LookupProcess(job)
            if not self.dry_run:
                stack.enter_context(lookups)
            begun = begun.map(lookups.find, workers=RANGES_UNDER_WAY, name="lookup")
        parsed = begun.map(
            parse_range,
            on="process",
            workers=self.workers,
            setup=partial(open_worker, job, os.getpid()),
            idempotent=True,
            name="parse",
        )
        return parsed.to(writer, name="write")

    def _fields(self, ranges: Ranges, target: Target, saved: SavedJob | None) -> Schema:
        """Give the types of the fields: as the job was begun, else as declared; inferred for a table that is made of them."""
        names = self._schema.names_of(ranges.head)
        made = self._declarations[0].columns is None and target.describe(self._declarations[0].name) is None
        begun = fields_of(saved.fingerprint, self._schema) if saved is not None else None
        if begun is not None and begun.names == names and not made:
            return begun
        # With a row function values are as the source has them: of the types of a Parquet file, else texts.
        open = made if self._process is None else ranges.head.types is not None
        if not open or not self._schema.leaves_open(names):
            return self._schema.bound(names)
        typed = self.sources.format != "csv"
        return self._schema.bound(names, infer(names, ranges.sample(), ranges.head.types, typed=typed))

    def _check_names(self, names: Sequence[str]) -> None:
        """Refuse a row function that these columns are not for."""
        for name, lookup in self._lookups.items():
            if lookup.key not in names:
                raise PlanError(
                    f"look-up {name}: its key {lookup.key!r} is no column of the source, which has {', '.join(names)}"
                )
        if self._per_batch and SEQ in names:
            raise PlanError(f"the source has a column {SEQ!r}, a name that a function per batch needs for itself")

    def _parse_job(self, ranges: Ranges, binding: Binding, schema: Schema) -> ParseJob:
        rows = RowJob(
            binding.names, binding.tables, binding.default, binding.projection, self._process, self.address.kind, schema,
            tuple((name, binding.names.index(lookup.key)) for name, lookup in self._lookups.items()),
        )  # fmt: skip
        return ParseJob(ranges.files, rows)

    @property
    def bottleneck(self) -> str | None:
        """The name of the slowest part of the run, as far as it is known by now."""
        run = self._told.run if self._told is not None else None
        found = run.snapshot().to_dict()["bottleneck"] if run is not None else None
        return found["stage"] if found else None

    def _conclude(self, ranges: Ranges, writer: ImportWriter) -> None:
        if writer.stopped is None:
            if not ranges.ended or writer.position.number != ranges.number:
                raise HeadwayError(f"the run ended at byte {writer.position.byte} of {writer.position.file}")
            check_unchanged(ranges.files)
            writer.finish()
            self.result.finished = True

    def _moved(self, writer: ImportWriter) -> None:
        self.counts, self.stopped = writer.counts, writer.stopped
        self.bytes_done = writer.ranges.bytes_before(writer.position.file) + writer.position.byte
        if self._told is not None:
            self._told.rejected(writer.taken)
        self._commits += 1
        if self._commits % COMMITS_A_TIDYING == 0:
            give_back_memory()  # or, once rows have another length, what those before left takes room beside theirs
        self._advance(self)

    def _settle(self, writer: ImportWriter, before: Counts, report: Report | None) -> None:
        """Put what was committed into the result."""
        result, seconds = self.result, time.monotonic() - self.started
        for name, value in asdict(writer.counts).items():
            setattr(result, name, value)
        result.seconds, result.tables, result.upserts = seconds, writer.added(), writer.upserts
        result.reasons, result.firsts = dict(writer.reasons), writer.firsts
        if report is not None:
            result.report = in_rows(report, writer.counts.since(before), writer.set_aside, writer.notes)
        result.rate = (writer.position.seq - (result.resumed_at or 0)) / seconds if seconds else 0.0

    def _told_by_lines(self, error: StageError, span: Range, ranges: Ranges) -> str:
        """Say what ended the run, and in which lines of the file it happened."""
        last = span.line + ranges.lines_of(span) - 1
        cause = error.__cause__ or error
        what = message(cause) if isinstance(cause, WorkerDied) else f"raised {told(cause).removesuffix(': ')}"
        name = ranges.files[span.file].location.name
        return f"{name}, in lines {span.line:,} to {max(span.line, last):,}: {what}"

    def _check_limit(self) -> None:
        result = self.result
        if self.stopped is not None:
            at = f"line {self.stopped.line}" + (f" ({self.stopped.reason})" if self.stopped.reason else "")
            if len(self.sources.locations) > 1:
                at += f" of {self.stopped.file}"
            raise TooManyRejects(
                f"stopped at {at}: more than {self.limit.text} rejects; the rows before it are committed. "
                "Run the same command with a higher --max-rejects to go on there",
                result,
            )
        if self.limit.exceeded(result.read - result.skipped, result.rejected):
            raise TooManyRejects(
                f"{result.rejected} rejects are more than {self.limit.text}; the input was read to its end", result
            )

    def _go_on(self, ranges: Ranges, saved: SavedJob, fingerprint: str, books: Bookkeeping) -> bool:
        """Go to where the job stood; False if it was finished and nothing has come since. Raises CheckpointError."""
        if saved.position is None:
            return True
        check_files(saved, ranges.files, self.name, accept_changed=self._accept_changed)
        check_options(saved, fingerprint, self.name, self.table_names)
        ranges.seek(saved.position._asdict())
        return check_end(saved, ranges, books, self.name, accept_changed=self._accept_changed)

    def _nothing_to_do(self, saved: SavedJob, books: Bookkeeping) -> ImportResult:
        for name, value in asdict(saved.counts).items():
            setattr(self.result, name, value)
        self.result.finished = self.result.already_finished = True
        self.result.resumed_at = saved.position.seq if saved.position else 0
        self.result.tables = dict.fromkeys(self.table_names, 0)
        if self._rejects is not None:
            books.export_rejects(self._rejects)
        self._check_limit()
        return self.result


def import_file(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Path,
    **options: Unpack[ImportOptions],
) -> ImportResult:
    """Import CSV, JSON lines or Parquet into a DuckDB, SQLite or PostgreSQL database, in file order.

    `source`: a path, a pattern, an address, ``"-"``, or several of them. The options are those of
    ``headway import``, with underscores; `process` may be a function, `tables` and `schema` a mapping of the
    shape of their file. Raises PlanError for a mistake in them, CheckpointError if the job was begun with
    another content of its files or other options, HeadwayError while another process runs the job,
    TooManyRejects (with `.result`) above `max_rejects`, another RunError if the run failed.
    """
    return ImportJob(source, target, **options).run()
