"""`headway check`: explore the schedules of a pipeline, and replay one from its seed.

What does not belong here: exploring; `headway.testing` does it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from headway import Pipeline
from headway.cli.reference import resolve
from headway.loading import where
from headway.testing import explore


@click.command("check", epilog="Example: headway check jobs.py:pipeline --schedules 500")
@click.argument("reference", metavar="MODULE:NAME")
@click.option("--schedules", type=click.IntRange(min=1), default=500, show_default=True, help="Schedules to run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first schedule; the others follow.")
@click.option("--replay", type=int, metavar="SEED", help="Run the one schedule of this seed.")
@click.option("--faults", is_flag=True, help="Kill workers of process stages too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(reference: str, schedules: int, seed: int, replay: int | None, faults: bool, as_json: bool) -> None:
    """Run a pipeline with its own functions under many schedules, on a virtual clock.

    NAME is a Pipeline over a source that can be read again, or a function without arguments that returns one, or
    (Pipeline, verify); it is called for each schedule. A schedule whose outputs are not those of one thread, or
    for which verify(report) raises AssertionError, is shown with the calls that matter. Exit status 1 then.
    """
    found = resolve(reference)
    if not (isinstance(found, Pipeline) or callable(found)):
        raise click.UsageError(
            f"{reference} is of type {type(found).__name__}; a Pipeline is needed, or a function that returns one"
        )
    first, count = (seed, schedules) if replay is None else (replay, 1)

    def make() -> Any:
        if isinstance(found, Pipeline):
            return found
        try:
            return found()
        except TypeError as error:
            raise click.ClickException(f"{reference} failed: {where(error)}") from error

    result = explore(make, schedules=count, seed=first, faults=faults)
    if as_json:
        click.echo(
            json.dumps({"schedules": result.schedules, "failures": [asdict(f) for f in result.failures]}, indent=2)
        )
    else:
        click.echo(str(result))
        for number in result.seeds if replay is None else ():
            click.echo(f"to see it again: headway check {reference} --replay {number}")
    if result.failures:
        raise SystemExit(1)
