"""The whole job at full size: every balance and reject exact, and the peak memory of all processes.

``python bench/full_size.py GENERATOR [ROWS ...]`` with the path of the transactions' generator; by default one
and ten million rows, into each target, by the command. Exit status 1 if an end state is wrong.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from decimal import Decimal
from importlib import import_module
from pathlib import Path

from headway.io.target import Address
from measure import Table, machine

ROOT = Path(__file__).parents[1]
RULES = ROOT / "examples"


def main(generator: str, sizes: list[int]) -> int:
    """Import every size into every target and print what it took."""
    sys.path.append(str(ROOT / "tests"))
    postgres, memory = map(import_module, ("support.postgres", "support.memory"))
    print(machine())
    table = Table("the whole job", ("target", "rows", "s", "rows/s", "peak MB, all processes", "exact"))
    wrong = 0
    with ExitStack() as running:
        targets = {"SQLite": "bank.db", "DuckDB": "bank.duckdb"}
        try:
            targets["PostgreSQL"] = running.enter_context(postgres.server())
        except postgres.Missing as missing:
            print(f"without PostgreSQL: {missing}")
        for rows in sizes:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                command = [sys.executable, generator, name, "--rows", str(rows), "--quiet"]
                subprocess.run(command, check=True)
                os.environ["CUSTOMERS"] = str(folder / "customers.csv")
                for kind, where in targets.items():
                    target = where if "://" in where else str(folder / where)
                    arguments: list[str | Path] = [
                        folder / "transactions.csv", "--to", target, "--job", str(rows), "--quiet",
                        "--process", f"{RULES / 'transactions.py'}:post", "--tables", RULES / "transactions.toml",
                    ]  # fmt: skip
                    started = time.perf_counter()
                    with (
                        subprocess.Popen([sys.executable, "-m", "headway", "import", *arguments]) as process,
                        memory.peak_memory(process.pid) as peak,
                    ):
                        process.wait()
                    seconds = time.perf_counter() - started
                    right = exact(folder, target)
                    wrong += not right
                    table.row(kind, f"{rows:,}", seconds, f"{rows / seconds:,.0f}", max(peak), "yes" if right else "NO")
                    forget(target)
    table.show()
    return bool(wrong)


def exact(folder: Path, target: str) -> bool:
    """Whether ledger, balances and rejects are the generator's answers."""
    truth = json.loads((folder / "truth.json").read_text())
    bad = [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]
    with (folder / "balances.csv").open(newline="") as file:
        balances = {row["account"]: Decimal(row["balance"]) for row in csv.DictReader(file)}
    opened = Address.parse(target).open()
    try:
        [(good,)] = opened.execute("SELECT count(*) FROM ledger")
        found = opened.execute("SELECT account, CAST(balance AS VARCHAR) FROM balances")
        rejects = opened.execute("SELECT seq + 1, line, byte FROM _headway_rejects ORDER BY seq")
    finally:
        opened.close()
    return (
        good == truth["good"]
        and {account: Decimal(balance) for account, balance in found} == balances
        and rejects == [(row["row"], row["line"], row["byte"]) for row in bad]
    )


def forget(target: str) -> None:
    """Take away what an import left in a server, so that the next size starts anew."""
    if "://" in target:
        opened = Address.parse(target).open()
        opened.execute("DROP TABLE IF EXISTS ledger, balances, _headway_jobs, _headway_rejects")
        opened.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], [int(given) for given in sys.argv[2:]] or [1_000_000, 10_000_000]))
