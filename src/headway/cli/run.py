"""`headway run`: a pipeline from a module or file, run to its end.

What does not belong here: how a run is stopped or reported; the library does both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from inspect import isroutine, signature
from typing import Any

import click

from headway import HeadwayError, Pipeline, RunError
from headway.cli.reference import resolve
from headway.loading import where

HALF, WHOLE = 50, 100
"""Percent."""


def pipeline_of(reference: str) -> Pipeline[Any]:
    """Give the pipeline that `MODULE:NAME` names, or that the function of that name returns."""
    found = resolve(reference)
    if isroutine(found):
        found = _call(found, reference)
    if not isinstance(found, Pipeline):
        raise click.UsageError(
            f"{reference} is of type {type(found).__name__}; a Pipeline is needed, or a function that returns one"
        )
    return found


def _call(function: Callable[..., object], reference: str) -> object:
    try:
        signature(function).bind()
    except TypeError as error:
        raise click.UsageError(f"{reference} is a function that needs arguments ({error}), not a Pipeline") from None
    try:
        return function()
    except (click.ClickException, HeadwayError):
        raise
    except Exception as error:
        raise click.ClickException(f"{reference} failed: {where(error)}") from error


def workers_of(settings: Iterable[str]) -> dict[str, int]:
    """Read `stage=workers` pairs."""
    workers = {}
    for setting in settings:
        stage, equals, number = setting.rpartition("=")
        if not equals or not stage or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise click.BadParameter(
                f"{setting!r} is not of the form STAGE=WORKERS with a whole number from 1, as in parse=4",
                param_hint="--set",
            )
        workers[stage] = int(number)
    return workers


def _study(text: str | None) -> tuple[str, float] | None:
    if text is None:
        return None
    stage, _, percent = text.partition("=")
    if percent and not (percent.isascii() and percent.isdigit() and 0 < int(percent) < WHOLE):
        raise click.BadParameter(
            f"{text!r} is not of the form STAGE or STAGE=PERCENT with a whole number from 1 to 99, as in parse=50",
            param_hint="--study",
        )
    return stage, int(percent or HALF) / WHOLE


@click.command("run", epilog="Example: headway run jobs.py:pipeline --set parse=4")
@click.argument("reference", metavar="MODULE:PIPELINE")
@click.option("--set", "settings", metavar="STAGE=WORKERS", multiple=True, help="Number of workers of a stage.")
@click.option("--inline", is_flag=True, help="Run every stage on one thread, for a debugger.")
@click.option("--job", metavar="NAME", help="Go on where the run of this name stopped.")
@click.option("--checkpoint", metavar="FILE", help="Where to keep how far it came, if its sink cannot.")
@click.option("--accept-changed", is_flag=True, help="Go on although the source has changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and no report unless --json asks for it.")
@click.option("--ui", is_flag=True, help="Serve a page of the run while it goes on.")
@click.option(
    "--study", metavar="STAGE[=PERCENT]", help="Measure what shorter calls of a stage would give (by 50 percent)."
)
def run_command(
    reference: str,
    settings: tuple[str, ...],
    inline: bool,
    job: str | None,
    checkpoint: str | None,
    accept_changed: bool,
    as_json: bool,
    quiet: bool,
    ui: bool,
    study: str | None,
) -> None:
    """Run a pipeline to its end and print its report.

    MODULE is a dotted name or the path of a Python file, PIPELINE the name of a Pipeline in it or of
    a function that returns one. Ctrl-C finishes what was read and stops; a second one stops at once. With
    --job or --checkpoint the same command goes on where the last one stopped, however it ended.
    """
    pipeline = pipeline_of(reference).with_workers(workers_of(settings))
    how: dict[str, Any] = {
        "progress": not (quiet or inline),  # a debugger needs the terminal for itself
        "ui": ui, "job": job, "checkpoint": checkpoint, "accept_changed": accept_changed,
        "study": _study(study),
    }  # fmt: skip
    if inline:
        how["mode"] = "inline"
    try:
        report = pipeline.run(**how)
    except (RunError, KeyboardInterrupt) as error:
        _show(getattr(error, "report", None), as_json=as_json, quiet=quiet)
        raise
    _show(report, as_json=as_json, quiet=quiet)


def _show(report: Any, *, as_json: bool, quiet: bool) -> None:
    if report is None:
        return
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2, default=repr))
    elif not quiet:
        click.echo(str(report))
