"""The one ordered writer of an import: a sink of range results.

Ranges are committed as a contiguous prefix of the file: as many as the database says, or as often as the engine asks. One
transaction holds their rows, their rejects, the job's counts and the position behind them; so a run that is killed
leaves a prefix and its exact position. What does not belong here: parsing, SQL.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from headway.errors import HeadwayError
from headway.importer.batches import Batch, Sources
from headway.importer.bookkeeping import Bookkeeping, Counts, Position, RejectRecord
from headway.importer.conflicts import Refusals, culprits, judge, put
from headway.importer.limits import RejectLimit
from headway.importer.parse import RangeResult
from headway.importer.rowstep import Fault
from headway.io.ranges import Place, Places, Ranges
from headway.io.table import Table
from headway.io.target import ConstraintRefused, Target, Transaction


@dataclass(frozen=True, slots=True)
class Stopped:
    """The reject that was one too many: it and what follows it was not taken."""

    file: str
    line: int
    reason: str


class ImportWriter:
    """Sink of `RangeResult`, in file order. A range that was taken already is ignored.

    `start` is where the first range begins; `fresh` means that the job has committed nothing yet, so
    that tables to be replaced are still to be emptied. `ranges` is where they come from: it is asked for
    the raw text of rows that lose a conflict, and told what is committed. `on_commit` is called behind every commit.
    """

    def __init__(
        self,
        target: Target,
        tables: Sequence[Table],
        books: Bookkeeping,
        *,
        start: Position,
        counts: Counts,
        fresh: bool,
        limit: RejectLimit,
        ranges: Ranges,
        on_commit: Callable[[ImportWriter], None] = lambda _writer: None,
    ) -> None:
        self.position, self.counts = start, counts
        self.written = dict.fromkeys((table.name for table in tables), 0)
        """rows written by this run, per table; an overwritten row counts again"""
        self.reasons: Counter[str] = Counter()
        """rows that this run set aside, by reason"""
        self.firsts: dict[str, tuple[int, str]] = {}
        """line and message of the first of each reason"""
        self.set_aside = 0
        """rows that got as far as the writer and were rejected or left out there"""
        self.taken: list[RejectRecord] = []
        """rows that the last commit set aside"""
        self.stopped: Stopped | None = None
        self._target, self._tables, self._books, self._limit = target, tables, books, limit
        self._alone = [table.name for table in tables if table.refusals]
        self._replaced = [table.name for table in tables if table.mode == "replace"]
        self._refusals = Refusals(target)
        self.ranges, self._on_commit = ranges, on_commit
        self._held: list[RangeResult] = []
        self._broken: BaseException | None = None
        self._next = start.number
        self._fresh = fresh
        self._stood = self._rows_of_overwritten()

    @property
    def notes(self) -> Sequence[str]:
        """What the report says about how the database was set."""
        return self._target.notes

    @property
    def upserts(self) -> dict[str, int]:
        """Rows written by this run to each table whose rows are overwritten."""
        return {name: self.written[name] for name in self._stood}

    def added(self) -> dict[str, int]:
        """Give the rows that each table got by this run. Where rows are overwritten the tables are asked."""
        try:
            now = self._rows_of_overwritten()
        except HeadwayError:  # what broke the database has ended the run, and is told
            now = {}
        return {
            name: now[name] - self._stood[name] if name in now else count
            for name, count in self.written.items()
            if name in now or name not in self._stood
        }

    def open(self, resume: dict[str, Any] | None) -> None:
        """Nothing to open: the target is open before the first range is read."""

    def write(self, items: Sequence[RangeResult]) -> None:
        """Take ranges, in order, and commit when enough are there."""
        self._refuse_if_broken()
        for item in items:
            if item.span.number != self._next or self.stopped is not None:
                continue
            self._next += 1
            self._held.append(item)
            if self._target.enough(self._rows_held(), len(self._held)):
                self._flush()

    def commit(self, state: dict[str, Any]) -> None:
        """Commit what was taken; also if the run failed it is a prefix of the file."""
        self._refuse_if_broken()
        self._flush()

    def close(self, error: BaseException | None) -> None:
        """Nothing to close: the target is closed by whoever opened it."""

    def finish(self) -> None:
        """Mark the job as finished, once everything is committed. Only for a run that reached the end."""
        with self._transaction():
            self._books.advance(self.position, self.counts, finished=True)
        self._begun()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        try:
            try:
                self._write(held)
            except ConstraintRefused:
                self._write_without(self._culprits(held), held)
        except BaseException as error:
            self._broken = error
            raise
        self.ranges.release(self.position.number)
        self._on_commit(self)
        if self.stopped is not None:
            self.ranges.stop()

    def _write_without(self, known: Mapping[int, Fault], held: list[RangeResult]) -> None:
        try:
            self._write(held, known)
        except ConstraintRefused as error:
            raise HeadwayError(
                f"the database refuses a commit as a whole: {error}. A constraint that is looked at only when a "
                "transaction ends names no row: make it immediate, or import into a table without it"
            ) from error

    def _culprits(self, held: list[RangeResult]) -> dict[int, Fault]:
        """Find the source rows of a commit that the database refuses, whatever the reason."""
        records = sum(result.records for result in held)
        return culprits(self._transaction(), self._target, self._refusals, self._batches(held), records)

    def _write(self, held: list[RangeResult], known: Mapping[int, Fault] = MappingProxyType({})) -> None:
        """Write one commit, without source rows that are known to be faults."""
        with self._transaction():
            batches = self._batches(held)
            faults, left_out = judge(self._refusals, batches, known)
            lost = {*faults, *left_out}
            commit = _Commit(held, self.ranges)
            rejects = commit.rejects(faults)
            stop = self._limit.stop(self.position.seq, self.counts.rejected, commit.records, [r[0] for r in rejects])
            end = commit.records if stop is None else stop
            rows = {batch.table.name: put(batch.without(lost, end, self._target), self._target) for batch in batches}
            taken = [self._record(commit, *reject) for reject in rejects if reject[0] < end]
            self._books.reject(taken)
            skipped = sum(1 for source in left_out if source < end)
            counts = commit.counted(self.counts, end, rejected=len(taken), skipped=skipped)
            position = commit.position(self.position, end)
            self._books.advance(position, counts, finished=False)
        self.position, self.counts = position, counts
        self._begun()
        self.set_aside += skipped + sum(1 for reject in taken if reject.stage == "write")
        self.taken = taken
        for reject in taken:
            self.reasons[reject.reason] += 1
            self.firsts.setdefault(reject.reason, (reject.line, reject.message))
        for name, count in rows.items():
            self.written[name] += count
        if stop is not None:
            late = next((reject for reject in rejects if reject[0] >= stop), None)
            line, reason = (late[1].line, late[2].reason) if late else (position.line, "")
            self.stopped = Stopped(position.file, line, reason)

    def _rows_held(self) -> int:
        """Give how many rows are held of the table that has most of them."""
        counts = Counter[str]()
        for result in self._held:
            counts.update({name: len(found.sources) for name, found in result.tables.items()})
        return max(counts.values(), default=0)

    def _refuse_if_broken(self) -> None:
        """Take nothing behind a commit that failed: it would leave a gap."""
        if self._broken is not None:
            raise self._broken

    def _begun(self) -> None:
        """A commit stands: what was to be emptied has been."""
        if self._fresh:
            self._stood = {name: 0 if name in self._replaced else count for name, count in self._stood.items()}
        self._fresh = False

    def _rows_of_overwritten(self) -> dict[str, int]:
        return {table.name: self._target.count(table.name) for table in self._tables if table.overwrites}

    def _transaction(self) -> Transaction:
        return Transaction(self._target, self._alone, self._replaced if self._fresh else ())

    def _batches(self, held: Sequence[RangeResult]) -> list[Batch]:
        batches = []
        for table in self._tables:
            payloads, sources, base = [], Sources(), 0
            for result in held:
                if found := result.tables.get(table.name):
                    payloads.append(found.payload)
                    sources.extend(base, found.sources)
                base += result.records
            if payloads:
                batches.append(Batch(table, self._target.decode(table, payloads), sources))
        return batches

    def _record(self, commit: _Commit, record: int, place: Place, fault: Fault) -> RejectRecord:
        file = self.ranges.files[place.file]
        text, changed = file.printable(place.raw)
        raw = self._books.escaped(text)
        return RejectRecord(
            self.position.seq + record,
            file.location.name,
            place.line,
            place.byte,
            place.length,
            fault.stage,
            self._books.escaped(fault.reason),
            self._books.escaped(fault.message),
            raw,
            place.raw if changed or raw != text else None,
        )


class _Commit:
    """Ranges that are committed together; their records are counted from 0 across them."""

    def __init__(self, held: Sequence[RangeResult], ranges: Ranges) -> None:
        self._held, self._ranges = held, ranges
        self._bases, self.records = [], 0
        self._places: dict[int, Places] = {}
        for result in held:
            self._bases.append(self.records)
            self.records += result.records

    def rejects(self, faults: Mapping[int, Fault]) -> list[tuple[int, Place, Fault]]:
        """Give the rejects of all ranges and of the writer, in file order."""
        found = [
            (base + row.record, row.place, row.fault)
            for base, result in zip(self._bases, self._held, strict=True)
            for row in result.rejects
        ]
        found += [(record, self._place(record), fault) for record, fault in faults.items()]
        return sorted(found, key=lambda reject: reject[0])

    def counted(self, before: Counts, end: int, *, rejected: int, skipped: int) -> Counts:
        """Count the records below `end`, and the blank lines before it."""
        blanks = filtered = 0
        for base, result in zip(self._bases, self._held, strict=True):
            if end >= self.records:
                blanks, filtered = blanks + len(result.blanks), filtered + len(result.filtered)
            elif base <= end:
                blanks += bisect_right(result.blanks, end - base)
                filtered += bisect_left(result.filtered, end - base)
        return replace(
            before,
            read=before.read + end + blanks,
            written=before.written + end - rejected - skipped - filtered,
            rejected=before.rejected + rejected,
            skipped=before.skipped + skipped + blanks,
            filtered=before.filtered + filtered,
        )

    def position(self, before: Position, end: int) -> Position:
        """Give the position behind the records below `end`."""
        if end < self.records:
            index = bisect_right(self._bases, end) - 1
            place = self._place(end)
            number = self._held[index].span.number
            file = self._ranges.files[place.file].location.name
            return Position(file, place.byte, place.line, number, before.seq + end)
        last = self._held[-1]
        return before._replace(
            file=self._ranges.files[last.span.file].location.name,
            byte=last.span.end,
            line=last.span.line + last.lines,
            number=last.span.number + 1,
            seq=before.seq + self.records,
        )

    def _place(self, record: int) -> Place:
        index = bisect_right(self._bases, record) - 1
        result = self._held[index]
        places = self._places.get(index)
        if places is None:
            places = self._places[index] = self._ranges.places(result.span, result.layout, result.records)
        return places[record - self._bases[index]]
