"""`headway rejects`: the rows that imports have set aside. What does not belong here: what a reject is."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import click

from headway.importer.bookkeeping import RejectRecord
from headway.importer.rejects import Rejects, opened
from headway.importer.retry import RetryResult, retry_rejects
from headway.io.location import same_file
from headway.io.target import Address

SHOWN_ROWS = 10
WIDEST = 160

_target = click.argument("target", metavar="TARGET")
_job = click.option("--job", metavar="NAME", help="Only this job's; by default all jobs'.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("rejects", epilog="Example: headway rejects show bank.duckdb")
def rejects_command() -> None:
    """Show, export or retry the rows that imports have set aside.

    They stand in the target's table _headway_rejects, each with file, line, byte, reason and raw text.
    """


@rejects_command.command(
    "show",
    short_help="How many, why, and the first of them.",
    epilog="Example: headway rejects show bank.duckdb --limit 3",
)
@_target
@_job
@click.option(
    "--limit", type=click.IntRange(min=0), default=SHOWN_ROWS, show_default=True, help="Rows to show of each job."
)
@_json
def show_command(target: str, job: str | None, limit: int, as_json: bool) -> int:
    """Show how many rows were set aside, for which reasons, and the first of them."""
    with opened(target) as rejects:
        jobs = rejects.jobs(job)
        if as_json:
            click.echo(json.dumps({"jobs": [_told(rejects, name, limit) for name in jobs]}, ensure_ascii=False))
            return 0
        if not jobs:
            click.echo(f"no rejects in {Address.parse(target)}")
        for name in jobs:
            _show(rejects, name, limit)
    return 0


@rejects_command.command(
    "export",
    short_help="Write them as JSON lines.",
    epilog="Example: headway rejects export bank.duckdb --output rejects.jsonl",
)
@_target
@_job
@click.option(
    "--output", "-o", metavar="FILE", default="-", help="Where to; by default standard output. A file is replaced."
)
def export_command(target: str, job: str | None, output: str) -> int:
    """Write the rejects as JSON lines, with the columns of the table _headway_rejects.

    raw_bytes, where there are any, are in base 64.
    """
    database = Address.parse(target).path
    if database is not None and same_file(Path(output), database):
        raise click.UsageError(f"--output {output} is the target: it would be replaced; name a file of its own")
    with opened(target) as rejects, ExitStack() as stack:
        jobs = rejects.jobs(job)
        count = 0
        try:
            into = _opened(output, stack)
            for name in jobs:
                for record in rejects.lines(name):
                    into.write(json.dumps(record, ensure_ascii=False) + "\n")
                    count += 1
            into.flush()
        except BrokenPipeError:  # whoever read has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            raise click.UsageError(f"--output {output}: {error.strerror}") from None
    click.echo(f"{count:,} rejects written", err=True)
    return 0


@rejects_command.command(
    "retry",
    short_help="Try them again, from their raw text.",
    epilog="Example: headway rejects retry bank.duckdb --job transactions",
)
@_target
@_job
@click.option(
    "--process",
    metavar="MODULE:FUNCTION",
    help="Row function to use; by default that of the job, as its code is now.",
)
@_json
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
def retry_command(target: str, job: str | None, process: str | None, as_json: bool, quiet: bool) -> int:
    """Try the rejects again, after a row function, a service or a table was mended.

    The file that they came from is not read: the raw text in the table is. A row that passes is written
    and leaves the table of rejects in one transaction; one that fails again stays, with its new reason
    and a higher attempt. Rows are written where they come now, behind what the tables hold.

    Status: 0 done, also where rows were rejected again; 1 failed, 2 usage.
    """
    with opened(target) as rejects:
        jobs = rejects.jobs(job)
    address = Address.parse(target)

    def advance(result: RetryResult) -> None:
        if not quiet:
            click.echo(f"job {result.job}: {result.tried:,} tried, {result.rejected:,} rejected again", err=True)

    results = [retry_rejects(address, name, process=process, advance=advance) for name in jobs]
    if as_json:
        click.echo(json.dumps({"jobs": [result.to_dict() for result in results]}, ensure_ascii=False))
    elif not quiet:
        if not results:
            click.echo(f"no rejects in {address}")
        for result in results:
            _sum_up(result)
    return 0


def _opened(output: str, stack: ExitStack) -> TextIO:
    return sys.stdout if output == "-" else stack.enter_context(Path(output).open("w", encoding="utf-8"))


def _told(rejects: Rejects, job: str, limit: int) -> dict[str, Any]:
    reasons = [reason._asdict() for reason in rejects.reasons(job)]
    rows = [{"attempt": attempt} | _plain(record) for attempt, record in rejects.records(job, limit)]
    return {"job": job, "rejects": sum(reason["rows"] for reason in reasons), "reasons": reasons, "rows": rows}


def _plain(record: RejectRecord) -> dict[str, Any]:
    told = record._asdict()
    del told["raw_bytes"]  # as text it is in `raw`; the bytes are for `export`
    return told


def _show(rejects: Rejects, job: str, limit: int) -> None:
    reasons = rejects.reasons(job)
    count = sum(reason.rows for reason in reasons)
    click.echo(f"job {job}: {count:,} rejects")
    for reason in reasons:
        click.echo(f"  {reason.rows:,} {reason.reason} ({reason.stage})")
    shown = rejects.records(job, limit)
    for attempt, record in shown:
        tried = f", attempt {attempt}" if attempt > 1 else ""
        click.echo(f"{record.file}, line {record.line:,}, byte {record.byte:,}{tried}: {record.reason}")
        if record.message:
            click.echo(f"    {_cut(record.message)}")
        click.echo(f"    | {_cut(record.raw)}")
    if count > len(shown) > 0:
        click.echo(f"and {count - len(shown):,} more: headway rejects export, or --limit {count}")


def _sum_up(result: RetryResult) -> None:
    click.echo(
        f"job {result.job}: tried {result.tried:,} = written {result.written:,} + rejected {result.rejected:,} "
        f"+ skipped {result.skipped:,} + filtered {result.filtered:,}"
    )
    for reason, rows in result.reasons.most_common():
        click.echo(f"  rejected again: {rows:,} {reason}")
    if result.overwritten and result.written:
        click.echo(
            f"warning: in {', '.join(result.overwritten)} a later row overwrites an earlier one; the rows that were "
            "retried count as the latest",
            err=True,
        )


def _cut(text: str) -> str:
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= WIDEST else text[:WIDEST] + "..."
