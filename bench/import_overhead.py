"""What an import's guarantees cost: the checkpoint, the rejects with their places, and the order, of its wall time.

Measured inside the run, in seconds of the clock, of whichever thread it is. A commit itself is not counted: a plain
loop that writes 50,000 rows a transaction has it too. What workers do for rejects is measured on the same ranges in
this process, and divided among them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import import_rules
from headway.cli.demo_data import write_bookings
from headway.core.gate import Gate
from headway.importer.bookkeeping import Bookkeeping
from headway.importer.job import import_file
from headway.importer.limits import RejectLimit
from headway.importer.writer import ImportWriter, _Commit
from headway.io.inputs import InputFormat, Sources, open_ranges
from headway.io.ranges import Found, Ranges
from headway.machine import cores
from measure import Table, fresh, interleave, median

ROWS = int(os.environ.get("HEADWAY_BENCH_ROWS", "1000000"))
TARGET = 5.0
PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "checkpoint": ((Bookkeeping, "advance"), (Ranges, "release")),
    "rejects": ((_Commit, "rejects"), (RejectLimit, "stop"), (ImportWriter, "_record"), (Bookkeeping, "reject")),
    "order": ((Gate, "push"),),
}


@contextmanager
def timed(owner: type, name: str, spent: dict[str, float], part: str) -> Iterator[None]:
    """Add the seconds of every call of a method to a part."""
    method = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*args, **options)
        finally:
            spent[part] += time.perf_counter() - began

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, method)


def run(source: Path, folder: Path, *, target: str) -> dict[str, float]:
    """Import, and give the seconds of each part."""
    spent = dict.fromkeys(PARTS, 0.0)
    with ExitStack() as stack:
        for part, methods in PARTS.items():
            for owner, name in methods:
                stack.enter_context(timed(owner, name, spent, part))
        process = f"{Path(import_rules.__file__)}:book"
        import_file(source, folder / target, process=process, tables=import_rules.TABLES)
    return spent


def places(source: Path, _folder: Path) -> dict[str, float]:
    """Find a record of every range, as a worker does that has a reject in each."""
    ranges = open_ranges(Sources.parse(source, None).locations, InputFormat("csv"))
    spent = 0.0
    try:
        file = ranges.files[0]
        for span in ranges:
            reader = file.reader()
            data, found = reader.read(span), Found()
            records = sum(1 for _ in reader.records(data, span, found))
            began = time.perf_counter()
            at = reader.places(data, span, found.layout, found.records)
            for record in range(0, records, max(1, records // 10)):
                at[record]
            spent += time.perf_counter() - began
    finally:
        ranges.close()
    return {"rejects": spent / cores()}


def bench() -> Table:
    """Measure the parts beside the whole. HEADWAY_BENCH_ROWS sets another number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "bookings.csv"
        *_, _answers = write_bookings(source, ROWS)
        samples = interleave(
            {
                "SQLite": fresh(partial(run, target="bank.db"), source),
                "DuckDB": fresh(partial(run, target="bank.duckdb"), source),
                "places": fresh(places, source),
            },
            rounds=3,
        )
    table = Table(f"what the guarantees of an import of {ROWS:,} rows cost", ("", "s", "%"))
    in_workers = median(sample.result["rejects"] for sample in samples.pop("places"))
    for target, found in samples.items():
        wall = median(sample.wall for sample in found)
        table.row(f"{target}, all", wall, 100.0)
        total = in_workers
        for part in PARTS:
            seconds = median(sample.result[part] for sample in found)
            table.row(f"{target}, {part}", seconds, 100 * seconds / wall)
            total += seconds
        table.row(f"{target}, rejects in the workers", in_workers, 100 * in_workers / wall)
        table.judge(f"of the wall time, {target}", 100 * total / wall, TARGET, "%")
    return table


if __name__ == "__main__":
    bench().show()
