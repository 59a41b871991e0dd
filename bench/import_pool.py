"""The fastest that a careful person writes by hand for the import: a pool of processes, ordered, and one bulk writer.

The file is cut at record ends, by the parity of quotes, into pieces of a MiB; the pool parses them and calls the row
function, `imap` gives the results in the order of the file, and one process writes them, 50,000 rows a transaction.
First entry of a number wins, latest balance per account, rejects with line and reason. It does not know byte offsets,
does not survive a kill, does not check that a piece ended where a record does, and holds as many pieces as are ahead.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import import_rules
from headway import Reject

PIECE = 1 << 20
A_COMMIT = 50_000
WIDTH = 6
WORKERS = 2

Parsed = tuple[list[tuple[Any, ...]], dict[str, tuple[Any, ...]], list[tuple[int, str, str]], int, list[int]]
"""Ledger rows, latest balances, rejects by line of the piece, number of lines, and the line of each ledger row."""

Part = tuple[list[tuple[Any, ...]], dict[str, tuple[Any, ...]], list[tuple[int, str, str]]]
"""What is written together: ledger rows, latest balances, rejects by line."""

_customers: dict[str, Any] = {}


def begin() -> None:
    """Make the look-up, in each process of the pool."""
    _customers.update(import_rules.setup())


def pieces(path: Path) -> Iterator[bytes]:
    """Cut the file, without its header, at record ends."""
    with path.open("rb") as file:
        file.readline()
        rest = b""
        while data := file.read(PIECE):
            data = rest + data
            end = data.rfind(b"\n")
            odd = (data.count(b'"') - data.count(b'"', end)) & 1
            while end >= 0 and odd:
                before = data.rfind(b"\n", 0, end)
                odd ^= data.count(b'"', before + 1, end) & 1
                end = before
            yield data[: end + 1]
            rest = data[end + 1 :]
        if rest:
            yield rest


def parse(piece: bytes) -> Parsed:
    """Parse a piece and call the row function on each record."""
    ledger, balances, rejects = list[tuple[Any, ...]](), dict[str, tuple[Any, ...]](), list[tuple[int, str, str]]()
    lines, line = list[int](), 0
    reader = csv.reader(io.StringIO(piece.decode("utf-8", "surrogateescape"), newline=""))
    for record in reader:
        start, line = line, reader.line_num
        try:
            if len(record) != WIDTH:
                raise Reject("too_few_fields" if len(record) < WIDTH else "too_many_fields")
            row, balance = import_rules.enrich(record, _customers)
            row[5].encode()
            ledger.append(row)
            lines.append(start)
            balances[balance[0]] = balance
        except (Reject, ValueError) as error:
            rejects.append((start, str(error), ascii(record)))
    return ledger, balances, rejects, line, lines


def in_order(source: Path) -> Iterator[Part]:
    """Give what is to be written, 50,000 rows or a little more at a time."""
    seen, base = set[int](), 2
    ledger, balances, rejects = list[tuple[Any, ...]](), dict[str, tuple[Any, ...]](), list[tuple[int, str, str]]()
    with multiprocessing.get_context("spawn").Pool(WORKERS, begin) as pool:
        for rows, latest, refused, count, lines in pool.imap(parse, pieces(source)):
            entries = {row[0] for row in rows}
            if len(entries) == len(rows) and seen.isdisjoint(entries):
                ledger += rows
                balances.update(latest)
            else:
                known = set(seen)
                for row, line in zip(rows, lines, strict=True):
                    if row[0] in known:
                        refused.append((line, "duplicate_key", ascii(row)))
                        continue
                    known.add(row[0])
                    ledger.append(row)
                    balances[row[1]] = (row[1], row[4], row[0])
                refused.sort()
            seen |= entries
            rejects += [(base + line, reason, raw) for line, reason, raw in refused]
            base += count
            if len(ledger) >= A_COMMIT:
                yield ledger, balances, rejects
                ledger, balances, rejects = [], {}, []
    yield ledger, balances, rejects


def pool_sqlite(source: Path, folder: Path) -> int:
    """The pool into SQLite."""
    return into_sqlite(in_order(source), folder / "pool.db")


def into_sqlite(parts: Iterable[Part], path: Path) -> int:
    """Write parts in bulk, each in a transaction; give the rows of the ledger."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -65536;"
        "CREATE TABLE ledger (entry INTEGER PRIMARY KEY, account TEXT, booked TEXT, amount TEXT, balance TEXT,"
        " note TEXT, country TEXT, amount_eur TEXT, fingerprint TEXT);"
        "CREATE TABLE balances (account TEXT PRIMARY KEY, balance TEXT, entry INTEGER) WITHOUT ROWID;"
        "CREATE TABLE rejects (line INTEGER, reason TEXT, raw TEXT);"
    )
    for ledger, balances, rejects in parts:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", ledger)
        connection.executemany(
            "INSERT INTO balances VALUES (?, ?, ?) ON CONFLICT (account) DO UPDATE"
            " SET balance = excluded.balance, entry = excluded.entry",
            balances.values(),
        )
        connection.executemany("INSERT INTO rejects VALUES (?, ?, ?)", rejects)
        connection.execute("COMMIT")
    count: int = connection.execute("SELECT count(*) FROM ledger").fetchone()[0]
    connection.close()
    return count
