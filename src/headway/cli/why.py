"""`headway why`: the life of one item, from the trace of a run.

What does not belong here: recording; `run(trace=path)` does it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from headway.watch.ceilings import told_s
from headway.watch.recorder import life
from headway.watch.report import Report


@click.command("why", epilog="Example: headway why report.json 4711")
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why_command(report: Path, seq: int, as_json: bool) -> None:
    """Show where the row number SEQ was, for how long, and what became of it.

    REPORT is the report of a run with trace=PATH, or that trace itself. Rows are counted from 0.
    """
    failures: list[Any] = []
    path = report
    if report.read_text(encoding="utf-8")[:1] != "[":
        found = Report.from_json(report)
        failures = [f for f in found.failures if (f["seq"] if isinstance(f["seq"], int) else f["seq"][0]) == seq]
        trace = found.to_dict().get("trace")
        if trace is None and not failures:
            raise click.UsageError(
                f"{report} has no trace: run with trace='trace.json' to record the life of every item"
            )
        path = Path(trace) if trace is not None else path
        if trace is not None and not path.exists():
            raise click.UsageError(f"the trace {path} of this run is not there any more")
    calls = life(path, seq) if path != report or not failures else []
    if not calls and not failures:
        raise click.UsageError(f"there is no row {seq} in {path}")
    if as_json:
        click.echo(json.dumps({"seq": seq, "calls": calls, "failures": failures}, indent=2))
        return
    before: float | None = None
    for call in calls:
        if before is not None and call["handed_out"] - before > 1e-4:
            click.echo(f"{'':>14}  waits {told_s(call['handed_out'] - before)} in front of {call['stage']}")
        others = f" with {call['items'] - 1} others" if call["items"] > 1 else ""
        end = "fails" if seq in call["failed"] else "ends"
        attempt = f", attempt {call['attempt']}" if call["attempt"] > 1 else ""
        click.echo(
            f"{told_s(call['handed_out']):>14}  to {call['stage']}[{call['slot']}]{others}{attempt}: "
            f"begins after {told_s(max(0.0, call['started'] - call['handed_out']))}, {end} after {told_s(call['stopped'] - call['started'])}"
        )
        before = call["back"]
    for failure in failures:
        click.echo(f"{'':>14}  failed in {failure['stage']}: {failure['error']}: {failure['message']}")
