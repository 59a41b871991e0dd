"""DuckDB as a target: rows travel as Arrow IPC made in the workers, and are inserted by scanning it.

``INSERT ... ON CONFLICT DO NOTHING`` is never used: within one statement DuckDB does not promise
that the first row wins, so whoever writes has to choose the rows first. What does not belong here:
which rows may be written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import HeadwayError, PlanError
from headway.io.arrow import arrow_type
from headway.io.chunk import ArrowColumn
from headway.io.columns import ColumnType, Exact, Int, column_type
from headway.io.table import Table, Unique
from headway.io.target import RANGES_A_COMMIT, ConstraintRefused, ExistingColumn, ExistingTable, Usual, of_row, quoted
from headway.machine import cores

try:
    import duckdb
    import pyarrow as pa
except ModuleNotFoundError as missing:
    raise PlanError(f"DuckDB needs {missing.name}: pip install 'headway[import]'") from missing

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable

_STORED = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "bool": "BOOLEAN", "bytes": "BLOB"}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_BATCH = "headway_batch"
MEMORY = "HEADWAY_DUCKDB_MEMORY"
"""Variable of the environment: what DuckDB may use, in its own words (``4GB``)."""
_MEMORY = 160 << 20
"""The limit without one from the environment, while indexes are small: what is not needed is a cache."""
_BESIDE_INDEXES = 64 << 20
"""What is needed beside the indexes, of which the part that has changed has to stay in memory."""
_INDEX_OF_A_ROW = 40
"""Bytes that an index may have for a row: 8 where keys ascend, 35 at random."""
_STEP = 4 << 20
_ROW_GROUP = 122_880
"""Rows that DuckDB keeps together."""


class DuckDBTarget(Usual):
    """One DuckDB file. DuckDB itself keeps every other process out while it is open."""

    kind = "duckdb"
    ranges_a_commit = 16

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # The workers have the other cores; more threads here would only take turns with them.
            self._connection = duckdb.connect(str(path), config={"threads": 1, "memory_limit": _memory(0)})
        except duckdb.Error as error:
            if "lock" in str(error):
                raise HeadwayError(f"{path}: another process has it open; wait for it to end") from error
            raise PlanError(f"target {path}: {_first_line(error)}") from error
        self.execute("SET checkpoint_threshold = '256MB'")
        [(rows,)] = self.execute("SELECT coalesce(sum(estimated_size * index_count), 0) FROM duckdb_tables()")
        self._limit(int(rows) * _INDEX_OF_A_ROW)  # they are read when a row is first written

    def _limit(self, indexes: int) -> None:
        """Let the limit follow the bytes of the indexes."""
        self._indexes = indexes
        self.execute(f"SET memory_limit = '{_memory(indexes)}'")
        [(limit,)] = self.execute("SELECT current_setting('memory_limit')")
        self.notes = (f"DuckDB may use {limit} of memory (memory_limit); {MEMORY} sets another limit",)

    def close(self) -> None:
        """Close the connection; what was not committed is gone."""
        with suppress(duckdb.Error):  # the workers are gone: what stands in the log is put in place with all cores
            self._connection.execute(f"SET threads = {cores()}")
        self._connection.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one small statement and give its rows."""
        try:
            return self._connection.execute(sql, list(parameters)).fetchall()
        except duckdb.ConstraintException as error:
            raise ConstraintRefused(_first_line(error)) from error
        except duckdb.OutOfMemoryException as error:
            raise HeadwayError(
                f"{self._path}: {_first_line(error)}. The same command with {MEMORY}=4GB in the environment goes on"
            ) from error
        except duckdb.Error as error:
            raise HeadwayError(f"{self._path}: {_first_line(error)}") from error

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query and give its rows without holding them all."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, list(parameters))
            while part := cursor.fetchmany(1000):
                yield from part
        finally:
            cursor.close()

    def enough(self, rows: int, ranges: int) -> bool:
        """Wait for a row group and most of another one, if they are within reach: those are written once.

        Fewer rows go into the log first, and a last group of less than a half is moved by the next checkpoint.
        """
        groups, rest = divmod(rows, _ROW_GROUP)
        if ranges >= self.ranges_a_commit or (groups and rest > _ROW_GROUP // 2):
            return True
        within_reach = rows * self.ranges_a_commit > ranges * _ROW_GROUP * 3 // 2
        return ranges >= RANGES_A_COMMIT and not within_reach

    def begin(self, tables: Sequence[str] | None = None) -> None:
        """Begin a transaction."""
        [(indexes,)] = self.execute(
            "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'ART_INDEX'"
        )
        if indexes > self._indexes + _STEP:
            self._limit(indexes)
        self.execute("BEGIN")

    def commit(self) -> None:
        """Make the transaction durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException as error:
            if "no transaction is active" not in str(error):
                raise

    def describe(self, table: str) -> ExistingTable | None:
        """Look at a table; None if there is none of this name."""
        where = "schema_name = current_schema() AND database_name = current_database() AND lower(table_name) = lower(?)"
        columns = self.execute(
            "SELECT column_name, data_type, is_nullable, column_default IS NOT NULL"
            f" FROM duckdb_columns() WHERE {where} ORDER BY column_index",
            (table,),
        )
        if not columns:
            return None
        constraints = self.execute(
            f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {where}", (table,)
        )
        uniques = [
            Unique(tuple(names), "constraint") for kind, names in constraints if kind in ("PRIMARY KEY", "UNIQUE")
        ]
        has_rules = any(kind in ("CHECK", "FOREIGN KEY") for kind, _ in constraints)
        indexes = self.execute(f"SELECT expressions FROM duckdb_indexes() WHERE {where} AND is_unique", (table,))
        names = {name for name, *_ in columns}
        for (expressions,) in indexes:
            parts = tuple(part.strip().strip('"') for part in expressions.strip("[]").split(","))
            if names.issuperset(parts):
                uniques.append(Unique(parts, "constraint"))
            else:
                has_rules = True
        return ExistingTable(
            tuple(
                ExistingColumn(name, kind, _adopted(kind), not nullable, default)
                for name, kind, nullable, default in columns
            ),
            tuple(uniques),
            has_rules,
        )

    def holds(self, column: ColumnType, existing: ExistingColumn) -> bool:
        """Whether the existing type keeps every value exactly."""
        if isinstance(column, Exact) and isinstance(existing.type, Exact):
            wide = existing.type.precision - existing.type.scale >= column.precision - column.scale
            return wide and existing.type.scale >= column.scale
        return existing.type is not None and existing.type == column

    def create(self, table: Table) -> None:
        """Create a table with its key as primary key."""
        parts = [
            f"{quoted(column.name)} {_STORED.get(column.type.kind, str(column.type))}{' NOT NULL' * column.required}"
            for column in table.columns
        ]
        if table.key:
            parts.append(f"PRIMARY KEY ({_list(table.key)})")
        self.execute(f"CREATE TABLE {quoted(table.name)} ({', '.join(parts)})")

    def empty(self, table: str) -> None:
        """Delete all rows."""
        self.execute(f"DELETE FROM {quoted(table)}")

    def decode(self, table: Table, payloads: Sequence[Any]) -> ArrowTable:
        """Join payloads to one batch, without copying them."""
        return pa.concat_tables([pa.ipc.open_stream(payload).read_all() for payload in payloads])

    def values(self, batch: Any, positions: Sequence[int]) -> Sequence[Any]:
        """Give one column's values, or tuples of several columns' values."""
        columns = [ArrowColumn(batch.column(position).combine_chunks()) for position in positions]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def take(self, batch: Any, indices: Sequence[int]) -> ArrowTable:
        """Give some rows, in that order."""
        return batch.take(pa.array(indices, pa.int64()))

    def drop(self, batch: Any, indices: Sequence[int]) -> ArrowTable:
        """Give all rows but some, as slices between them."""
        edges = [-1, *indices, batch.num_rows]
        return pa.concat_tables([batch.slice(low + 1, high - low - 1) for low, high in pairwise(edges)])

    def existing(
        self, table: Table, columns: Sequence[str], values: Iterable[Any], keys: Collection[Any] = ()
    ) -> dict[Any, Any]:
        """Give those of `values` that the table already holds, with that one of `keys` whose row has it."""
        wanted, ours, width = list(values), set(keys), len(columns)
        if not wanted:
            return {}
        types = [arrow_type(table.columns[position].type) for position in table.positions(columns)]
        parts = [wanted] if width == 1 else list(zip(*wanted, strict=True))
        arrays = [pa.array(part, kind) for part, kind in zip(parts, types, strict=True)]
        batch = pa.table(arrays, names=list(columns))
        if not ours:
            rows = self._with_batch(
                batch, f"SELECT * FROM {_BATCH} SEMI JOIN {quoted(table.name)} USING ({_list(columns)})"
            )
            return dict.fromkeys(map(of_row, rows))
        key = ", ".join(f"t.{quoted(name)}" for name in table.key)
        sql = f"SELECT {_BATCH}.*, {key} FROM {_BATCH} JOIN {quoted(table.name)} t USING ({_list(columns)})"
        rows = self._with_batch(batch, sql)
        holders = ((of_row(row[:width]), of_row(row[width:])) for row in rows)
        return {value: key if key in ours else None for value, key in holders}

    def insert(self, table: Table, batch: Any) -> None:
        """Insert rows in order. Raises ConstraintRefused."""
        self._with_batch(batch, self._insert_sql(table))

    def upsert(self, table: Table, batch: Any) -> None:
        """Insert rows or overwrite those with the same key. Raises ConstraintRefused."""
        others = [name for name in table.names if name not in table.key]
        assignments = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        action = f"DO UPDATE SET {assignments}" if others else "DO NOTHING"  # no key stands twice in the batch
        self._with_batch(batch, f"{self._insert_sql(table)} ON CONFLICT ({_list(table.key)}) {action}")

    def violations(self, table: Table, batch: Any) -> Mapping[int, str]:
        """Evaluate the table's CHECK constraints over the batch."""
        checks = self.execute(
            "SELECT constraint_text, expression FROM duckdb_constraints() WHERE constraint_type = 'CHECK'"
            " AND schema_name = current_schema() AND lower(table_name) = lower(?)",
            (table.name,),
        )
        found: dict[int, str] = {}
        numbered = batch.append_column("headway_index", pa.array(range(batch.num_rows), pa.int64()))
        for text, expression in checks:
            for (index,) in self._with_batch(numbered, f"SELECT headway_index FROM {_BATCH} WHERE NOT ({expression})"):
                found.setdefault(index, text)
        return found

    def _insert_sql(self, table: Table) -> str:
        names = _list(table.names)
        return f"INSERT INTO {quoted(table.name)} ({names}) SELECT {names} FROM {_BATCH}"

    def _with_batch(self, batch: Any, sql: str) -> list[tuple[Any, ...]]:
        self._connection.register(_BATCH, batch)  # replaces one that a refused statement left
        found = self.execute(sql)
        self._connection.unregister(_BATCH)
        return found


def _memory(indexes: int) -> str:
    """Give DuckDB's limit with indexes of so many bytes; without one from the environment half of the machine at most."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    wanted = max(_MEMORY, indexes + _BESIDE_INDEXES)
    return os.environ.get(MEMORY) or f"{min(wanted, half) >> 20}MiB"


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _adopted(declared: str) -> ColumnType | None:
    """Give the column type of an existing column; None if no type of ours is exactly it."""
    if bits := _BITS.get(declared):
        return Int(bits)
    if found := _DECIMAL.fullmatch(declared):
        return Exact(int(found[1]), int(found[2]))
    try:
        return (
            column_type(declared) if declared in ("DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "JSON") else None
        )
    except PlanError:
        return None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
