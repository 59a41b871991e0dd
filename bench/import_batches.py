"""An import with a function per batch, into SQLite and PostgreSQL: against Arrow's CSV reader and ADBC's bulk ingest.

The ingest is what people write who stay in Arrow: no key, no conflicts, a bad row is dropped and its reason lost.
Needs the group `bench` of dependencies (ADBC's drivers).
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import batch_rules
from headway.cli.demo_data import write_bookings
from headway.importer.job import import_file
from import_columns import FIELDS
from measure import Table, fresh, interleave, median

ROWS = int(os.environ.get("HEADWAY_BENCH_ROWS", "1000000"))
TARGET = 1 / 0.5
FORMS = {
    "entry": "^[0-9]+$",
    "booked": "^[0-9]{4}-(0[13-9]|1[0-2])-[0-9]{2}T[0-9:]{8}$|^[0-9]{4}-02-([01][0-9]|2[0-8])T[0-9:]{8}$",
    "amount": r"^-?[0-9]{1,16}\.[0-9]{2}$",
    "balance": r"^-?[0-9]{1,16}\.[0-9]{2}$",
}
sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the server that the tests start


def ingest(source: Path, folder: Path, *, server: str | None = None) -> int:
    """Arrow and ADBC alone, in one process."""
    dbapi = import_module("adbc_driver_postgresql.dbapi" if server else "adbc_driver_sqlite.dbapi")
    connection = dbapi.connect(server or str(folder / "one.db"))
    binary = dict.fromkeys(FIELDS, pa.binary())
    reader = csv.open_csv(
        source,
        csv.ReadOptions(block_size=4 << 20),
        csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _row: "skip"),
        csv.ConvertOptions(column_types=binary, strings_can_be_null=False),
    )
    written = 0
    with connection, connection.cursor() as cursor:
        if server:
            cursor.execute("DROP TABLE IF EXISTS ingested")
        for batch in reader:
            good = good_rows(batch)
            written += len(good)
            cursor.adbc_ingest("ingested", good, mode="create_append")
        connection.commit()
    return written


def good_rows(batch: Any) -> Any:
    """Give the rows whose values are of their type, as texts but for the number."""
    masks = [pc.match_substring_regex(batch[name], form) for name, form in FORMS.items()]
    try:
        batch["note"].cast(pa.string())
    except pa.ArrowInvalid:
        masks.append(pa.array([_sound(text) for text in batch["note"].to_pylist()]))
    mask = masks[0]
    for other in masks[1:]:
        mask = pc.and_(mask, other)
    good = batch.filter(mask)
    arrays = [good[name].cast(pa.string()) for name in FIELDS]
    return pa.table([arrays[0].cast(pa.int64()), *arrays[1:]], names=list(FIELDS))


def _sound(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def headway(source: Path, folder: Path, *, server: str | None = None) -> int:
    """The import job, with a key."""
    if server:
        import psycopg

        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS ledger, _headway_jobs, _headway_rejects")
    process = f"{Path(batch_rules.__file__)}:check"
    target = server or folder / "bank.db"
    return import_file(source, target, table="ledger", column=FIELDS, key="entry", process=process).tables["ledger"]


def bench() -> Table:
    """Measure each database both ways. HEADWAY_BENCH_ROWS sets another number of rows."""
    postgres = import_module("support.postgres")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        source = Path(folder) / "bookings.csv"
        *_, _answers = write_bookings(source, ROWS)

        variants = {"ADBC, SQLite": fresh(ingest, source), "headway, SQLite": fresh(headway, source)}
        try:
            address = running.enter_context(postgres.server())
            variants["ADBC, PostgreSQL"] = fresh(partial(ingest, server=address), source)
            variants["headway, PostgreSQL"] = fresh(partial(headway, server=address), source)
        except postgres.Missing as missing:
            print(f"without PostgreSQL: {missing}")
        samples = interleave(variants, rounds=3)
    table = Table(f"import of {ROWS:,} rows with a function per batch", ("", "s", "rows/s", "rows"))
    walls = {}
    for name, found in samples.items():
        walls[name] = wall = median(sample.wall for sample in found)
        table.row(name, wall, f"{ROWS / wall:,.0f}", f"{found[0].result:,}")
    for target in ("SQLite", "PostgreSQL"):
        if f"headway, {target}" in walls:
            ratio = walls[f"headway, {target}"] / walls[f"ADBC, {target}"]
            table.judge(f"time of the ingest, {target}: {1 / ratio:.2f} x as fast, required 0.50", ratio, TARGET, "x")
    return table


if __name__ == "__main__":
    bench().show()
