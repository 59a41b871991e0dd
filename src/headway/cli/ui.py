"""`headway ui`: the page in front: live runs of this machine, finished runs, the visualizer."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click


@click.command("ui", epilog="Example: headway ui report.json")
@click.argument(
    "files", metavar="[REPORT.json|TRACE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--at", "where", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
    help="Where to serve. Port 0: any that is free. An address that other machines reach needs the token that is printed.",
)  # fmt: skip
@click.option("--open", "browser", is_flag=True, help="Open it in a browser.")
def ui_command(files: tuple[Path, ...], where: str, browser: bool) -> int:
    """Serve the page until Ctrl-C.

    It lists the runs of yours on this machine that were started with ui=True or --ui, opens reports and traces of finished
    ones, and simulates pipelines that are only described.
    """
    from headway.web.server import Server, check_extra

    check_extra()
    from headway.web.recorded import RecordedRun

    server = Server([RecordedRun(file) for file in files], where, everywhere=True)
    click.echo(f"page at {server.url} (Ctrl-C ends it)")
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve()
    except KeyboardInterrupt:
        click.echo("ended", err=True)
    return 0
