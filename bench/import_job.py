"""The import job against a plain loop: csv, the same row function, executemany or one Arrow table an insert.

For SQLite also against a pool of processes written by hand (`import_pool`). The plain loop does what a careful person writes by hand in one process: first entry of a number
wins, latest balance per account, rejects with line and reason, 50,000 rows a transaction. It does
not know byte offsets, does not survive a kill, and shows no progress.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from multiprocessing import Process
from pathlib import Path
from typing import Any

import import_rules
from headway import Reject
from headway.cli.demo_data import write_bookings
from headway.importer.job import import_file
from headway.machine import cores
from import_pool import Part, into_sqlite, pool_sqlite
from measure import Table, fresh, interleave, median

ROWS = int(os.environ.get("HEADWAY_BENCH_ROWS", "1000000"))
A_COMMIT = 50_000
SQLITE_TARGET = 1 / 1.6
DUCKDB_TARGET = 1 / 1.4
POSTGRES_TARGET = 1 / 1.35
AIMS = {"SQLite": 1.8, "PostgreSQL": 1.5, "DuckDB": 1.6}
sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the server that the tests start


def plain_parts(path: Path, seen: set[int]) -> Iterator[Part]:
    """Ledger rows, latest balances and rejects of 50,000 records at a time."""
    customers = import_rules.setup()
    ledger, balances, rejects = list[tuple[Any, ...]](), dict[str, tuple[Any, ...]](), list[tuple[int, str, str]]()
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        width = len(next(reader))
        line = reader.line_num
        for number, record in enumerate(reader, 1):
            start, line = line + 1, reader.line_num
            try:
                if len(record) != width:
                    raise Reject("too_few_fields" if len(record) < width else "too_many_fields")
                row, balance = import_rules.enrich(record, customers)
                row[5].encode()
                if row[0] in seen:
                    raise Reject("duplicate_key")
                seen.add(row[0])
                ledger.append(row)
                balances[balance[0]] = balance
            except (Reject, ValueError) as error:
                rejects.append((start, str(error), ascii(record)))
            if not number % A_COMMIT:
                yield ledger, balances, rejects
                ledger, balances, rejects = [], {}, []
    yield ledger, balances, rejects


def plain_sqlite(source: Path, folder: Path) -> int:
    """The plain loop into SQLite."""
    return into_sqlite(plain_parts(source, set()), folder / "plain.db")


def plain_duckdb(source: Path, folder: Path) -> int:
    """The plain loop into DuckDB."""
    import duckdb
    import pyarrow as pa

    money, text = pa.decimal128(18, 2), pa.string()
    connection = duckdb.connect(str(folder / "plain.duckdb"))
    connection.execute(
        "CREATE TABLE ledger (entry BIGINT PRIMARY KEY, account VARCHAR, booked TIMESTAMP, amount DECIMAL(18,2),"
        " balance DECIMAL(18,2), note VARCHAR, country VARCHAR, amount_eur DECIMAL(18,2), fingerprint VARCHAR)"
    )
    connection.execute("CREATE TABLE balances (account VARCHAR PRIMARY KEY, balance DECIMAL(18,2), entry BIGINT)")
    connection.execute("CREATE TABLE rejects (line BIGINT, reason VARCHAR, raw VARCHAR)")

    def insert(table: str, found: list[tuple[Any, ...]], types: list[Any], more: str = "") -> None:
        if found:
            columns = [pa.array(column) for column in zip(*found, strict=True)]
            arrow = pa.table(
                [c.cast(t) for c, t in zip(columns, types, strict=True)], names=[*"abcdefghi"[: len(types)]]
            )
            connection.register("part", arrow)
            connection.execute(f"INSERT INTO {table} SELECT * FROM part {more}")  # noqa: S608 - names from above
            connection.unregister("part")

    update = "ON CONFLICT DO UPDATE SET balance = excluded.balance, entry = excluded.entry"
    for ledger, balances, rejects in plain_parts(source, set()):
        connection.execute("BEGIN")
        stamp = pa.timestamp("us")
        insert("ledger", ledger, [pa.int64(), text, stamp, money, money, text, text, money, text])
        insert("balances", list(balances.values()), [text, money, pa.int64()], update)
        insert("rejects", rejects, [pa.int64(), text, text])
        connection.execute("COMMIT")
    found = connection.execute("SELECT count(*) FROM ledger").fetchone()
    connection.close()
    return int(found[0]) if found else 0


def plain_postgres(source: Path, _folder: Path, *, server: str) -> int:
    """The plain loop into PostgreSQL: COPY, for the balances into a temporary table."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS plain_ledger, plain_balances, plain_rejects;"
            "CREATE TABLE plain_ledger (entry bigint PRIMARY KEY, account text, booked timestamp, amount numeric(18,2),"
            " balance numeric(18,2), note text, country text, amount_eur numeric(18,2), fingerprint text);"
            "CREATE TABLE plain_balances (account text PRIMARY KEY, balance numeric(18,2), entry bigint);"
            "CREATE TABLE plain_rejects (line bigint, reason text, raw text);"
            "CREATE TEMPORARY TABLE part (LIKE plain_balances) ON COMMIT DELETE ROWS"
        )

        def copy(table: str, rows: Iterable[tuple[Any, ...]]) -> None:
            with connection.cursor().copy(f"COPY {table} FROM STDIN") as out:
                for row in rows:
                    out.write_row(row)

        for ledger, balances, rejects in plain_parts(source, set()):
            connection.execute("BEGIN")
            copy("plain_ledger", ledger)
            copy("part", balances.values())
            connection.execute(
                "INSERT INTO plain_balances SELECT * FROM part ON CONFLICT (account)"
                " DO UPDATE SET balance = excluded.balance, entry = excluded.entry"
            )
            copy("plain_rejects", rejects)
            connection.execute("COMMIT")
        found = connection.execute("SELECT count(*) FROM plain_ledger").fetchone()
    return int(found[0]) if found else 0


def headway_postgres(source: Path, _folder: Path, *, server: str) -> int:
    """The import job into PostgreSQL."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS ledger, balances, _headway_jobs, _headway_rejects")
    process = f"{Path(import_rules.__file__)}:book"
    return import_file(source, server, process=process, tables=import_rules.TABLES).tables["ledger"]


def headway(source: Path, folder: Path, name: str) -> int:
    """The import job."""
    process = f"{Path(import_rules.__file__)}:book"
    return import_file(source, folder / name, process=process, tables=import_rules.TABLES).tables["ledger"]


def parse_alone(source: Path, rows: int) -> None:
    """Csv and the row function, and nothing else."""
    customers = import_rules.setup()
    with source.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        for record in islice(reader, rows):
            with suppress(Reject, ValueError):
                import_rules.enrich(record, customers)


def parse_at_once(source: Path, _folder: Path, *, rows: int, processes: int) -> None:
    """The same in several processes, each for itself: what cores are worth to each other on this machine."""
    running = [Process(target=parse_alone, args=(source, rows)) for _ in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join()


def bench() -> Table:
    """Measure each database both ways and compare the pairs. HEADWAY_BENCH_ROWS sets another number of rows."""
    postgres = import_module("support.postgres")

    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        source = Path(folder) / "bookings.csv"
        *_, answers = write_bookings(source, ROWS)
        variants: dict[str, Callable[[], object]] = {
            "plain loop, SQLite": fresh(plain_sqlite, source),
            "pool, SQLite": fresh(pool_sqlite, source),
            "headway, SQLite": fresh(partial(headway, name="bank.db"), source),
            "plain loop, DuckDB": fresh(plain_duckdb, source),
            "headway, DuckDB": fresh(partial(headway, name="bank.duckdb"), source),
        }
        few = max(1, ROWS // 5)
        alone = {f"csv and function alone, {count} at once": count for count in (1, cores())}
        for name, count in alone.items():
            variants[name] = fresh(partial(parse_at_once, rows=few, processes=count), source)
        try:
            address = running.enter_context(postgres.server())
            variants["plain loop, PostgreSQL"] = fresh(partial(plain_postgres, server=address), source)
            variants["headway, PostgreSQL"] = fresh(partial(headway_postgres, server=address), source)
        except postgres.Missing as missing:
            print(f"without PostgreSQL: {missing}")
        samples = interleave(variants, rounds=3)
        size = source.stat().st_size
    table = Table(
        f"import of {ROWS:,} rows ({size / 1e6:.0f} MB) with a row function, two tables, rejects",
        ("", "s", "rows/s", "µs/row", "right"),
    )
    walls = {}
    for name, found in samples.items():
        walls[name] = wall = median(sample.wall for sample in found)
        rows = few * alone[name] if name in alone else ROWS
        right = "" if name in alone else "yes" if all(sample.result == answers.good for sample in found) else "NO"
        table.row(name, wall, f"{rows / wall:,.0f}", 1e6 * wall / rows, right)
    for target, most in (("SQLite", SQLITE_TARGET), ("PostgreSQL", POSTGRES_TARGET), ("DuckDB", DUCKDB_TARGET)):
        if f"headway, {target}" in walls:
            ratio = walls[f"headway, {target}"] / walls[f"plain loop, {target}"]
            faster = f"{1 / ratio:.2f} x as fast, required {1 / most:.2f}, aim {AIMS[target]}"
            table.judge(f"time of the plain loop, {target}: {faster}", ratio, most, "x")
    table.judge("time of the pool by hand, SQLite", walls["headway, SQLite"] / walls["pool, SQLite"], 1.0, "x")
    return table


if __name__ == "__main__":
    bench().show()
