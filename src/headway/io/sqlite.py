"""SQLite as a target: rows travel as columns of stored values and are inserted in bulk.

What SQLite has no type for is kept as text that loses nothing (see `stored_text`).
What does not belong here: which rows may be written.
"""

from __future__ import annotations

import marshal
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from headway.errors import HeadwayError, PlanError
from headway.io.chunk import without
from headway.io.columns import ColumnType, Int, column_type
from headway.io.stored_text import NUL, Joined, join, joined, store, whole_numbers, written
from headway.io.table import Table, Unique
from headway.io.target import (
    ConstraintRefused,
    ExistingColumn,
    ExistingTable,
    Fitted,
    Usual,
    fitted,
    marked,
    of_row,
    quoted,
)

_STORED = {"int": "INTEGER", "bool": "INTEGER", "float": "REAL", "bytes": "BLOB"}  # all else is TEXT
_EXACT_IN = {
    "int": ("INTEGER", "NUMERIC"),
    "bool": ("INTEGER", "NUMERIC"),
    "float": ("REAL", "NUMERIC"),
    "decimal": ("TEXT",),
    "text": ("TEXT", "BLOB"),
    "json": ("TEXT", "BLOB"),
    "date": ("TEXT", "NUMERIC", "BLOB"),
    "timestamp": ("TEXT", "NUMERIC", "BLOB"),
    "bytes": ("BLOB",),
}
"""Kind of column -> affinities that keep its values as they are."""
_MOST_VARIABLES = 900
_ROWS_AT_ONCE = 10
"""Rows that one INSERT takes: a third less work than one each; more take no less, and an upsert is not quicker so."""


class _Column(Protocol):
    """Values that are made only as they are looked at, near the processor."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


Part = list[_Column]
"""Some rows of one table, as columns."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Those values of a column that have a flag of 1."""

    column: _Column
    flags: bytearray

    def __iter__(self) -> Iterator[Any]:
        return compress(self.column, self.flags)

    def __len__(self) -> int:
        return self.flags.count(1)


__all__ = ["SQLiteTarget", "fit", "join", "pack", "store", "without"]


def fit(type: ColumnType, values: Sequence[Any]) -> Fitted:
    """Convert and store a column."""
    found = written(type, values)
    if found is not None and type == Int():
        return found._replace(stored=list(found.stored))
    if found is not None and (whole := found.stored.joined(NUL)) is not None:
        return found._replace(stored=Joined(whole, NUL, len(values), found.nulls))
    return fitted(type, values, quick=_quick, store=store)


def _quick(type: ColumnType, values: Sequence[Any]) -> Any | None:
    """Store texts as one."""
    found = joined(type, values)
    return found if found is not None else whole_numbers(type, values)


def pack(_table: Table, columns: Sequence[Any]) -> bytes:
    """Make a part: the columns, marshalled; it is read only by the process that started this one.

    Version 2 writes every value out; the later ones look for values that occur twice, which costs more.
    """
    sent = [
        (each.whole, each.separator, each.count, list(each.nulls)) if isinstance(each, Joined) else list(each)
        for each in columns
    ]
    return marshal.dumps(sent, 2)


class SQLiteTarget(Usual):
    """One SQLite file, in WAL mode; a commit survives a killed process."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        try:
            # Opened on one thread and used on another, one after the other, never at once.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        except sqlite3.Error as error:
            raise PlanError(f"target {path}: {error}") from error
        self._path = path
        try:
            self.execute("PRAGMA journal_mode = WAL")
            self.execute("PRAGMA synchronous = NORMAL")
            self.execute("PRAGMA foreign_keys = ON")
            self.execute("PRAGMA cache_size = -65536")
            self.execute("PRAGMA wal_autocheckpoint = 10000")  # pages; a table that is overwritten goes over them often
        except HeadwayError as error:
            self._connection.close()
            raise PlanError(f"target {path}: {error}") from error

    def close(self) -> None:
        """Close the connection; what was not committed is gone."""
        self._connection.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one small statement and give its rows."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.IntegrityError as error:
            raise ConstraintRefused(str(error)) from error
        except sqlite3.OperationalError as error:
            hint = "; another program is writing to it" if "locked" in str(error) else ""
            raise HeadwayError(f"{self._path}: {error}{hint}") from error
        except sqlite3.DatabaseError as error:
            raise HeadwayError(f"{self._path}: {error}") from error

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query and give its rows without holding them all."""
        yield from self._connection.execute(sql, parameters)

    def begin(self, tables: Sequence[str] | None = None) -> None:
        """Begin a transaction and take the write lock."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def describe(self, table: str) -> ExistingTable | None:
        """Look at a table; None if there is none of this name."""
        info = self.execute(f"PRAGMA table_info({quoted(table)})")
        if not info:
            return None
        columns = tuple(
            ExistingColumn(name, declared, _adopted(declared), bool(required), default is not None or bool(key))
            for _, name, declared, required, default, key in info
        )
        primary = tuple(row[1] for row in sorted(info, key=itemgetter(5)) if row[5])
        uniques = [Unique(primary, "constraint")] if primary else []
        [(has_rules,)] = self.execute(
            "SELECT count(*) FROM sqlite_master WHERE lower(tbl_name) = lower(?) AND (type = 'trigger' OR"
            " sql LIKE '%check%' OR sql LIKE '%references%' OR sql LIKE '%collate%')",
            (table,),
        )
        for _, index, unique, _, partial in self.execute(f"PRAGMA index_list({quoted(table)})"):
            if unique and not partial:
                names = [row[2] for row in self.execute(f"PRAGMA index_info({quoted(index)})")]
                if None not in names and set(names) != set(primary):
                    uniques.append(Unique(tuple(names), "constraint"))
                has_rules = has_rules or None in names
            has_rules = has_rules or (unique and partial)
        return ExistingTable(columns, tuple(uniques), bool(has_rules))

    def holds(self, column: ColumnType, existing: ExistingColumn) -> bool:
        """Whether the column's affinity keeps every value exactly."""
        return _affinity(existing.declared) in _EXACT_IN[column.kind]

    def create(self, table: Table) -> None:
        """Create a table with its key as primary key."""
        parts = [
            f"{quoted(column.name)} {_STORED.get(column.type.kind, 'TEXT')}{' NOT NULL' * column.required}"
            for column in table.columns
        ]
        if table.key:
            parts.append(f"PRIMARY KEY ({_list(table.key)})")
        # Rows that are overwritten have no order to keep; their key is then the table itself.
        rowid = " WITHOUT ROWID" if table.overwrites else ""
        self.execute(f"CREATE TABLE {quoted(table.name)} ({', '.join(parts)}){rowid}")

    def empty(self, table: str) -> None:
        """Delete all rows."""
        self.execute(f"DELETE FROM {quoted(table)}")

    def decode(self, table: Table, payloads: Sequence[Any]) -> list[Part]:
        """Join payloads, made by our own workers, to one batch."""
        parts = map(marshal.loads, chain.from_iterable(payloads))
        return [[sent if type(sent) is list else Joined(*sent) for sent in part] for part in parts]

    def values(self, batch: Sequence[Part], positions: Sequence[int]) -> list[Any]:
        """Give one column's values, or tuples of several columns' values."""
        if len(positions) == 1:
            return list(chain.from_iterable(part[positions[0]] for part in batch))
        return [row for part in batch for row in zip(*map(part.__getitem__, positions), strict=True)]

    def take(self, batch: Sequence[Part], indices: Sequence[int]) -> list[Part]:
        """Give some rows; the indices ascend."""
        return _chosen(batch, marked(_length(batch), indices, keep=True))

    def drop(self, batch: Sequence[Part], indices: Sequence[int]) -> list[Part]:
        """Give all rows but some."""
        return _chosen(batch, marked(_length(batch), indices, keep=False))

    def existing(
        self, table: Table, columns: Sequence[str], values: Iterable[Any], keys: Collection[Any] = ()
    ) -> dict[Any, Any]:
        """Give those of `values` that the table already holds, with that one of `keys` whose row has it."""
        wanted, ours = list(values), set(keys)
        found: dict[Any, Any] = {}
        step, width = _MOST_VARIABLES // len(columns), len(columns)
        row = f"({', '.join('?' * width)})" if width > 1 else "?"
        names = _list((*columns, *table.key)) if ours else _list(columns)
        for start in range(0, len(wanted), step):
            part = wanted[start : start + step]
            places = ", ".join([row] * len(part))
            places = f"({places})" if width == 1 else f"(VALUES {places})"
            sql = f"SELECT {names} FROM {quoted(table.name)} WHERE ({_list(columns)}) IN {places}"
            for stored in self.execute(sql, part if width == 1 else tuple(chain.from_iterable(part))):
                key = of_row(stored[width:])
                found[of_row(stored[:width])] = key if key in ours else None
        return found

    def insert(self, table: Table, batch: Any) -> None:
        """Insert rows in order. Raises ConstraintRefused."""
        rows, count = _rows(batch), _length(batch)
        at_once = self._rows_at_once(table)
        if whole := count - count % at_once:
            values = chain.from_iterable(islice(rows, whole))
            self._many(self._insert_sql(table, at_once), zip(*[values] * (at_once * len(table.columns)), strict=True))
        self._many(self._insert_sql(table), rows)

    def upsert(self, table: Table, batch: Any) -> None:
        """Insert rows or overwrite those with the same key. Raises ConstraintRefused."""
        others = [name for name in table.names if name not in table.key]
        assignments = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        action = f"DO UPDATE SET {assignments}" if others else "DO NOTHING"
        self._many(f"{self._insert_sql(table)} ON CONFLICT ({_list(table.key)}) {action}", _rows(batch))

    def violations(self, table: Table, batch: Any) -> Mapping[int, str]:
        """Try the rows, halving what is refused, and undo it; rows that only repeat a key pass."""
        found: dict[int, str] = {}
        sql = f"{self._insert_sql(table)} ON CONFLICT DO NOTHING"
        rows = list(_rows(batch))
        open_parts = [(0, len(rows))]
        self.execute("SAVEPOINT trial")
        while open_parts:
            start, end = open_parts.pop()
            try:
                self.execute("SAVEPOINT part")
                self._many(sql, rows[start:end])
            except ConstraintRefused as error:
                self.execute("ROLLBACK TO part")
                if end - start == 1:
                    found[start] = str(error)
                else:
                    middle = (start + end) // 2
                    open_parts += [(middle, end), (start, middle)]
        self.execute("ROLLBACK TO trial")
        return found

    def _rows_at_once(self, table: Table) -> int:
        """Give the rows of one statement: one where a row may refer to another of its table, which is looked at behind it."""
        name = table.name.casefold()
        alone = any(row[2].casefold() == name for row in self.execute(f"PRAGMA foreign_key_list({quoted(table.name)})"))
        return 1 if alone else max(1, min(_ROWS_AT_ONCE, _MOST_VARIABLES // len(table.columns)))

    def _insert_sql(self, table: Table, rows: int = 1) -> str:
        places = f"({', '.join('?' * len(table.columns))})"
        return f"INSERT INTO {quoted(table.name)} ({_list(table.names)}) VALUES {', '.join([places] * rows)}"

    def _many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.IntegrityError as error:
            raise ConstraintRefused(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise HeadwayError(f"{self._path}: {error}") from error


def _rows(batch: Sequence[Part]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(zip(*part, strict=True) for part in batch)


def _length(batch: Sequence[Part]) -> int:
    return sum(len(part[0]) for part in batch)


def _chosen(batch: Sequence[Part], wanted: bytearray) -> list[Part]:
    chosen, start = [], 0
    for part in batch:
        flags, start = wanted[start : start + len(part[0])], start + len(part[0])
        if 0 not in flags:
            chosen.append(part)
        elif 1 in flags:
            chosen.append([_Chosen(column, flags) for column in part])
    return chosen


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _affinity(declared: str) -> str:
    """Give a declared type's affinity, by the rules of SQLite's documentation ("Datatypes In SQLite", 3.1)."""
    text = declared.upper()
    if "INT" in text:
        return "INTEGER"
    if any(part in text for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in text or not text:
        return "BLOB"
    return "REAL" if any(part in text for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _adopted(declared: str) -> ColumnType | None:
    """Give the column type for a table that nobody declared to us; None if there is no exact one."""
    by_affinity = {"INTEGER": "int", "TEXT": "text", "BLOB": "text", "REAL": "float"}
    name = by_affinity.get(_affinity(declared)) or declared.lower().replace("datetime", "timestamp")
    try:
        found = column_type(name)
    except PlanError:
        return None
    return found if found.kind != "decimal" else None
