"""Output rows of one range: shaped to their tables, converted, and encoded for the target.

All that came from one source row stands or falls together: what does not fit takes its siblings in
other tables with it. What does not belong here: reading records, calling the row function.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from operator import is_, itemgetter
from typing import Any, NamedTuple

from headway.importer.rowfunction import Rows, is_stream
from headway.io.chunk import RECORDS_AT_ONCE, without
from headway.io.columns import ColumnType
from headway.io.table import Table
from headway.io.target import Codec, Fitted


class Unfit(Exception):
    """An output that is no row of its table."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason, self.message = reason, message


_ROWS = (tuple, dict, list)
"""The types of rows as they mostly are."""


class TableRows(NamedTuple):
    """The rows of one table, encoded, and for each the number of its record within the range."""

    payload: Any
    sources: array[int]


class Collector:
    """Takes the outputs of a range's records, in order. `default` is the table of a plain row."""

    def __init__(self, tables: Sequence[Table], default: str | None, codec: Codec) -> None:
        self._codec = codec
        self._shapers = {table.name: _Shaper(table, codec) for table in tables}
        self._unfit: dict[int, Unfit] = {}
        self._default = self._shapers.get(default) if default is not None else None

    def add(self, record: int, output: Any) -> int:
        """Take one record's output; give the number of its rows. Raises Unfit and then keeps none of them."""
        try:
            if type(output) is Rows:
                return self._add_rows(record, output)
            if type(output) not in _ROWS and is_stream(output):
                return sum(self.add(record, row) for row in output)
            if self._default is None:
                _check_row(output)
                names = "=..., ".join(self._shapers)
                raise Unfit("unknown_table", f"one row for several tables; return headway.rows({names}=...)")
            self._default.add(record, output)
            return 1
        except BaseException:
            self.forget(record)
            raise

    def forget(self, record: int) -> None:
        """Keep none of the rows of the last record."""
        for shaper in self._shapers.values():
            shaper.forget(record)

    def add_columns(self, sources: Sequence[int], columns: Sequence[Sequence[Any]], table: str | None = None) -> None:
        """Take rows of a table, by default that of a plain row, as columns; `sources`: the record of each, ascending."""
        self._shaper(table).add_columns(sources, columns)

    def in_order(self, columns: Mapping[str, Sequence[Any]], rows: int, table: str | None) -> list[Sequence[Any]]:
        """Give a table's columns, in its order, from those of an output; NULLs for what is missing. Raises Unfit."""
        shaper = self._shaper(table)
        shaper.check_names(columns)
        return [columns[name] if name in columns else [None] * rows for name in shaper.table.names]

    def _shaper(self, table: str | None) -> _Shaper:
        shaper = self._default if table is None else self._shapers.get(table)
        if shaper is None:
            names = ", ".join(self._shapers)
            what = f"there is no table {table!r}" if table is not None else "rows for one of several tables"
            raise Unfit("unknown_table", f"{what}; there are {names}, for headway.rows(...)")
        return shaper

    @property
    def usual(self) -> int | None:
        """The number of rows that a record mostly gives for several tables, a tuple for each of them.

        None where a document may stand in them, which cannot wait.
        """
        return None if any(shaper.documents for shaper in self._shapers.values()) else len(self._shapers)

    def add_usual(self, names: Sequence[str], given: Sequence[tuple[Any, ...]], records: Sequence[int]) -> bool:
        """Take, of each record, a tuple for each table, in the order of `names`; False, and none is taken, if one does not fit."""
        by_table = [(self._shapers.get(name), given[at :: len(names)]) for at, name in enumerate(names)]
        if any(shaper is None or {*map(len, rows)} != {shaper.width} for shaper, rows in by_table):
            return False
        sources = array("q", records)
        for shaper, rows in by_table:
            assert shaper is not None
            shaper.rows += rows
            shaper.records.extend(sources)
        return True

    def _add_rows(self, record: int, tables: Mapping[str, Any]) -> int:
        count = 0
        for name, given in tables.items():
            shaper = self._shapers.get(name)
            if shaper is None:
                raise Unfit("unknown_table", f"there is no table {name!r}; there are {', '.join(self._shapers)}")
            if type(given) is list and (not given or isinstance(given[0], (Mapping, tuple, list))):
                for row in given:
                    shaper.add(record, row)
                count += len(given)
            else:
                shaper.add(record, given)
                count += 1
        return count

    def outputs(self, until: int) -> dict[int, dict[str, list[dict[str, Any]]]]:
        """Give, of the records below `until`, the rows of each table, as they were given."""
        made: dict[int, dict[str, list[dict[str, Any]]]] = {}
        for name, shaper in self._shapers.items():
            for record, row in shaper.shown(until):
                made.setdefault(record, {}).setdefault(name, []).append(row)
        return dict(sorted(made.items()))

    def settle(self) -> None:
        """Convert and encode what was collected, while it is still near the processor, and let go of it."""
        unfit: dict[int, Unfit] = {}
        once = _Once(self._codec)
        stored = {name: shaper.take(unfit, once) for name, shaper in self._shapers.items() if shaper.records}
        for name, (columns, sources) in stored.items():
            shaper = self._shapers[name]
            if lost := [row for record in sorted(unfit) for row in rows_of(sources, record)]:
                columns = [self._codec.without(column, lost) for column in columns]
                sources = array("q", without(sources, lost))
            if sources:
                shaper.parts.append(self._codec.pack(shaper.table, columns))
                shaper.packed.extend(sources)
        self._unfit.update(unfit)

    def take(self) -> tuple[dict[str, TableRows], dict[int, Unfit]]:
        """Give all rows collected so far, encoded, without those of the records that are given as unfit."""
        self.settle()
        unfit, self._unfit = self._unfit, {}
        result = {}
        for name, shaper in self._shapers.items():
            if shaper.parts:
                result[name] = TableRows(self._codec.join(shaper.parts), shaper.packed)
                shaper.parts, shaper.packed = [], array("q")
        return result, unfit


class _Once:
    """Converts a column once where the same values stand in several tables, as keys do."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: list[tuple[Sequence[Any], ColumnType, Fitted]] = []

    def fit(self, type: ColumnType, values: Sequence[Any]) -> Fitted:
        for known, its_type, fitted in self._known:
            same = len(known) == len(values) and known[0] is values[0] and its_type == type
            if same and all(map(is_, known, values)):
                return fitted
        fitted = self._codec.fit(type, values)
        self._known.append((values, type, fitted))
        return fitted


class _Shaper:
    """One table's rows as tuples in column order."""

    __slots__ = (
        "_codec", "_columns", "_get", "_names", "documents", "packed", "parts", "records", "rows", "table", "width",
    )  # fmt: skip

    def __init__(self, table: Table, codec: Codec) -> None:
        self.table, self.rows, self.records = table, list[tuple[Any, ...]](), array("q")
        self._columns: list[Sequence[Any]] | None = None
        self.parts, self.packed = list[Any](), array("q")
        self._codec, self._names, self.width = codec, table.names, len(table.names)
        self.documents = [at for at, column in enumerate(table.columns) if column.type.kind == "json"]
        self._get: Callable[[Any], tuple[Any, ...]] = (
            itemgetter(*self._names) if len(self._names) > 1 else lambda row: (row[self._names[0]],)
        )

    def add(self, record: int, row: Any) -> None:
        if type(row) not in _ROWS or len(row) != self.width:
            row = self._shape(row)
        elif type(row) is dict:
            try:
                row = self._get(row)
            except KeyError:
                row = self._shape_mapping(row)
        if self.documents:
            row = self._as_given(row)
        self.rows.append(tuple(row))
        self.records.append(record)

    def _as_given(self, row: Sequence[Any]) -> list[Any]:
        """Copy documents: rows are converted some at a time, and a function may change one that it has given."""
        values = list(row)
        for place in self.documents:
            if isinstance(values[place], (dict, list)):
                values[place] = deepcopy(values[place])
        return values

    def add_columns(self, sources: Sequence[int], columns: Sequence[Sequence[Any]]) -> None:
        """Take whole columns; of one range either these or rows."""
        if self._columns is None:
            self._columns = list(columns)
        else:
            self._columns = [[*old, *new] for old, new in zip(self._columns, columns, strict=True)]
        self.records.extend(sources)

    def forget(self, record: int) -> None:
        while self.records and self.records[-1] == record:
            self.records.pop()
            self.rows.pop()

    def _shape(self, row: Any) -> tuple[Any, ...]:
        if isinstance(row, Mapping):
            return self._shape_mapping(row)
        _check_row(row)
        if len(row) != self.width:
            message = f"{len(row)} values for the {self.width} columns of table {self.table.name}"
            if row and isinstance(row[0], (Mapping, tuple, list)):
                message += f"; for several rows return headway.rows({self.table.name}=[...]) or yield them"
            raise Unfit("wrong_width", message)
        return tuple(row)

    def _shape_mapping(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        self.check_names(row)
        return tuple(map(row.get, self._names))

    def check_names(self, names: Iterable[str]) -> None:
        """Raise Unfit at a name that is no column."""
        unknown = [name for name in names if name not in self._names]
        if unknown:
            columns = ", ".join(self._names)
            raise Unfit("unknown_column", f"table {self.table.name} has no column {unknown[0]!r}; it has {columns}")

    def shown(self, until: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give the rows of the records below `until`, by name."""
        rows = zip(*(self._columns or self._by_column()), strict=True)
        for record, row in zip(self.records, rows, strict=False):
            if record < until:
                yield record, dict(zip(self._names, row, strict=True))

    def _by_column(self) -> list[list[Any]]:
        """Give the rows by column; some at a time, while they are near the processor."""
        columns: list[list[Any]] = [[] for _ in range(self.width)]
        for start in range(0, len(self.rows), RECORDS_AT_ONCE):
            for column, values in zip(
                columns, zip(*self.rows[start : start + RECORDS_AT_ONCE], strict=True), strict=True
            ):
                column += values
        return columns

    def take(self, unfit: dict[int, Unfit], once: _Once) -> tuple[list[Any], array[int]]:
        """Give the columns as the target has them, and the record of each row; what was taken is forgotten here."""
        columns: Sequence[Sequence[Any]]
        if self._columns is not None:  # Arrow's are not compared: that would make Python's values of them
            columns, fit = self._columns, self._codec.fit
        else:
            columns, fit = self._by_column(), once.fit
        sources = self.records
        self._columns = None
        self.rows, self.records = [], array("q")
        return self._store(fit, columns, sources, unfit), sources

    def _store(
        self,
        fit: Callable[[ColumnType, Sequence[Any]], Fitted],
        given: Sequence[Sequence[Any]],
        sources: Sequence[int],
        unfit: dict[int, Unfit],
    ) -> list[Any]:
        """Give the columns as the target has them; note in `unfit` the first fault of each record."""
        columns = []
        for column, values in zip(self.table.columns, given, strict=True):
            stored, misfits, nulls = fit(column.type, values)
            for index, what in misfits.items():
                unfit.setdefault(sources[index], Unfit(f"bad_{column.type.kind}", f"column {column.name}: {what}"))
            if column.required:
                reason = "null_key" if column.name in self.table.key else "constraint"
                for index in nulls:
                    unfit.setdefault(sources[index], Unfit(reason, f"column {column.name} must not be empty"))
            columns.append(stored)
        return columns


def rows_of(sources: array[int], record: int) -> range:
    """Give the rows that came from a record; `sources` ascend."""
    return range(bisect_left(sources, record), bisect_right(sources, record))


def _check_row(row: Any) -> None:
    if row is None:
        raise Unfit("returned None", "return a mapping or a sequence")
    if not isinstance(row, (Mapping, tuple, list)):
        raise Unfit("not_a_row", f"a value of type {type(row).__name__} is no row")
