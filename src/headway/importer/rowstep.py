"""From the records of a range to output rows: the row function, and what becomes of a row that it refuses.

What does not belong here: how a file is cut into records, and the database.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple

from headway.core.block import DROP
from headway.importer.batchfunction import offer
from headway.importer.collect import Collector, TableRows, Unfit
from headway.importer.rowfunction import Reject, RowFunction, Rows, prepare
from headway.importer.schema import Broken, Field, Schema
from headway.io.chunk import Chunk, pieces, whole, without
from headway.io.columns import ColumnType, Int, Text
from headway.io.row import row_type
from headway.io.table import Table
from headway.io.target import codec


class Fault(NamedTuple):
    """Why a row is set aside: in which stage, a short reason, and a sentence."""

    stage: str
    reason: str
    message: str


Known = tuple[Fault | None, Any]
"""What is known of a key: why it failed, or its value."""
NOTHING: Known = (None, None)


@dataclass(frozen=True)
class RowJob:
    """What makes output rows of records; it is sent to each worker once."""

    names: tuple[str, ...]
    tables: tuple[Table, ...]
    default: str | None
    projection: tuple[int, ...] | None
    """without a row function: the fields that make an output row (None: all)"""
    process: str | Callable[..., Any] | None
    target: str
    """the kind of database"""
    schema: Schema | None = None
    """the types of the fields and their rules (None: texts)"""
    lookups: tuple[tuple[str, int], ...] = ()
    """the look-ups that the row function takes, and the field of each one's key"""


class RowStep:
    """Turns records into the rows of tables, range by range. A record that cannot become rows is a fault."""

    def __init__(self, job: RowJob) -> None:
        self._job = job
        self._row = row_type(job.names)
        self._function = prepare(job.process) if job.process is not None else None
        self._collector = Collector(job.tables, job.default, codec(job.target))
        self._schema = job.schema if job.schema is not None and not job.schema.plain else None
        if self._function is not None and self._function.per_batch and self._schema is None:
            self._schema = Schema(tuple(Field(name, Text()) for name in job.names))
        self._typed = self._wanted_typed()
        self.by_column = self._function is None
        """whether nobody looks at single records"""

    def close(self) -> None:
        """Close the row function's event loop."""
        if self._function is not None:
            self._function.close()

    def offer(
        self,
        chunks: Iterable[Chunk],
        faults: dict[int, Fault],
        filtered: array[int],
        found: Sequence[Mapping[Any, Known]] = (),
    ) -> None:
        """Take the records of a range, in order; note which are faults, and which gave no row.

        `found`: for each look-up what it knows of the range's keys.
        """
        if self._function is not None and self._function.per_batch:
            for chunk in whole(chunks):
                self._call_batch(self._function, chunk, faults, filtered)
            return
        if self._function is not None:
            chunks = chain.from_iterable(map(pieces, chunks))
        for chunk in chunks:
            self._collector.settle()
            if self._schema is not None:
                chunk = checked(self._schema, chunk, faults, self._typed)
                if not chunk.sources:
                    continue
            if self._function is None:
                columns = chunk.columns
                if self._job.projection is not None:
                    columns = [columns[index] for index in self._job.projection]
                self._collector.add_columns(chunk.sources, columns)
            else:
                if self._schema is not None:
                    chunk = Chunk(chunk.sources, _with_documents(self._schema, chunk.columns))
                if self._job.lookups:
                    self._call_with_found(self._function, chunk, faults, filtered, found)
                else:
                    given = zip(map(self._row, chunk.rows), *map(repeat, self._function.state), strict=False)
                    self._call_each(self._function.call, zip(chunk.sources, given, strict=True), faults, filtered)

    def outputs(self, until: int) -> dict[int, dict[str, list[dict[str, Any]]]]:
        """Give, of the records below `until`, the rows of each table that were collected, before `take`."""
        return self._collector.outputs(until)

    def take(self, faults: dict[int, Fault]) -> dict[str, TableRows]:
        """Give the rows collected so far, encoded; what does not fit its table is added to `faults`."""
        tables, unfit = self._collector.take()
        faults.update((record, Fault("convert", why.reason, why.message)) for record, why in unfit.items())
        return tables

    def _wanted_typed(self) -> frozenset[int]:
        """Give the fields whose values are wanted in their type, not as the text that a table converts.

        For a row function these are all; without one, those that the schema types otherwise than
        the table.
        """
        if self._schema is None:
            return frozenset()
        places = range(len(self._schema.fields))
        if self._function is not None:
            return frozenset(place for place in places if self._schema.fields[place].type.kind != "text")
        shown = places if self._job.projection is None else self._job.projection
        columns = self._job.tables[0].columns
        return frozenset(
            place
            for place, column in zip(shown, columns, strict=True)
            if _differ(self._schema.fields[place], column.type)
        )

    def _call_batch(
        self,
        function: RowFunction,
        chunk: Chunk,
        faults: dict[int, Fault],
        filtered: array[int],
    ) -> None:
        assert self._schema is not None
        sources, arrays = _as_arrow(self._schema, chunk, faults)
        if not sources:
            return
        for answer in offer(lambda batch: function.call(batch, *function.state), sources, arrays):
            errors = dict(answer.errors)
            try:
                outputs = [
                    (output, self._collector.in_order(output.columns, len(output.sources), output.table))
                    for output in answer.outputs
                ]
            except Unfit as error:
                errors = dict.fromkeys(answer.seqs, error) | errors
                outputs = []
            for output, shaped in outputs:
                self._collector.add_columns(output.sources, shaped, output.table)
            faults.update((seq, fault_of(error)) for seq, error in errors.items())
            filtered.extend(sorted(set(answer.seqs).difference(errors, *(output.sources for output, _ in outputs))))

    def _call_each(
        self,
        call: Callable[..., Any],
        arguments: Iterable[tuple[int, tuple[Any, ...]]],
        faults: dict[int, Fault],
        filtered: array[int],
    ) -> None:
        """Call the function with each record's arguments."""
        add, usual = self._collector.add, self._collector.usual
        names, rows, records = list[str](), list[tuple[Any, ...]](), list[int]()
        for index, given in arguments:
            try:
                output = call(*given)
                if type(output) is Rows and len(output) == usual:
                    # Tuples can wait: nothing that the function does later adds to them or takes from them.
                    for row in output.values():
                        if type(row) is not tuple:
                            del rows[len(names) :]
                            break
                        rows.append(row)
                    else:
                        names += output
                        records.append(index)
                        continue
                if records:
                    self._add_usual(names, rows, records, faults)
                    names, rows, records = [], [], []
                if output is DROP or (output is not None and not add(index, output)):
                    filtered.append(index)
                elif output is None:
                    faults[index] = Fault("process", "returned None", "return DROP to leave a row out")
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever user code raises becomes a reject
                faults[index] = fault_of(error)
        if records:
            self._add_usual(names, rows, records, faults)

    def _add_usual(
        self, names: list[str], rows: list[tuple[Any, ...]], records: list[int], faults: dict[int, Fault]
    ) -> None:
        """Take what records gave, a tuple for each table: together where all name the tables in the same order."""
        width = len(rows) // len(records)
        first = names[:width]
        if names == first * len(records) and self._collector.add_usual(first, rows, records):
            return
        for at, index in enumerate(records):
            start, stop = at * width, (at + 1) * width
            try:
                self._collector.add(index, Rows(zip(names[start:stop], rows[start:stop], strict=True)))
            except Unfit as error:
                faults[index] = fault_of(error)

    def _call_with_found(
        self,
        function: RowFunction,
        chunk: Chunk,
        faults: dict[int, Fault],
        filtered: array[int],
        found: Sequence[Mapping[Any, Known]],
    ) -> None:
        """Call the function on each record with what was looked up for it; one whose key failed is a fault."""
        known = [(name, place, values) for (name, place), values in zip(self._job.lookups, found, strict=True)]
        keywords: dict[str, Any] = {}
        call, state = function.call, function.state

        def with_found(*given: Any) -> Any:
            return call(*given, **keywords)

        def good() -> Iterator[tuple[int, Any]]:
            for index, record in zip(chunk.sources, chunk.rows, strict=True):
                for name, place, values in known:
                    fault, keywords[name] = values[record[place]] if record[place] is not None else NOTHING
                    if fault is not None:
                        faults[index] = fault
                        break
                else:
                    yield index, (self._row(record), *state)

        self._call_each(with_found, good(), faults, filtered)


class KeyStep:
    """Collects, of a range's records, the distinct keys of each look-up, in the order in which they come."""

    by_column = False

    def __init__(self, job: RowJob) -> None:
        self._schema = job.schema if job.schema is not None and not job.schema.plain else None
        self._places = [place for _, place in job.lookups]
        self.keys: list[dict[Any, None]] = []

    def close(self) -> None:
        """Nothing to close."""

    def offer(
        self, chunks: Iterable[Chunk], faults: dict[int, Fault], filtered: array[int], found: object = ()
    ) -> None:
        """Take the records of a range; those that break the schema need no value."""
        self.keys = [{} for _ in self._places]
        for chunk in chunks:
            if self._schema is not None:
                chunk = checked(self._schema, chunk, faults, frozenset(self._places))
            if chunk.sources:
                for keys, place in zip(self.keys, self._places, strict=True):
                    keys.update(dict.fromkeys(chunk.columns[place]))
        for keys in self.keys:
            keys.pop(None, None)  # an empty field has no key

    def take(self, faults: dict[int, Fault]) -> dict[str, TableRows]:
        """Give no rows."""
        return {}


def checked(schema: Schema, chunk: Chunk, faults: dict[int, Fault], typed: frozenset[int]) -> Chunk:
    """Give columns that keep the schema; records that break it become faults.

    `typed`: the fields whose values are wanted in their type.
    """
    sources = chunk.sources
    columns, broken = schema.check(chunk.columns, typed=typed)
    if broken:
        faults.update((sources[index], Fault("convert", *what)) for index, what in broken.items())
        lost = sorted(broken)
        sources = array("q", without(sources, lost))
        columns = [without(column, lost) for column in columns]
    return Chunk(sources, columns)


def _as_arrow(schema: Schema, chunk: Chunk, faults: dict[int, Fault]) -> tuple[Sequence[int], dict[str, Any]]:
    """Give columns that keep the schema as Arrow's, by name; records that break it become faults."""
    from headway.io.arrow import fit
    from headway.io.arrow import without as stored_without

    arrays, broken = dict[str, Any](), dict[int, Broken]()
    for field, values in zip(schema.fields, chunk.columns, strict=True):
        values, found = field.check(values, typed=False)
        for index, what in found.items():
            broken.setdefault(index, what)
        arrays[field.name], misfits, _ = fit(field.type, values)
        for index in misfits:
            broken.setdefault(index, field.no_such(values[index]))
    sources = chunk.sources
    if broken:
        faults.update((sources[index], Fault("convert", *what)) for index, what in broken.items())
        lost = sorted(broken)
        arrays = {name: stored_without(values, lost) for name, values in arrays.items()}
        sources = array("q", without(sources, lost))
    return sources, arrays


def _with_documents(schema: Schema, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Give JSON documents as what they say."""
    return [
        [None if text is None else json.loads(text) for text in column] if field.type.kind == "json" else column
        for field, column in zip(schema.fields, columns, strict=True)
    ]


def _differ(field: Field, table: ColumnType) -> bool:
    if isinstance(field.type, Int) and isinstance(table, Int):
        return False
    return field.type.kind != "text" and field.type != table


def fault_of(error: BaseException, stage: str = "process") -> Fault:
    """Say why a row is set aside for what user code raised."""
    if isinstance(error, Reject):
        return Fault(stage, _sound(error.reason), _sound(error.message))
    if isinstance(error, Unfit):
        return Fault("convert", error.reason, _sound(error.message))
    try:
        message = str(error)
    except Exception:  # a user's class may raise anything here
        message = "its text could not be made"
    return Fault(stage, type(error).__name__, _sound(message))


def _sound(text: str) -> str:
    """Escape lone surrogates, which no database takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
