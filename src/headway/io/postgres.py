"""PostgreSQL as a target: rows travel as lines of COPY text made in the workers.

A transaction holds the tables whose rows can refuse others, so that nobody writes to them between a
look and an insert; readers are not held up. What does not belong here: which rows may be written.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, compress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.errors import HeadwayError, PlanError
from headway.io.columns import ColumnType, Exact, Int, column_type
from headway.io.copy_text import FORBIDDEN, Part, copy_lines
from headway.io.table import Table, Unique
from headway.io.target import Address, ConstraintRefused, ExistingColumn, ExistingTable, Usual, marked, quoted

try:
    import psycopg
except ModuleNotFoundError as missing:
    raise PlanError(f"PostgreSQL needs {missing.name}: pip install 'headway[postgres]'") from missing

_STORED = {"int": "bigint", "float": "double precision", "timestamp": "timestamp without time zone", "bytes": "bytea"}
_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_NAMES = {
    "double precision": "float", "text": "text", "character varying": "text", "boolean": "bool", "date": "date",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamp", "json": "json",
}  # fmt: skip
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_REFUSALS = ("22", "23", "P0")
"""Classes of errors that speak of a row: data exception, constraint violation, raised by a trigger."""
_SETTINGS = {
    "TimeZone": "UTC",
    "lock_timeout": "60s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
_PATIENCE = "3s"
"""how long the server may take to notice that the client of a killed run is gone"""


class PostgresTarget(Usual):
    """One connection to a PostgreSQL server, for one writer."""

    kind = "postgresql"
    forbidden = FORBIDDEN

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection = _connected(address)

    def close(self) -> None:
        """Close the connection; what was not committed is gone."""
        self._connection.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one small statement and give its rows; ``?`` stands for a parameter if there are any."""
        with self._told():
            cursor = self._connection.execute(*_statement(sql, parameters))
            return cursor.fetchall() if cursor.description is not None else []

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query and give its rows without holding them all."""
        with self._told(), self._connection.cursor() as cursor:
            yield from cursor.stream(*_statement(sql, parameters))

    def begin(self, tables: Sequence[str] | None = None) -> None:
        """Begin a transaction, and wait until no other writes to `tables`; without any, until no other creates tables."""
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            if tables:
                self.execute(f"LOCK TABLE {_list(sorted(tables))} IN SHARE ROW EXCLUSIVE MODE")
            elif tables is None:
                self.execute("SELECT pg_advisory_xact_lock(?)", (_number("create"),))
            self.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is checked at the end is checked where it can be told
        except BaseException:
            self.rollback()
            raise

    def commit(self) -> None:
        """Make the transaction durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        with suppress(psycopg.Error):  # without a connection there is none
            if self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")

    def describe(self, table: str) -> ExistingTable | None:
        """Look at a table; None if there is none of this name in the search path."""
        columns = self.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> ''"
            " FROM pg_attribute a WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped"
            " ORDER BY a.attnum",
            (quoted(table),),
        )
        if not columns:
            return None
        return ExistingTable(
            tuple(
                ExistingColumn(name, kind, _adopted(kind), required, default)
                for name, kind, required, default in columns
            ),
            tuple(Unique(names, "constraint") for names in self._unique_indexes(table)),
            self._has_rules(table),
        )

    def _has_rules(self, table: str) -> bool:
        """Whether a row may be refused for more than an index of plain columns."""
        [(found,)] = self.execute(
            "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = t.t AND contype IN ('c', 'f', 'x', 't'))"
            " OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = t.t AND NOT tgisinternal)"
            " OR EXISTS (SELECT FROM pg_index i WHERE indrelid = t.t AND indisunique AND (indpred IS NOT NULL"
            " OR indexprs IS NOT NULL OR to_jsonb(i) ->> 'indnullsnotdistinct' = 'true'))"
            " FROM (SELECT to_regclass(?) AS t) t",
            (quoted(table),),
        )
        return bool(found)

    def _unique_indexes(self, table: str) -> list[tuple[str, ...]]:
        """Give the columns of the indexes in which plain columns may stand once."""
        found = self.execute(
            "SELECT array_agg(a.attname::text ORDER BY k.place)"
            " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " CROSS JOIN unnest(i.indkey) WITH ORDINALITY k(number, place)"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number"
            " WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL"
            " AND k.place <= i.indnkeyatts GROUP BY c.relname, i.indisprimary ORDER BY NOT i.indisprimary, c.relname",
            (quoted(table),),
        )
        return [tuple(columns) for (columns,) in found]

    def holds(self, column: ColumnType, existing: ExistingColumn) -> bool:
        """Whether the existing type keeps every value exactly."""
        if isinstance(column, Exact):
            if isinstance(existing.type, Exact):
                wide = existing.type.precision - existing.type.scale >= column.precision - column.scale
                return wide and existing.type.scale >= column.scale
            return existing.declared == "numeric"
        return existing.type == column

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

    def decode(self, table: Table, payloads: Sequence[Any]) -> list[Part]:
        """Join payloads, made by our own workers, to one batch."""
        return [Part(*part) for part in map(marshal.loads, chain.from_iterable(payloads))]

    def values(self, batch: Sequence[Part], positions: Sequence[int]) -> list[Any]:
        """Give one column's values, or tuples of several columns' values."""
        if len(positions) == 1:
            return [value for part in batch for value in part.columns[positions[0]]]
        return [row for part in batch for row in zip(*map(part.columns.__getitem__, positions), strict=True)]

    def take(self, batch: Sequence[Part], indices: Sequence[int]) -> list[Part]:
        """Give some rows; the indices ascend."""
        return _chosen(batch, marked(sum(part.rows for part in batch), indices, keep=True))

    def drop(self, batch: Sequence[Part], indices: Sequence[int]) -> list[Part]:
        """Give all rows but some."""
        return _chosen(batch, marked(sum(part.rows for part in batch), indices, keep=False))

    def existing(
        self, table: Table, columns: Sequence[str], values: Iterable[Any], keys: Collection[Any] = ()
    ) -> dict[Any, Any]:
        """Give those of `values` that the table already holds, with that one of `keys` whose row has it."""
        wanted, ours = list(values), list(dict.fromkeys(keys))
        if not wanted:
            return {}
        sought = self._numbered(table.name, columns, wanted)
        names = _list(table.key) if ours else ""
        # One look into the index for each value: a planner that knows nothing of `s` might read the whole table.
        sql = (
            f"SELECT s.headway_n, {'k.headway_n' if ours else 'NULL'} FROM {sought} s, LATERAL"
            f" (SELECT {names} FROM {quoted(table.name)} t WHERE {_same('t', 's', columns)} LIMIT 1) here"
        )
        if ours:
            sql += f" LEFT JOIN {self._numbered(table.name, table.key, ours)} k ON {_same('here', 'k', table.key)}"
        return {wanted[place]: None if at is None else ours[at] for place, at in self.execute(sql)}

    def insert(self, table: Table, batch: Sequence[Part]) -> None:
        """Insert rows in order. Raises ConstraintRefused."""
        self._copy(quoted(table.name), table.names, [part.lines for part in batch])

    def upsert(self, table: Table, batch: Sequence[Part]) -> None:
        """Insert rows or overwrite those with the same key. Raises ConstraintRefused."""
        stage = self._temporary(f"headway_stage_{table.name}", table.name, table.names)
        self._copy(stage, table.names, [part.lines for part in batch])
        others = [name for name in table.names if name not in table.key]
        assignments = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        action = f"DO UPDATE SET {assignments}" if others else "DO NOTHING"
        names = _list(table.names)
        self.execute(
            f"INSERT INTO {quoted(table.name)} ({names}) SELECT {names} FROM {stage}"
            f" ON CONFLICT ({_list(table.key)}) {action}"
        )
        self.execute(f"TRUNCATE {stage}")

    def violations(self, table: Table, batch: Sequence[Part]) -> Mapping[int, str]:
        """Try the rows in order, halving what is refused, and undo it; what stands once already passes."""
        lines = [line for part in batch for line in part.lines.splitlines(keepends=True)]
        found, open_parts = dict[int, str](), [(0, len(lines))]
        self.execute("SAVEPOINT trial")
        while open_parts:
            start, end = open_parts.pop()
            self.execute("SAVEPOINT part")
            try:
                self._copy(quoted(table.name), table.names, lines[start:end])
            except ConstraintRefused as error:
                self.execute("ROLLBACK TO SAVEPOINT part")
                if end - start > 1:
                    middle = (start + end) // 2
                    open_parts += [(middle, end), (start, middle)]
                elif not _of_others(error):
                    found[start] = str(error)
            self.execute("RELEASE SAVEPOINT part")  # else each of them keeps a lock of the server's
        self.execute("ROLLBACK TO SAVEPOINT trial")
        return found

    def _temporary(self, name: str, like: str, columns: Sequence[str], *, number: bool = False) -> str:
        """Give an empty table of this session with some columns of another; a rollback takes it away again."""
        place = f"pg_temp.{quoted('headway_' + hashlib.sha256(name.encode()).hexdigest()[:16])}"
        more = "0::bigint AS headway_n, " if number else ""
        if not self.execute("SELECT to_regclass(?)", (place,))[0][0]:
            self.execute(
                f"CREATE TEMPORARY TABLE {place.removeprefix('pg_temp.')} ON COMMIT DELETE ROWS AS"
                f" SELECT {more}{_list(columns)} FROM {quoted(like)} WITH NO DATA"
            )
        return place

    def _numbered(self, table: str, columns: Sequence[str], values: Sequence[Any]) -> str:
        """Give a table of this session that holds values of some columns of another, numbered from 0."""
        name = self._temporary(f"headway_keys_{table}_{tuple(columns)}", table, columns, number=True)
        self.execute(f"TRUNCATE {name}")
        parts = [values] if len(columns) == 1 else list(zip(*values, strict=True))
        self._copy(name, ("headway_n", *columns), [copy_lines([range(len(values)), *parts])])
        return name

    def _copy(self, into: str, names: Sequence[str], parts: Iterable[bytes]) -> None:
        sql: Any = f"COPY {into} ({_list(names)}) FROM STDIN"
        with self._told(), self._connection.cursor() as cursor, cursor.copy(sql) as copy:
            for part in parts:
                copy.write(part)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            what = _first_line(error, self._address)
            if (error.sqlstate or "")[:2] in _REFUSALS:
                raise ConstraintRefused(what) from error
            if error.sqlstate in ("55P03", "40P01"):  # lock not available, deadlock
                raise HeadwayError(
                    f"{self._address}: another session holds a table of this job: {what}. What was committed stands"
                ) from error
            raise HeadwayError(f"{self._address}: {what}") from error


@contextmanager
def held(address: Address, job: str, *, refusal: str) -> Iterator[None]:
    """Hold an advisory lock for the block, on a connection of its own that the server drops with its client.

    Raises HeadwayError with `refusal` as its text while another session holds it, PlanError if the
    server cannot be reached.
    """
    with _connected(address) as connection:
        schema = connection.execute("SELECT current_schema()").fetchone()
        connection.execute(f"SET lock_timeout = '{_PATIENCE}'")
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (_number(f"{schema}:{job}"),))
        except psycopg.errors.LockNotAvailable:
            raise HeadwayError(refusal) from None
        yield


def _connected(address: Address) -> psycopg.Connection[tuple[Any, ...]]:
    try:
        connection = psycopg.connect(
            address.location, autocommit=True, client_encoding="utf8", fallback_application_name="headway"
        )
        for name, value in _SETTINGS.items():  # not every server knows all of them
            connection.execute("SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s", (value, name))
    except psycopg.Error as error:
        raise PlanError(f"target {address}: {_first_line(error, address)}") from error
    return connection


def _statement(sql: str, parameters: Sequence[Any]) -> tuple[Any, ...]:
    return (sql.replace("%", "%%").replace("?", "%s"), parameters) if parameters else (sql,)


def _chosen(batch: Sequence[Part], wanted: bytearray) -> list[Part]:
    chosen, start = [], 0
    for part in batch:
        flags, start = wanted[start : start + part.rows], start + part.rows
        if 0 not in flags:
            chosen.append(part)
        elif count := sum(flags):
            columns = {position: list(compress(values, flags)) for position, values in part.columns.items()}
            lines = b"".join(compress(part.lines.splitlines(keepends=True), flags))
            chosen.append(Part(count, columns, lines))
    return chosen


def _same(one: str, other: str, columns: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in columns)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _number(name: str) -> int:
    """Give the number of an advisory lock."""
    return int.from_bytes(hashlib.sha256(f"headway:{name}".encode()).digest()[:8], signed=True)


def _of_others(error: ConstraintRefused) -> bool:
    """Whether a row was refused for what another one has: it may be one that would have been overwritten."""
    cause = error.__cause__
    return isinstance(cause, (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation))


def _adopted(declared: str) -> ColumnType | None:
    """Give the column type of an existing column; None if no type of ours is exactly it."""
    if bits := _BITS.get(declared):
        return Int(bits)
    if found := _NUMERIC.fullmatch(declared):
        precision, scale = int(found[1]), int(found[2])
        return Exact(precision, scale) if scale <= precision <= 38 else None
    name = _NAMES.get(declared)
    return column_type(name) if name is not None else None


def _first_line(error: psycopg.Error, address: Address) -> str:
    """Give what the server said, without the password that an address may hold."""
    text = error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]
    parts = urlsplit(address.location)
    for secret in filter(None, (parts.password, *parse_qs(parts.query).get("password", ()))):
        text = text.replace(secret, "***")
    return text
