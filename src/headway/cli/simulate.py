"""`headway simulate`: a pipeline given as times, run on a virtual clock.

What does not belong here: the simulation; `Pipeline.simulate` does it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import click

from headway import Pipeline
from headway.cli.staircase import drawing, utilisation
from headway.watch.ceilings import told_s

UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}
STAGE = re.compile(r"([^=\s]+)=([0-9.]+(?:e-?[0-9]+)?)(us|µs|ms|s|m)?(?:\*([0-9]+))?")
DRAWN_ROWS = 6


def stages_of(text: str) -> list[tuple[str, float, int]]:
    """Read "read=2ms process=4ms*3": name, seconds of a call, workers."""
    found: list[tuple[str, float, int]] = []
    for word in text.replace(",", " ").split():
        match = STAGE.fullmatch(word)
        try:
            if match is None or int(match[4] or 1) < 1:
                raise ValueError
            name, seconds = match[1], float(match[2]) * UNITS[match[3] or ""]
        except ValueError:
            raise click.UsageError(
                f"{word!r} is not of the form NAME=TIME or NAME=TIME*WORKERS, as in process=4ms*3; units are us, ms, s and m"
            ) from None
        if name in [stage[0] for stage in found]:
            raise click.UsageError(f"there are two stages {name!r}; give each a name of its own")
        found.append((name, seconds, int(match[4] or 1)))
    if not found:
        raise click.UsageError('give at least one stage, as in "read=2ms parse=1ms process=4ms*3 write=3ms"')
    return found


def _same(value: Any) -> Any:
    return value


@click.command("simulate", epilog='Example: headway simulate "read=2ms parse=1ms process=4ms*3 write=3ms" --items 1000')
@click.argument("stages")
@click.option("--items", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows to run.")
@click.option("--queue", type=click.IntRange(min=1), help="Most items that wait in front of a stage.")
@click.option("--jitter", type=click.Choice(["none", "exp"]), default="none", show_default=True,
              help="exp: times are exponentially distributed, with the means given.")  # fmt: skip
@click.option(
    "--order", type=click.Choice(["input", "none"]), default="input", show_default=True, help="Of the output."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write a page with the report.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def simulate_command(
    stages: str, items: int, queue: int | None, jitter: str, order: str, seed: int, page: Path | None, as_json: bool
) -> None:
    """Run a pipeline given as times on a virtual clock: the real engine, and nothing is called.

    STAGES are NAME=TIME or NAME=TIME*WORKERS, from the first to the last. Shows when each of the first rows
    is where, how busy each stage is, and the rates.
    """
    read = stages_of(stages)
    pipeline: Pipeline[Any] = Pipeline(list[int](), name="simulated").ordered(order)  # type: ignore[arg-type]
    for name, _, workers in read:
        pipeline = pipeline.map(_same, name=name, workers=workers, queue=queue)
    times: dict[str, Any] = {name: _draw(seconds) if jitter == "exp" else seconds for name, seconds, _ in read}
    report = pipeline.simulate(times, items=items, seed=seed)
    names = [name for name, *_ in read]
    drawn = drawing(names, [call for call in report.calls if call[0] in names and call[2] < DRAWN_ROWS])
    if page is not None:
        page.write_text(_page(stages, drawn, report), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    click.echo("\n".join([*drawn, "", *utilisation(report), "", *_rates(report, read)]))
    if page is not None:
        click.echo(f"written: {page}")


def _draw(mean: float) -> Any:
    def draw(rng: Random, _value: Any) -> float:
        return rng.expovariate(1 / mean) if mean > 0 else 0.0

    return draw


def _rates(report: Any, read: list[tuple[str, float, int]]) -> list[str]:
    alone = sum(seconds for _, seconds, _ in read)
    rate, neck = report.steady.rate or report.rate, report.bottleneck
    out = [f"a row alone takes {told_s(alone)}; {report.items.read:,} rows took {told_s(report.elapsed)}"]
    if rate:
        steady = "in steady state" if report.steady.rate else "over all (too short for a steady rate)"
        out.append(f"{rate:,.4g} rows/s {steady}: one every {told_s(1 / rate)}, {rate * alone:.2f} x a plain loop")
    if report.fill is not None:
        out.append(f"first row out after {told_s(report.fill)}; drain {told_s(report.drain)}")
    if neck is not None:
        out.append(f"bottleneck: {neck.stage} ({neck.verdict}): {neck.because}")
    out += [
        f"{row.change}: {row.rate:,.4g} rows/s ({row.gain:+.0%}), then {row.next_bottleneck}" for row in report.what_if
    ]
    return out


def _page(stages: str, drawn: list[str], report: Any) -> str:
    from html import escape

    return (
        '<!doctype html><meta charset="utf-8"><title>headway simulate</title>'
        "<style>body{font:14px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:left}</style>"
        f"<h1>{escape(stages)}</h1><pre>{escape(chr(10).join(drawn))}</pre>{report._repr_html_()}\n"
    )
