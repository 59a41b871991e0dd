"""An import that looks a customer up over HTTP, 5 ms a call, for 8.8% of its rows: against a plain asyncio loop.

The plain loop reads 12,000 rows, asks for their new accounts with 100 calls at once, and writes them: in
one process, as a careful person writes it by hand. The service is a process of its own on this machine.
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import lookup_rules
from headway.importer.job import import_file
from measure import Table, interleave, median

ROWS = int(os.environ.get("HEADWAY_BENCH_ROWS", "1000000"))
NEW = 0.088
BLOCK = 12_000
RATE = 65_000
"""Rows a second that are wanted on a quiet machine of two cores."""
TABLES = {
    "tables": {"booked": {"columns": {"id": "int", "account": "text", "amount": "decimal(18,2)", "customer": "text"}}}
}
SERVICE = """
import asyncio
class Service(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def data_received(self, data):
        *asked, self.data = (self.data + data).split(b"\\r\\n\\r\\n")
        for each in asked:
            name = b"customer of " + each.split(b" ", 2)[1][1:]
            answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(name), name)
            asyncio.get_running_loop().call_later(0.005, self.transport.write, answer)
async def main():
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, input)
asyncio.run(main())
"""


@contextmanager
def service() -> Iterator[None]:
    """Run the service; its port is in the environment."""
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        os.environ["HEADWAY_BENCH_PORT"] = child.stdout.readline().strip()
        yield
        child.communicate("\n")


def write_source(path: Path) -> int:
    """Write the file; give the number of distinct accounts."""
    draw, accounts = random.Random(1), 0
    with path.open("w", encoding="utf-8") as file:
        file.write("id,account,amount\n")
        for number in range(ROWS):
            if not accounts or draw.random() < NEW:
                accounts += 1
                account = accounts
            else:
                account = draw.randrange(accounts) + 1
            file.write(f"{number},A-{account},{draw.randrange(10**6) / 100:.2f}\n")
    return accounts


async def plain(source: Path, folder: Path) -> int:
    """The plain loop, into SQLite."""
    known: dict[str, str] = {}
    turn = asyncio.Semaphore(100)

    async def look_up(account: str) -> None:
        async with turn:
            known[account] = await lookup_rules.fetch(account)

    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE booked (id INTEGER, account TEXT, amount TEXT, customer TEXT)")
    with source.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        while rows := list(islice(reader, BLOCK)):
            await asyncio.gather(*map(look_up, {row[1] for row in rows} - known.keys()))
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO booked VALUES (?, ?, ?, ?)", [(*row, known[row[1]]) for row in rows])
            connection.execute("COMMIT")
    count: int = connection.execute("SELECT count(*) FROM booked").fetchone()[0]
    connection.close()
    while lookup_rules.idle:
        lookup_rules.idle.pop()[1].close()
    return count


def headway(source: Path, folder: Path) -> int:
    """The import job."""
    process = f"{Path(lookup_rules.__file__)}:book"
    return import_file(source, folder / "bank.db", process=process, tables=TABLES).tables["booked"]


def bench() -> Table:
    """Measure both."""
    with tempfile.TemporaryDirectory() as folder, service():
        source = Path(folder) / "bookings.csv"
        accounts = write_source(source)

        def fresh(run: Callable[[Path, Path], int]) -> Callable[[], int]:
            def call() -> int:
                with tempfile.TemporaryDirectory() as empty:
                    return run(source, Path(empty))

            return call

        variants = {
            "plain asyncio loop": fresh(lambda source, empty: asyncio.run(plain(source, empty))),
            "headway": fresh(headway),
        }
        samples = interleave(variants, rounds=3)
    table = Table(
        f"import of {ROWS:,} rows, {accounts:,} accounts looked up over HTTP at 5 ms", ("", "s", "rows/s", "right")
    )
    walls = {}
    for name, found in samples.items():
        walls[name] = wall = median(sample.wall for sample in found)
        right = all(sample.result == ROWS for sample in found)
        table.row(name, wall, f"{ROWS / wall:,.0f}", "yes" if right else "NO")
    table.judge("µs a row, where the machine is quiet", 1e6 * walls["headway"] / ROWS, 1e6 / RATE, " µs")
    return table


if __name__ == "__main__":
    bench().show()
