"""From the records of a range to output rows: the row function, and what becomes of a row that it refuses.

What does not belong here: how a file is cut into records, and the database.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from headway.core.block import DROP
from headway.importer.collect import Collector, TableRows, Unfit
from headway.importer.rowfunction import Reject, prepare, row_type
from headway.importer.schema import Field, Schema
from headway.io.columns import ColumnType, Int
from headway.io.table import Table
from headway.io.target import codec

Record = tuple[int, Sequence[Any]]
"""A record's number within its range, from 0, and its fields."""


class Fault(NamedTuple):
    """Why a row is set aside: in which stage, a short reason, and a sentence."""

    stage: str
    reason: str
    message: str


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


class RowStep:
    """Turns records into the rows of tables, range by range. A record that cannot become rows is a fault."""

    def __init__(self, job: RowJob) -> None:
        self._job = job
        self._row = row_type(job.names)
        self._function = prepare(job.process) if job.process is not None else None
        self._collector = Collector(job.tables, job.default, codec(job.target))
        self._schema = job.schema if job.schema is not None and not job.schema.plain else None
        self._typed = self._wanted_typed()

    def close(self) -> None:
        """Close the row function's event loop."""
        if self._function is not None:
            self._function.close()

    def offer(self, records: Iterable[Record], faults: dict[int, Fault], filtered: array[int]) -> None:
        """Take the records of a range, in order; note which are faults, and which gave no row."""
        if self._function is None:
            sources, columns = self._checked(list(records), faults)
            if self._job.projection is not None:
                columns = [columns[index] for index in self._job.projection]
            if sources:
                self._collector.add_columns(sources, columns)
            return
        if self._schema is not None:
            sources, columns = self._checked(list(records), faults)
            records = zip(sources, zip(*columns, strict=True), strict=True)
        self._call_each(self._function.call, self._function.state, records, faults, filtered)

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

    def _checked(self, records: Sequence[Record], faults: dict[int, Fault]) -> tuple[array[int], list[Sequence[Any]]]:
        """Turn records into columns that keep the schema; records that break it become faults."""
        sources = array("q", map(itemgetter(0), records))
        columns: list[Sequence[Any]] = list(zip(*map(itemgetter(1), records), strict=True))
        if self._schema is None or not columns:
            return sources, columns
        columns, broken = self._schema.check(columns, typed=self._typed)
        if broken:
            faults.update((sources[index], Fault("convert", *what)) for index, what in broken.items())
            kept = [index for index in range(len(sources)) if index not in broken]
            sources = array("q", map(sources.__getitem__, kept))
            columns = [[column[index] for index in kept] for column in columns]
        if self._function is not None:
            columns = [
                [None if text is None else json.loads(text) for text in column] if field.type.kind == "json" else column
                for field, column in zip(self._schema.fields, columns, strict=True)
            ]
        return sources, columns

    def _call_each(
        self,
        call: Callable[..., Any],
        state: tuple[Any, ...],
        records: Iterable[Record],
        faults: dict[int, Fault],
        filtered: array[int],
    ) -> None:
        row, add = self._row, self._collector.add
        for index, record in records:
            try:
                output = call(row(record), *state)
                if output is DROP or (output is not None and not add(index, output)):
                    filtered.append(index)
                elif output is None:
                    faults[index] = Fault("process", "returned None", "return DROP to leave a row out")
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever user code raises becomes a reject
                faults[index] = fault_of(error)


def _differ(field: Field, table: ColumnType) -> bool:
    if isinstance(field.type, Int) and isinstance(table, Int):
        return False
    return field.type.kind != "text" and field.type != table


def fault_of(error: BaseException) -> Fault:
    """Say why a row is set aside for what a row function raised."""
    if isinstance(error, Reject):
        return Fault("process", _sound(error.reason), _sound(error.message))
    if isinstance(error, Unfit):
        return Fault("convert", error.reason, _sound(error.message))
    try:
        message = str(error)
    except Exception:  # a user's class may raise anything here
        message = "its text could not be made"
    return Fault("process", type(error).__name__, _sound(message))


def _sound(text: str) -> str:
    """Escape lone surrogates, which no database takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
