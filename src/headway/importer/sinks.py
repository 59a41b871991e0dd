"""Databases as sinks of any pipeline, by the same means as the import job: `SQLiteSink`, `DuckDBSink`, `PostgresSink`.

What does not belong here: reading files, and keeping rejects (a refused item is a failure of the pipeline).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from headway.errors import HeadwayError, PlanError
from headway.importer.batches import Batch, Sources
from headway.importer.bookkeeping import SavedState
from headway.importer.collect import Collector
from headway.importer.conflicts import Refusals, put
from headway.importer.declare import Declaration, bind, read_tables
from headway.io.columns import column_type
from headway.io.ranges import Head
from headway.io.table import Column, Table
from headway.io.target import Address, ConstraintRefused, Target, Transaction, codec


class Refused(HeadwayError):
    """A row that the database does not take: `reason` is a short name, as in an import's rejects."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class DatabaseSink:
    """A transactional sink. Items are rows, as a row function returns them: mappings, sequences, or `headway.rows`.

    `target`: a path or an address. `table` is written to; `columns` (name -> type, as in ``--tables``)
    may be left out if it exists. `key`, `mode` and `keep` mean what they mean for an import. `tables`
    declares several tables instead, as a TOML file or a mapping of its shape. Each write (up to 1,000
    items) is converted and inserted as a whole, inside a transaction that `commit` ends; a write that
    raises leaves nothing behind, so the pipeline finds the single item that failed. What `ignore`
    leaves out counts as written.

    After ``load(job)`` the state given to `commit` is stored in the same transaction, and no other
    sink can take the job until this one is closed. Raises PlanError for a mistake in the declaration,
    `HeadwayError` (`.reason`) for a row that is refused.
    """

    _kind: ClassVar[str]

    def __init__(
        self,
        target: str | Path,
        table: str | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        key: str | Sequence[str] = (),
        mode: str | None = None,
        keep: str | None = None,
        tables: str | Path | Mapping[str, Any] | None = None,
    ) -> None:
        self._address = self._address_of(str(target))
        if (table is None) == (tables is None):
            raise PlanError(f"{type(self).__name__}: give table= or tables=")
        if tables is not None:
            if columns is not None or key or mode or keep:
                raise PlanError("columns=, key=, mode= and keep= stand in tables=, per table")
            self._declarations = read_tables(tables)
        else:
            made = None if columns is None else tuple(Column(name, column_type(kind)) for name, kind in columns.items())
            keys = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) and key else tuple(key)
            self._declarations = [Declaration(str(table), made, keys, mode, keep)]
            self._declarations[0].meaning()
        self._closing = ExitStack()
        self._target: Target | None = None
        self._state: SavedState | None = None

    @classmethod
    def _address_of(cls, target: str) -> Address:
        if "://" not in target and cls._kind != "postgresql":
            return Address(cls._kind, target)
        address = Address.parse(target)
        if address.kind != cls._kind:
            raise PlanError(f"{cls.__name__}: {address} is no address of its kind ({cls._kind})")
        return address

    def load(self, job: str) -> dict[str, Any] | None:
        """Make `job` this sink's and give the state of its last commit; None if there is none.

        Raises HeadwayError while another run holds it.
        """
        refusal = f"job {job!r} is being run by another process, into {self._address}; wait for it to end, or stop it"
        self._closing.enter_context(self._address.held(job, refusal=refusal))
        try:
            target = self._opened()
            target.begin()
            try:
                self._state = SavedState(target, job)
                state = self._state.claim()
                target.commit()
            except BaseException:
                target.rollback()
                raise
        except BaseException as error:
            self.close(error)
            raise
        return state

    def open(self, resume: dict[str, Any] | None) -> None:
        """Create the tables that are missing; those to be replaced are emptied with the first commit, unless it goes on."""
        target = self._opened()
        try:
            for declaration in self._declarations:
                if declaration.columns is None and target.describe(declaration.name) is None:
                    raise PlanError(f"table {declaration.name} is not there: give its columns=, as in {{'id': 'int'}}")
            target.begin()
            try:
                binding = bind(
                    self._declarations, Head((), 0, 0, 1, 0), target, has_function=True, default=None,
                )  # fmt: skip
                for table in binding.missing:
                    target.create(table)
                target.commit()
            except BaseException:
                target.rollback()
                raise
        except BaseException as error:
            self.close(error)
            raise
        self._tables, self._default = binding.tables, binding.default
        self._refusals = Refusals(target)
        self._kept: list[Batch] = []
        self._begun = False
        self._to_empty = [t.name for t in self._tables if t.mode == "replace"] if resume is None else []

    def write(self, items: Sequence[Any]) -> None:
        """Insert rows in order: all of them, or none."""
        collector = Collector(self._tables, self._default, codec(self._kind))
        for index, item in enumerate(items):
            collector.add(index, item)
        found, unfit = collector.take()
        for why in unfit.values():
            raise Refused(why.reason, why.message)
        target = self._opened()
        self._begin(target)
        batches = [self._batch(target, name, rows.payload, rows.sources) for name, rows in found.items()]
        losers = self._refusals.losers(batches)
        for conflict in losers.values():
            if conflict.unique.reason != "skipped":
                raise Refused(conflict.unique.reason, conflict.message)
        batches = [batch.without(losers, len(items), target) for batch in batches]
        try:
            for batch in batches:
                put(batch, target)
        except ConstraintRefused as error:
            self._again(target)
            raise Refused("constraint", str(error)) from error
        self._kept += batches

    def commit(self, state: dict[str, Any]) -> None:
        """Make what was written durable, together with `state` if a job was loaded."""
        target = self._opened()
        self._begin(target)
        if self._state is not None:
            self._state.advance(state)
        target.commit()
        self._begun, self._kept, self._to_empty = False, [], []

    def close(self, error: BaseException | None) -> None:
        """Give up what was not committed, and the connection and the job with it."""
        target, self._target, self._state = self._target, None, None
        try:
            if target is not None:
                target.rollback()
                target.close()
        finally:
            self._closing.close()

    def _opened(self) -> Target:
        if self._target is None:
            self._target = self._address.open()
        return self._target

    def _begin(self, target: Target) -> None:
        if self._begun:
            return
        Transaction(target, [table.name for table in self._tables if table.refusals], self._to_empty).begin()
        self._begun = True

    def _batch(self, target: Target, name: str, payload: Any, rows: Any) -> Batch:
        table: Table = next(table for table in self._tables if table.name == name)
        sources = Sources()
        sources.extend(0, rows)
        return Batch(table, target.decode(table, [payload]), sources)

    def _again(self, target: Target) -> None:
        """Begin the transaction anew with what it held: not every database can undo a single statement."""
        target.rollback()
        self._begun = False
        self._begin(target)
        for batch in self._kept:
            put(batch, target)


class SQLiteSink(DatabaseSink):
    """A SQLite file as a sink; see `DatabaseSink`."""

    _kind = "sqlite"


class DuckDBSink(DatabaseSink):
    """A DuckDB file as a sink; see `DatabaseSink`. Needs ``headway[import]``."""

    _kind = "duckdb"


class PostgresSink(DatabaseSink):
    """A PostgreSQL server as a sink; see `DatabaseSink`. Needs ``headway[postgres]``."""

    _kind = "postgresql"
