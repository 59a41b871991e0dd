"""The databases that every test of the importer runs over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from os import getpid
from pathlib import Path

import pytest

from support import postgres

TARGETS = ("bank.duckdb", "bank.db", "postgresql")
"""Names of what `Targets.fresh` makes."""


class Targets:
    """Makes empty databases."""

    def __init__(self, server: str | None, why_not: str) -> None:
        self._server, self._why_not, self._numbers = server, why_not, count()
        self._schemas: list[str] = []

    def fresh(self, name: str, folder: Path) -> str:
        """Give the address of an empty one: a file in `folder`, or a schema of its own."""
        if name != "postgresql":
            return str(folder / name)
        if self._server is None:
            pytest.skip(self._why_not)
        import psycopg

        schema = f"headway_{getpid()}_{next(self._numbers)}"
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{schema}"')
        self._schemas.append(schema)
        joined = "&" if "?" in self._server else "?"
        return f"{self._server}{joined}options=-csearch_path%3D{schema}"

    def drop(self) -> None:
        """Take away what was made on a server."""
        if self._server is None or not self._schemas:
            return
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as connection:
            for schema in self._schemas:
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


@contextmanager
def targets() -> Iterator[Targets]:
    """Give the maker of databases; its server, where there is one, runs for the block."""
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError:
        yield Targets(None, "needs psycopg: pip install 'headway[postgres]'")
        return
    try:
        with postgres.server() as server:
            made = Targets(server, "")
            yield made
            made.drop()
    except postgres.Missing as missing:
        yield Targets(None, str(missing))


def is_server(target: str) -> bool:
    """Whether it is the address of a server."""
    return "://" in target


def in_file_order(target: str, ascending: str = "ctid") -> str:
    """Give what an ORDER BY needs so that rows come as they were written.

    PostgreSQL fills a gap in an earlier page with a short row, so it takes `ascending`, which ascends
    in the file; rows that fit into one page need none.
    """
    return ascending if is_server(target) else "rowid"
