"""`headway what-if`: predictions from the report of a finished run.

What does not belong here: how they are made; `Report.what_if` does it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import headway.pipeline  # noqa: F401 - brings the simulation that predictions use
from headway import Report
from headway.cli.run import workers_of


@click.command("what-if", epilog="Example: headway what-if report.json --set parse=4 --target 5000")
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--set", "settings", metavar="STAGE=WORKERS", multiple=True, help="Number of workers of a stage.")
@click.option("--target", type=click.FloatRange(min=0, min_open=True), metavar="RATE", help="Rows a second to reach.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def what_if_command(report: Path, settings: tuple[str, ...], target: float | None, as_json: bool) -> None:
    """Predict what other numbers of workers would have given, from REPORT (made by report.to_json).

    Without --set or --target: the three changes that give most. Exit status 1 if the target cannot be reached.
    """
    found = Report.from_json(report)
    answer: dict[str, Any] = {"rate": found.steady.rate or found.rate}
    lines = [f"{found.name}: {answer['rate']:,.4g} rows/s" if answer["rate"] else f"{found.name}: no rate"]
    status = 0
    try:
        if settings:
            workers = workers_of(settings)
            made = found.what_if(workers)
            answer["prediction"] = asdict(made)
            lines.append(f"{', '.join(f'{name}={count}' for name, count in workers.items())}: {made}")
        if target is not None:
            needed = found.workers_for(target)
            if isinstance(needed, dict):
                answer["workers"] = needed
                told = ", ".join(f"{name}={count}" for name, count in needed.items()) or "what it had"
                lines.append(f"for {target:,.4g} rows/s: {told}")
            else:
                answer["unreachable"], status = asdict(needed), 1
                lines.append(str(needed))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not settings and target is None:
        answer["what_if"], answer["advice"] = list(found.what_if), found.advice
        lines += [
            f"{row['change']}: {row['rate']:,.4g} rows/s ({row['gain']:+.0%}), then {row['next_bottleneck']}"
            for row in found.what_if
        ]
        lines += found.advice
    click.echo(json.dumps(answer, indent=2) if as_json else "\n".join(lines))
    if status:
        raise SystemExit(status)
