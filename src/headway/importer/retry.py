"""Rows that were set aside, tried again: from their raw text, never from the file that they came from.

A row that passes is written and leaves the table of rejects in one transaction; one that fails again
stays there with its new reason and a higher `attempt`. What does not belong here: the command.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from headway.errors import HeadwayError, PlanError
from headway.importer.batches import Batch, Sources
from headway.importer.bookkeeping import Bookkeeping, RejectRecord
from headway.importer.conflicts import Refusals, culprits, judge, put
from headway.importer.declare import bind
from headway.importer.identity import Begun
from headway.importer.lookup import finder
from headway.importer.lookup_process import found_of
from headway.importer.rowfunction import load, lookups_of
from headway.importer.rowstep import Fault, KeyStep, Known, RowJob, RowStep
from headway.io.chunk import Record, chunked
from headway.io.ranges import Found as RangeFound
from headway.io.ranges import Range
from headway.io.target import Address, ConstraintRefused, Target, Transaction
from headway.io.text_file import TextFile

AT_ONCE = 5_000
"""Rows in one transaction."""


@dataclass(slots=True)
class RetryResult:
    """What became of a job's rejects, in source rows: tried = written + filtered + skipped + rejected.

    `reasons`: those that were rejected again, by reason; `overwritten`: the tables whose rows a later
    row overwrites, for which a row that is retried comes last.
    """

    job: str
    tried: int = 0
    written: int = 0
    filtered: int = 0
    skipped: int = 0
    rejected: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    overwritten: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Give what ``--json`` prints."""
        names = ("job", "tried", "written", "filtered", "skipped", "rejected")
        return {name: getattr(self, name) for name in names} | {"reasons": dict(self.reasons)}


def retry_rejects(
    address: Address,
    job: str,
    *,
    process: str | Callable[..., Any] | None = None,
    advance: Callable[[RetryResult], None] = lambda _result: None,
) -> RetryResult:
    """Try a job's rejects again, in the order of their records.

    `process`: the row function to use; by default that of the job, as its code is now. `advance` is
    called behind every commit. Raises PlanError, HeadwayError; what was committed stays.
    """
    refusal = f"job {job!r} is being run by another process, into {address}; wait for it to end"
    with address.held(job, refusal=refusal), ExitStack() as stack:
        target = address.open()
        stack.callback(target.close)
        stack.enter_context(redirect_stdout(sys.stderr))
        again = _Again(target, job, process, stack)
        while again.page():
            advance(again.result)
        return again.result


class _Again:
    """One job's rejects, page by page."""

    def __init__(self, target: Target, job: str, process: str | Callable[..., Any] | None, stack: ExitStack) -> None:
        self._target, self._books, self.result = target, Bookkeeping(target, job), RetryResult(job)
        saved = self._books.saved()
        if saved is None:
            raise PlanError(f"there is no job {job!r} in this target")
        self._begun, self._counts = Begun.read(saved.fingerprint), saved.counts
        given, process = process, process if process is not None else self._begun.process
        names = self._begun.schema.names
        binding = bind(
            self._begun.declarations, self._begun.file.head, target, has_function=process is not None, default=self._begun.default,
            schema=self._begun.schema,
        )  # fmt: skip
        if binding.missing:
            raise PlanError(f"job {job!r}: its table {binding.missing[0].name} is not there any more")
        try:
            function = load(process)[0] if isinstance(process, str) else process
        except PlanError as error:
            if given is not None:
                raise
            raise PlanError(f"{error}; say with --process MODULE:FUNCTION what to use instead") from error
        self._lookups = lookups_of(function) if function is not None else {}
        self._job = RowJob(
            names, binding.tables, binding.default, binding.projection, process, target.kind, self._begun.schema,
            tuple((name, names.index(lookup.key)) for name, lookup in self._lookups.items()),
        )  # fmt: skip
        self._step, self._keys = RowStep(self._job), KeyStep(self._job)
        stack.callback(self._step.close)
        self._runner = stack.enter_context(asyncio.Runner()) if self._lookups else None
        self._refusals, self._after = Refusals(target), -1
        self._transaction = Transaction(target, [table.name for table in self._job.tables if table.refusals])
        self.result.overwritten = [table.name for table in binding.tables if table.overwrites]

    def page(self) -> bool:
        """Try the next rejects again; False if there are none."""
        rejects = self._books.stored_rejects(self._after, AT_ONCE)
        if not rejects:
            return False
        faults, filtered = dict[int, Fault](), array("q")
        records = list(self._records([record for _, record in rejects], faults))
        self._step.offer(chunked(records), faults, filtered, self._found(records))
        tables = self._step.take(faults)
        batches = [
            Batch(table, self._target.decode(table, [found.payload]), _sources(found.sources))
            for table in self._job.tables
            if (found := tables.get(table.name))
        ]
        try:
            self._write(rejects, batches, faults, filtered)
        except ConstraintRefused:
            known = culprits(self._transaction, self._target, self._refusals, batches, len(rejects))
            try:
                self._write(rejects, batches, faults, filtered, known)
            except ConstraintRefused as error:  # of a table that is none of the job's, or that no row alone breaks
                raise HeadwayError(f"the target refused the rows: {error}; nothing of them was changed") from error
        self._after = rejects[-1][1].seq
        return True

    def _write(
        self,
        rejects: Sequence[tuple[int, RejectRecord]],
        batches: Sequence[Batch],
        faults: Mapping[int, Fault],
        filtered: Sequence[int],
        known: Mapping[int, Fault] = MappingProxyType({}),
    ) -> None:
        with self._transaction:
            refused, skipped = judge(self._refusals, batches, known)
            lost = {*refused, *skipped}
            for batch in batches:
                put(batch.without(lost, len(rejects), self._target), self._target)
            again = dict(sorted({**faults, **refused}.items()))
            told = [self._told(rejects[index][1], fault) for index, fault in again.items()]
            attempts = [rejects[index][0] + 1 for index in again]
            written = len(rejects) - len(again) - len(skipped) - len(filtered)
            counts = replace(
                self._counts,
                written=self._counts.written + written,
                rejected=self._counts.rejected - len(rejects) + len(again),
                skipped=self._counts.skipped + len(skipped),
                filtered=self._counts.filtered + len(filtered),
            )
            first, last = rejects[0][1].seq, rejects[-1][1].seq
            self._books.replace_rejects(first, last, told, attempts, counts)
        self._counts, result = counts, self.result
        result.tried, result.rejected = result.tried + len(rejects), result.rejected + len(again)
        result.written, result.skipped = result.written + written, result.skipped + len(skipped)
        result.filtered += len(filtered)
        result.reasons.update(fault.reason for fault in again.values())

    def _told(self, record: RejectRecord, fault: Fault) -> RejectRecord:
        return record._replace(
            stage=fault.stage, reason=self._books.escaped(fault.reason), message=self._books.escaped(fault.message)
        )

    def _records(self, rejects: Sequence[RejectRecord], faults: dict[int, Fault]) -> Iterator[Record]:
        """Read the raw texts as records again; what is none is a fault."""
        for index, reject in enumerate(rejects):
            fields, fault = _fields(reject, self._begun.file)
            if fault is not None:
                faults[index] = fault
            else:
                yield index, fields

    def _found(self, records: Sequence[Record]) -> list[dict[Any, Known]]:
        """Look up what the function needs."""
        if self._runner is None:
            return []
        self._keys.offer(chunked(records), {}, array("q"))

        async def find() -> list[dict[Any, Known]]:
            asked = zip(self._lookups.values(), self._keys.keys, strict=True)
            known = await asyncio.gather(*(finder(lookup).find(keys) for lookup, keys in asked))
            return [found_of(lookup, entries) for lookup, entries in zip(self._lookups.values(), known, strict=True)]

        return self._runner.run(find())


def _sources(found: array[int]) -> Sources:
    sources = Sources()
    sources.extend(0, found)
    return sources


def _fields(reject: RejectRecord, file: TextFile) -> tuple[Sequence[Any], Fault | None]:
    raw = reject.raw_bytes if reject.raw_bytes is not None else reject.raw.encode(file.text.name)
    found = RangeFound()
    whole = Range(0, 0, 0, len(raw), 1, first=False, last=True)
    records = list(file.records(raw, whole, found))
    if found.faults:
        return (), Fault("parse", *found.faults[0])
    if len(records) != 1:
        return (), Fault("parse", "not_a_record", f"the raw text holds {len(records)} records")
    return records[0][1], None
