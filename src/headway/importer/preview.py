"""What an import would do, without touching its target: types, first rows, plan, and how long it may take.

The row function is called for the rows of a sample. What does not belong here: the import.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import Any

from headway.errors import PlanError
from headway.importer.declare import Binding
from headway.importer.lookup import Lookup, finder
from headway.importer.lookup_process import found_of
from headway.importer.rowstep import Fault, KeyStep, Known, RowJob, RowStep
from headway.importer.schema import Schema
from headway.io.chunk import Record, chunked
from headway.io.ranges import Ranges
from headway.io.table import Table
from headway.loading import where

SHOWN_ROWS = 5
TIMED_ROWS = 1_000
"""Rows for which the row function is called, to see how long it takes; with look-ups only those that are shown."""
WRITE_S = {"sqlite": 3e-6, "duckdb": 5e-6, "postgresql": 4e-6}
"""About how long the writer takes for an output row."""
START_S = 0.7
"""About how long processes take to begin."""
PLAIN_WOULD_DO = 1.3
"""How much longer one plain process may take until it would not do."""


@dataclass(slots=True)
class Estimate:
    """Source rows in all, and seconds for them: with the plan, and in one plain process. None where the size is not known."""

    rows: int | None
    seconds: float | None
    plain_seconds: float | None
    plain_would_do: bool | None


@dataclass(slots=True)
class Preview:
    """What would be done. `rows` and `rejects` are those of the sample, the first few of them."""

    job: str
    source: str
    target: str
    tables: list[dict[str, Any]]
    columns: list[dict[str, Any]]
    inferred_from: int
    schema: str
    """the columns as TOML, as ``--schema`` reads them"""
    plan: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    estimate: Estimate = field(default_factory=lambda: Estimate(None, None, None, None))

    def to_dict(self) -> dict[str, Any]:
        """Give what ``--dry-run --json`` prints."""
        return asdict(self)


class NoTarget:
    """Stands for a target that must not be touched: it has no table."""

    def describe(self, table: str) -> None:
        """Know no table."""

    def holds(self, column: object, existing: object) -> bool:
        """Hold everything."""
        return True


def describe(binding: Binding, schema: Schema, *, job: str, source: str, target: str) -> Preview:
    """Give what can be said without reading rows."""
    return Preview(
        job, source, target, [_table(table) for table in binding.tables], [field.to_dict() for field in schema.fields],
        schema.inferred, _toml(schema),
    )  # fmt: skip


def try_sample(
    preview: Preview, job: RowJob, ranges: Ranges, *, unit: str, lookups: Mapping[str, Lookup], workers: int
) -> None:
    """Make rows of the first records, as the workers would, and judge by the time how long all may take."""
    sample = ranges.sample()
    records = list(enumerate(sample[: SHOWN_ROWS if lookups else TIMED_ROWS]))
    faults, filtered = dict[int, Fault](), array("q")
    with redirect_stdout(sys.stderr):
        try:
            step = RowStep(job)
        except Exception as error:  # what the module's setup() does is the user's
            raise PlanError(f"the row function's setup() raised {where(error)}") from error
        try:
            known = _looked_up(job, records, lookups)
            before = time.perf_counter()
            step.offer(chunked(records[:SHOWN_ROWS]), faults, filtered, known)
            outputs = step.outputs(SHOWN_ROWS)
            if records[SHOWN_ROWS:]:
                step.offer(chunked(records[SHOWN_ROWS:]), faults, filtered, known)
            step.take(faults)
            seconds = time.perf_counter() - before
        finally:
            step.close()
    preview.rows = [{"record": record, "tables": made} for record, made in outputs.items() if record not in faults]
    for record, fault in sorted(faults.items())[:SHOWN_ROWS]:
        preview.rejects.append({"record": record} | fault._asdict())
    total = _rows_about(ranges, len(sample), unit)
    if total is not None and records and not lookups:
        preview.estimate = _estimate(total, seconds / len(records), job, workers)
    else:  # how long a service takes for the distinct keys of a file, a sample does not tell
        preview.estimate = Estimate(total, None, None, None)


def _rows_about(ranges: Ranges, sampled: int, unit: str) -> int | None:
    """Give the rows of all files: exactly where they say it, else by the size of those in the sample."""
    if ranges.size is None or unit == "rows":
        return ranges.size
    first = ranges.read(1)
    taken = first[0].end - first[0].start if first else 0
    return round(sampled * (ranges.size - first[0].start) / taken) if taken else 0


def _estimate(total: int, each: float, job: RowJob, workers: int) -> Estimate:
    write, cores = WRITE_S[job.target] * len(job.tables), len(os.sched_getaffinity(0))
    with_plan = START_S + total * max(each / min(workers, cores), write, (each + write) / cores)
    plain = total * (each + write)
    return Estimate(total, with_plan, plain, plain <= PLAIN_WOULD_DO * with_plan)


def _looked_up(job: RowJob, records: Sequence[Record], lookups: Mapping[str, Lookup]) -> list[dict[Any, Known]]:
    if not lookups:
        return []
    keys = KeyStep(job)
    keys.offer(chunked(records), {}, array("q"))

    async def find() -> list[dict[Any, Known]]:
        asked = zip(lookups.values(), keys.keys, strict=True)
        return [found_of(lookup, await finder(lookup).find(wanted)) for lookup, wanted in asked]

    return asyncio.run(find())


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "columns": {column.name: str(column.type) for column in table.columns},
        "key": list(table.key),
        "mode": table.mode,
        "keep": table.keep,
    }


def _toml(schema: Schema) -> str:
    lines = ["[columns]"]
    for each in schema.fields:
        told = each.to_dict()
        rules = {
            name: told[name]
            for name in ("type", "required", "unique", "min", "max", "pattern", "nulls")
            if name in told
        }
        value = (
            _value(rules["type"])
            if len(rules) == 1
            else "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in rules.items()) + " }"
        )
        lines.append(f"{_value(each.name)} = {value}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Write a text, a boolean or a list of texts as TOML; a text of JSON is one of TOML too."""
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=True)
