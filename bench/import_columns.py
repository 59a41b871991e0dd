"""An import without a row function, into DuckDB: against its own `read_csv` in one INSERT.

The one statement is what people write: types in `read_csv`, rejects stored, conflicts ignored. It is not exact: which
of two rows with one key stays is left to chance, what is refused is a row per column, and a kill leaves nothing.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from headway.cli.demo_data import write_bookings
from headway.importer.job import import_file
from measure import Table, fresh, interleave, median

ROWS = int(os.environ.get("HEADWAY_BENCH_ROWS", "10000000"))
"""The size that the target is set for; of a million rows a fifth of the time is starting up."""
TARGET = 1 / 0.6
COLUMNS = {
    "entry": ("int", "BIGINT"),
    "account": ("text", "VARCHAR"),
    "booked": ("timestamp", "TIMESTAMP"),
    "amount": ("decimal(18,2)", "DECIMAL(18,2)"),
    "balance": ("decimal(18,2)", "DECIMAL(18,2)"),
    "note": ("text", "VARCHAR"),
}
FIELDS = {name: given for name, (given, _) in COLUMNS.items()}


def one_statement(source: Path, folder: Path) -> int:
    """DuckDB alone, with all its threads."""
    import duckdb

    connection = duckdb.connect(str(folder / "one.duckdb"))
    types = ", ".join(f"{name} {stored}" for name, (_, stored) in COLUMNS.items())
    connection.execute(f"CREATE TABLE ledger ({types}, PRIMARY KEY (entry))")
    given = ", ".join(f"'{name}': '{stored}'" for name, (_, stored) in COLUMNS.items())
    connection.execute(
        f"INSERT INTO ledger SELECT * FROM read_csv('{source}', header = true, auto_detect = false, delim = ',',"  # noqa: S608 - names from above
        f" quote = '\"', escape = '\"', columns = {{{given}}}, store_rejects = true) ON CONFLICT DO NOTHING"
    )
    connection.execute("CREATE TABLE rejects AS SELECT line, error_type, csv_line FROM reject_errors")
    found = connection.execute("SELECT count(*) FROM ledger").fetchone()
    connection.close()
    return int(found[0]) if found else 0


def headway(source: Path, folder: Path) -> int:
    """The import job."""
    return import_file(source, folder / "bank.duckdb", table="ledger", column=FIELDS, key="entry").tables["ledger"]


def bench() -> Table:
    """Measure both, in some five minutes. HEADWAY_BENCH_ROWS sets another number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "bookings.csv"
        *_, _answers = write_bookings(source, ROWS)

        samples = interleave(
            {"one statement": fresh(one_statement, source), "headway": fresh(headway, source)}, rounds=3
        )
    table = Table(f"import of {ROWS:,} rows without a row function, into DuckDB", ("", "s", "rows/s", "rows"))
    walls = {}
    for name, found in samples.items():
        walls[name] = wall = median(sample.wall for sample in found)
        table.row(name, wall, f"{ROWS / wall:,.0f}", f"{found[0].result:,}")
    ratio = walls["headway"] / walls["one statement"]
    table.judge(f"time of the one statement: {1 / ratio:.2f} x as fast, required 0.60, aim 0.70", ratio, TARGET, "x")
    return table


if __name__ == "__main__":
    bench().show()
