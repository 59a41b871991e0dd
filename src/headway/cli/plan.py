"""`headway plan`: what would run and why, or why it cannot.

What does not belong here: planning; `headway.core.plan` does it.
"""

from __future__ import annotations

import json

import click

from headway.cli.run import pipeline_of, workers_of


@click.command("plan", epilog="Example: headway plan jobs.py:pipeline --set parse=4")
@click.argument("reference", metavar="MODULE:PIPELINE")
@click.option("--set", "settings", metavar="STAGE=WORKERS", multiple=True, help="Number of workers of a stage.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(reference: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Show each edge of a pipeline: the order proven, the order needed, what was placed and why.

    Nothing is read and no stage is called. A pipeline that cannot work is refused, with the reason.
    """
    plan = pipeline_of(reference).with_workers(workers_of(settings)).plan()
    click.echo(json.dumps(plan.to_dict(), indent=2) if as_json else str(plan))
