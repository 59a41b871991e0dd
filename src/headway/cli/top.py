"""`headway top`: the live runs of this machine in the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import click

from headway.text import printable
from headway.watch.glance import Glance
from headway.web.look import detail_of
from headway.web.runtime import Entry, entries

LINE_S = 5.0


@click.command("top", epilog="Example: headway top")
@click.argument("run", required=False)
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=0.5, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Look once and end.")
@click.option("--json", "as_json", is_flag=True, help="Look once and print what was seen as JSON.")
def top_command(run: str | None, every: float, once: bool, as_json: bool) -> int:
    """Show the live runs of yours on this machine, until they have ended or Ctrl-C.

    Those that were started with ui=True or --ui are seen. RUN is the id, the name or the process of one of them;
    without it all are shown. Where the output is no terminal, plain lines come every few seconds.
    """
    if not _wanted(run):
        known = ", ".join(sorted({f"{printable(entry.name)} (process {entry.pid})" for entry in entries()}))
        if run is not None and known:
            raise click.UsageError(f"there is no live run {run!r}; there are {known}")
        click.echo("there is no live run; one is seen when it is started with ui=True, or with --ui", err=True)
        return 1
    glances: dict[str, Glance] = {}
    try:
        if as_json:
            click.echo(
                json.dumps([found for entry in _wanted(run) if (found := detail_of(entry)) is not None], indent=2)
            )
            return 0
        if once:
            _tell(_look(run, glances))
            return 0
        if sys.stdout.isatty():
            _drawn(run, glances, every)
        else:
            _follow(run, glances, max(every, LINE_S), _tell)
    except KeyboardInterrupt:
        return 0
    click.echo("no run is live any more", err=True)
    return 0


def _tell(found: list[Glance]) -> None:
    for glance in found:
        click.echo(glance.line())


def _drawn(run: str | None, glances: dict[str, Glance], every: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False, screen=False) as live:
        _follow(run, glances, every, lambda found: live.update(Group(*(g.drawn() for g in found)), refresh=True))


def _follow(run: str | None, glances: dict[str, Glance], every: float, show: Callable[[list[Glance]], None]) -> None:
    """Look until there is nothing to see."""
    while found := _look(run, glances):
        show(found)
        time.sleep(every)


def _look(run: str | None, glances: dict[str, Glance]) -> list[Glance]:
    found = []
    for entry in _wanted(run):
        detail = detail_of(entry)
        if detail is not None:
            glance = glances.setdefault(entry.id, Glance())
            glance.look(detail["snapshot"])
            found.append(glance)
    return found


def _wanted(run: str | None) -> list[Entry]:
    return [entry for entry in entries() if run is None or run in (entry.id, entry.name, str(entry.pid))]
