"""What ``headway import --dry-run`` shows. What does not belong here: finding it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.importer.preview import Preview

WIDEST = 160


def told(preview: Preview) -> str:
    """Give it as text: what goes where, the columns as a schema file, the first rows, the plan, the time."""
    lines = [f"dry run: {preview.source} -> {preview.target}; job {preview.job}; nothing was written", ""]
    lines += _tables(preview)
    source = f", inferred from the first {preview.inferred_from:,} rows" if preview.inferred_from else ""
    lines += ["", f"columns{source} (a file with this is a --schema):"]
    lines += [f"    {line}" for line in preview.schema.splitlines()]
    lines += ["", "first rows:"]
    lines += [_cut(f"    {name}: {_row(row)}") for shown in preview.rows for name, row in _rows(shown)] or ["    none"]
    if preview.rejects:
        lines += ["", "rejects among the first rows:"]
        lines += [_cut(f"    row {each['record']:,}: {each['reason']}: {each['message']}") for each in preview.rejects]
    lines += ["", "plan:"]
    lines += [f"    {stage['name']}: {stage['workers']} x {stage['on']}" for stage in preview.plan["stages"]]
    lines += ["", _estimate(preview)]
    return "\n".join(lines)


def _tables(preview: Preview) -> Iterator[str]:
    for table in preview.tables:
        columns = ", ".join(f"{name} {kind}" for name, kind in table["columns"].items())
        keep = f", keep {table['keep']}" if table["keep"] else ""
        key = f"; key {', '.join(table['key'])}" if table["key"] else ""
        yield _cut(f"table {table['name']}({columns}){key}; mode {table['mode']}{keep}")


def _rows(shown: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, rows in shown["tables"].items():
        for row in rows:
            yield name, row


def _row(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())


def _estimate(preview: Preview) -> str:
    found = preview.estimate
    if found.seconds is None or found.plain_seconds is None:
        rows = "an unknown number of rows" if found.rows is None else f"about {found.rows:,} rows"
        return f"{rows}; how long they take cannot be told before"
    text = f"about {found.rows:,} rows, about {_time(found.seconds)}"
    if found.plain_would_do:
        return f"{text}; one plain process would do as well: about {_time(found.plain_seconds)} (--workers 1)"
    return f"{text}; one plain process would take about {_time(found.plain_seconds)}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _cut(text: str) -> str:
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= WIDEST else text[:WIDEST] + "..."
