"""The group `headway`, its exit statuses, and how an error is shown.

What does not belong here: the options of a subcommand; those live in the subcommand's own file,
which is imported only when it is asked for.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from enum import IntEnum
from importlib import import_module
from importlib.metadata import version as version_of
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from headway.errors import HeadwayError, InternalError, PlanError, RunErrors, WorkerDied

COMMANDS = {
    "import": (
        "headway.cli.import_:import_command",
        "Import files into a database, in file order.",
    ),
    "rejects": ("headway.cli.rejects:rejects_command", "Show, export or retry the rows that imports set aside."),
    "run": ("headway.cli.run:run_command", "Run a pipeline from a Python file or module."),
    "plan": ("headway.cli.plan:plan_command", "Show what would run, and why."),
    "simulate": ("headway.cli.simulate:simulate_command", "Run a pipeline given as times on a virtual clock."),
    "what-if": ("headway.cli.what_if:what_if_command", "Predict what other numbers of workers would give."),
    "check": ("headway.cli.check:check_command", "Look for results that depend on timing."),
    "why": ("headway.cli.why:why_command", "Show the life of one item."),
    "ui": ("headway.cli.ui:ui_command", "Serve the page: live runs, finished runs, the visualizer."),
    "top": ("headway.cli.top:top_command", "Show live runs in the terminal."),
    "demo": ("headway.cli.demo:demo_command", "Generate a file, import it, check every row."),
}
"""Subcommand -> where it is defined, and the line of it that `headway --help` shows."""


class Exit(IntEnum):
    """The exit statuses of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REJECTS = 3
    """stopped at, or done with, more rejects than allowed"""
    INTERRUPTED = 130
    TERMINATED = 143


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only when that subcommand is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and give one subcommand; None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"headway {version_of('headway')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: headway import transactions.csv --to bank.duckdb",
)
@click.option("--debug", is_flag=True, help="Show Python's traceback of an error.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def headway(debug: bool) -> None:
    """Concurrent pipelines that keep order, lose nothing and tell the truth about speed."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status.

    A user's mistake gives one message on standard error, never a traceback; `--debug` (or
    HEADWAY_DEBUG=1) shows the traceback too. A defect of Headway itself always shows it.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    before_command = takewhile(lambda argument: argument.startswith("-"), arguments)
    debug = "--debug" in before_command or os.environ.get("HEADWAY_DEBUG", "") not in {"", "0"}
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(_status_of(arguments, debug=debug))


def _status_of(arguments: list[str], *, debug: bool) -> int:
    try:
        result: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except click.ClickException as error:
        _show(error.__cause__, debug=debug)
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        _show(error, debug=debug)
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except InternalError:
        raise
    except HeadwayError as error:
        _show(error, debug=debug)
        several = "several things failed:\n" if isinstance(error, RunErrors) else ""
        click.echo(f"headway: {several}{_message(error)}", err=True)
        return _exit_of(error)
    return result if isinstance(result, int) else Exit.DONE


def _exit_of(error: HeadwayError) -> Exit:
    if isinstance(error, PlanError):
        return Exit.USAGE
    if getattr(error, "signal", None) == signal.SIGTERM and not isinstance(error, WorkerDied):
        return Exit.TERMINATED
    return Exit.FAILED


def _message(error: HeadwayError) -> str:
    if isinstance(error, RunErrors):
        return "\n".join(f"{number}. {each}" for number, each in enumerate(error.exceptions, 1))
    return str(error) or type(error).__name__


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning of ours as a message, and one of anyone else's as Python does."""
    ours = Path(filename).is_relative_to(Path(__file__).parents[1])
    text = (
        f"headway: warning: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    )
    (file or sys.stderr).write(text)


def _show(error: BaseException | None, *, debug: bool) -> None:
    if debug and error is not None:
        import traceback

        traceback.print_exception(error)
