"""What the importer asks of a database, and how a target's address becomes one.

A `Target` is one connection with one writer. A *batch* is rows of one table in the form that the
database takes fastest: a `Codec` makes payloads of it in the workers, `decode` joins them in the
writer. What does not belong here: which rows may be written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from headway.errors import PlanError
from headway.io.columns import ColumnType
from headway.io.lock import held_alone
from headway.io.table import Table, Unique


class ConstraintRefused(Exception):
    """The database refused a row for a constraint of its own. The transaction is to be rolled back."""


class ExistingColumn(NamedTuple):
    """A column as it stands in the database; `type` is None where no column type of ours is exact in it."""

    name: str
    declared: str
    type: ColumnType | None
    required: bool
    has_default: bool


class ExistingTable(NamedTuple):
    """A table as it stands in the database."""

    columns: tuple[ExistingColumn, ...]
    uniques: tuple[Unique, ...]
    has_rules: bool = False
    """whether the database may refuse a row for more than that: checks, references, triggers, other indexes"""


class Fitted(NamedTuple):
    """A stored column; by index what does not fit and why; and where NULLs stand, also those for what does not fit."""

    stored: Any
    misfits: Mapping[int, str]
    nulls: Sequence[int]


def fitted(
    type: ColumnType,
    values: Sequence[Any],
    *,
    quick: Callable[[ColumnType, Sequence[Any]], Any | None],
    store: Callable[[ColumnType, Sequence[Any]], Any],
    unheld: Callable[[ColumnType, Sequence[Any]], Mapping[int, str]] = lambda *_: {},
) -> Fitted:
    """Convert and store a column by a codec's own means.

    `quick` stores a column of the usual form at once, and gives None where each value has to be looked at: never NULLs,
    and nothing that ``type.fit`` would not give. `unheld` names converted values that this database has no place for.
    """
    stored = quick(type, values)
    if stored is not None:
        return Fitted(stored, {}, ())
    fitting, misfits = type.fit(values)
    nulls = [index for index, value in enumerate(fitting) if value is None] if None in fitting else ()
    return Fitted(store(type, fitting), {**unheld(type, fitting), **misfits}, nulls)


class Codec(Protocol):
    """From columns of values to what a database takes fastest; used by the workers, without a connection."""

    def fit(self, type: ColumnType, values: Sequence[Any]) -> Fitted:
        """Convert a column as ``type.fit`` does, and store it."""
        ...

    def store(self, type: ColumnType, values: Sequence[Any]) -> Any:
        """Store a column that ``type.fit`` has converted."""
        ...

    def without(self, column: Any, indices: Sequence[int]) -> Any:
        """Give all values of a stored column but some; the indices ascend."""
        ...

    def pack(self, table: Table, columns: Sequence[Any], /) -> Any:
        """Make a part of the payload of a table's stored columns."""
        ...

    def join(self, parts: list[Any], /) -> Any:
        """Make the payload."""
        ...


RANGES_A_COMMIT = 4
"""Ranges that are committed together: some 50,000 rows, behind which the cost of a commit is small."""


class Target(Protocol):
    """One database, open for one writer. Identifiers are quoted, values are bound."""

    kind: str
    ranges_a_commit: int
    """Ranges that are committed together at most."""
    forbidden: str
    """Characters that no text of this database can hold."""
    notes: Sequence[str]
    """What a report says about how the database was set."""

    def close(self) -> None:
        """Close the connection; what was not committed is gone."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one small statement of bookkeeping and give its rows."""
        ...

    def enough(self, rows: int, ranges: int) -> bool:
        """Whether to commit `rows` rows of a table from so many ranges now, rather than with more of them."""
        ...

    def begin(self, tables: Sequence[str] | None = None) -> None:
        """Begin a transaction in which this connection alone may write to `tables`; without any, create tables."""
        ...

    def commit(self) -> None:
        """Make the transaction durable."""
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        ...

    def describe(self, table: str) -> ExistingTable | None:
        """Look at a table; None if there is none of this name."""
        ...

    def holds(self, column: ColumnType, existing: ExistingColumn) -> bool:
        """Whether an existing column keeps every value of `column` exactly."""
        ...

    def create(self, table: Table) -> None:
        """Create a table with its key as primary key."""
        ...

    def empty(self, table: str) -> None:
        """Delete all rows."""
        ...

    def decode(self, table: Table, payloads: Sequence[Any]) -> Any:
        """Join payloads to one batch."""
        ...

    def values(self, batch: Any, positions: Sequence[int]) -> Sequence[Any]:
        """Give one column's values, or tuples of several columns' values."""
        ...

    def take(self, batch: Any, indices: Sequence[int]) -> Any:
        """Give some rows of a batch; the indices ascend."""
        ...

    def drop(self, batch: Any, indices: Sequence[int]) -> Any:
        """Give all rows of a batch but some; the indices ascend."""
        ...

    def existing(
        self, table: Table, columns: Sequence[str], values: Iterable[Any], keys: Collection[Any] = ()
    ) -> dict[Any, Any]:
        """Give those of `values` (as from `values`) that the table already holds, with that one of `keys` whose row has it.

        None for a key that is not among `keys`.
        """
        ...

    def count(self, table: str) -> int:
        """Give the number of rows."""
        ...

    def highest(self, table: str, column: str) -> int | None:
        """Give the largest number in a column, None if it holds none."""
        ...

    def insert(self, table: Table, batch: Any) -> None:
        """Insert rows in order. Raises ConstraintRefused."""
        ...

    def upsert(self, table: Table, batch: Any) -> None:
        """Insert rows or overwrite those with the same key; no key stands twice. Raises ConstraintRefused."""
        ...

    def violations(self, table: Table, batch: Any) -> Mapping[int, str]:
        """Give, by index, the rows that a constraint refuses whatever other rows there are."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query and give its rows without holding them all."""
        ...


class Transaction:
    """A transaction of a target in which this connection alone writes to `tables`, and `emptied` are empty.

    As a block it is committed at the end, undone if the block raises.
    """

    def __init__(self, target: Target, tables: Sequence[str], emptied: Sequence[str] = ()) -> None:
        self._target, self._tables, self._emptied = target, tables, emptied

    def begin(self) -> None:
        """Begin it, for whoever ends it."""
        self._target.begin(self._tables)
        try:
            for table in self._emptied:
                self._target.empty(table)
        except BaseException:
            self._target.rollback()
            raise

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._target.commit()
        finally:
            self._target.rollback()  # nothing is left to undo behind a commit, unless it failed


_KINDS = {
    "duckdb": ("headway.io.duckdb", "DuckDBTarget"),
    "sqlite": ("headway.io.sqlite", "SQLiteTarget"),
    "postgresql": ("headway.io.postgres", "PostgresTarget"),
}
_CODECS = {"duckdb": "headway.io.arrow", "sqlite": "headway.io.sqlite", "postgresql": "headway.io.copy_text"}
_SUFFIXES = {".duckdb": "duckdb", ".ddb": "duckdb", ".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite"}
_SERVERS = {"postgresql": "postgresql", "postgres": "postgresql"}


class Usual:
    """What is the same for most targets."""

    forbidden = ""
    notes: Sequence[str] = ()
    ranges_a_commit = RANGES_A_COMMIT

    def enough(self, rows: int, ranges: int) -> bool:
        """Take as many ranges as there may be."""
        return ranges >= self.ranges_a_commit

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and give its rows; the target's own."""
        raise NotImplementedError

    def count(self, table: str) -> int:
        """Give the number of rows."""
        found: int = self.execute(f"SELECT count(*) FROM {quoted(table)}")[0][0]
        return found

    def highest(self, table: str, column: str) -> int | None:
        """Give the largest number in a column, None if it holds none."""
        found: int | None = self.execute(f"SELECT max({quoted(column)}) FROM {quoted(table)}")[0][0]
        return found


class Address(NamedTuple):
    """Where a target is: its kind, and the path of its file or the address of its server."""

    kind: str
    location: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``bank.duckdb``, ``bank.db``, ``duckdb:///bank.duckdb``, ``postgresql://user@host/bank``.

        As elsewhere, three slashes give a relative path and four an absolute one; a server's address is
        as libpq reads it. Raises PlanError.
        """
        scheme, colon, rest = text.partition("://")
        if colon:
            if scheme in _SERVERS:
                return cls(_SERVERS[scheme], text)
            if scheme not in _KINDS:
                raise PlanError(
                    f"target {text!r}: there is no {scheme}://; use duckdb:///, sqlite:/// or postgresql://"
                )
            if not rest.startswith("/") or len(rest) < 2:
                raise PlanError(f"target {text!r}: write {scheme}:///FILE (or {scheme}:////FOLDER/FILE)")
            return cls(scheme, rest[1:])
        kind = _SUFFIXES.get(Path(text).suffix.lower())
        if kind is None:
            raise PlanError(
                f"target {text!r}: the ending says which database it is: .duckdb, .db, .sqlite; "
                f"or write duckdb:///{text}, sqlite:///{text} or postgresql://HOST/DATABASE"
            )
        return cls(kind, text)

    @property
    def path(self) -> Path | None:
        """The database's file; None where a server has it."""
        return None if self.kind in _SERVERS else Path(self.location)

    def __str__(self) -> str:
        """Give it as it may be shown: without a password."""
        if self.path is not None:
            return self.location
        parts = urlsplit(self.location)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def exists(self) -> bool:
        """Whether the database is there before it is opened; a server's always is."""
        return self.path is None or self.path.exists()

    def remove(self) -> None:
        """Remove the database's file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def held(self, job: str, *, refusal: str) -> AbstractContextManager[None]:
        """Hold `job` for the block, so that no other run of it begins.

        Raises HeadwayError with `refusal` as its text while another run holds it, PlanError if the
        database cannot be reached.
        """
        if self.path is None:
            held: Callable[..., AbstractContextManager[None]] = import_module(_KINDS[self.kind][0]).held
            return held(self, job, refusal=refusal)
        return held_alone(self.lock_file(job), refusal=refusal)

    def lock_file(self, job: str) -> Path:
        """Give the file beside the database that whoever runs `job` holds. Raises PlanError if there is no such folder."""
        path = Path(self.location).resolve()
        if not path.parent.is_dir():
            raise PlanError(f"target {self}: there is no folder {path.parent}")
        return path.with_name(f".{path.name}.{hashlib.sha256(job.encode()).hexdigest()[:16]}.lock")

    def open(self) -> Target:
        """Open the database, creating its file. Raises PlanError if it cannot be opened."""
        target: Target = self._class()(self.path or self)
        return target

    @property
    def ranges_a_commit(self) -> int:
        """Ranges that are committed together at most."""
        most: int = self._class().ranges_a_commit
        return most

    def _class(self) -> Any:
        module, name = _KINDS[self.kind]
        return getattr(import_module(module), name)


def codec(kind: str) -> Codec:
    """Give the codec of one kind of database."""
    module: Codec = import_module(_CODECS[kind])
    return module


def of_row(values: tuple[Any, ...]) -> Any:
    """Give columns of a row as `Target.values` gives them: one as itself."""
    return values[0] if len(values) == 1 else values


def marked(length: int, indices: Iterable[int], *, keep: bool) -> bytearray:
    """Give a flag for each of `length` rows: whether to keep it, if those at `indices` are kept or are not."""
    flags = bytearray(length) if keep else bytearray(b"\x01") * length
    for index in indices:
        flags[index] = keep
    return flags


def quoted(name: str) -> str:
    """Quote an identifier."""
    if "\x00" in name:
        raise PlanError(f"{name!r} cannot be a name: it holds a NUL")
    return '"' + name.replace('"', '""') + '"'
