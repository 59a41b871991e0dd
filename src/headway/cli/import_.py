"""`headway import`: files into a database. What does not belong here: the import itself."""

from __future__ import annotations

import json
from typing import Any

import click

from headway.cli.import_display import Display, summary, warn
from headway.cli.import_preview import told
from headway.errors import HeadwayError, RunErrors
from headway.importer.job import ImportJob
from headway.importer.result import TooManyRejects

REJECTS_STATUS = 3
_DELIMITERS = {"\\t": "\t", "tab": "\t"}


@click.command("import", epilog="Example: headway import transactions.csv --to bank.duckdb --key id")
@click.argument("sources", metavar="SOURCE", nargs=-1, required=True)
@click.option(
    "--to",
    "target",
    metavar="TARGET",
    required=True,
    help="bank.duckdb, bank.db, bank.sqlite, duckdb:///..., sqlite:///..., postgresql://...",
)
@click.option(
    "--table", metavar="NAME", help="Table to write; by default the file's name. Needed with several sources."
)
@click.option("--format", metavar="FORMAT", help="csv, jsonl or parquet; by default as the name tells.")
@click.option(
    "--delimiter", metavar="C", help="Between fields: one character, or tab. By default a comma; a tab for .tsv files."
)
@click.option("--quote", metavar="C", help='Around fields: one character, or none. By default ".')
@click.option("--escape", metavar="C", help="Before a quote within quotes; by default a quote is doubled.")
@click.option(
    "--encoding",
    metavar="E",
    help="utf-8, utf-16, latin-1, cp1252, ... By default UTF-8, or as a byte order mark tells.",
)
@click.option("--no-header", is_flag=True, help="The first record is a row; columns are column_1, column_2, ...")
@click.option(
    "--schema", metavar="FILE.toml", help="Types and rules of the columns; by default the types are inferred."
)
@click.option(
    "--column",
    metavar="NAME=TYPE",
    multiple=True,
    help="Type of a column: int, decimal(18,2), float, text, bool, date, timestamp, json. The name * stands for all others.",
)
@click.option("--key", metavar="COL[,COL]", help="Columns that identify a row.")
@click.option(
    "--mode",
    metavar="MODE",
    help="What a key that comes again means: append, upsert, replace, ignore, fail. By default append; fail with --key.",
)
@click.option("--keep", metavar="first|last", help="Which row of a key stays.")
@click.option(
    "--process", metavar="MODULE:FUNCTION", help="Row function: called with each row, returns what is written."
)
@click.option("--tables", metavar="FILE.toml", help="Declares tables: columns with types, key, mode, keep.")
@click.option(
    "--workers",
    metavar="N|auto",
    default="auto",
    show_default=True,
    help="Processes that parse and call the row function.",
)
@click.option(
    "--max-rejects", metavar="N|P%", help="Stop at more rejects than that, with status 3. No limit by default."
)
@click.option("--rejects", metavar="FILE.jsonl", help="Write the rows that were set aside to a file too.")
@click.option("--job", metavar="NAME", help="The job's name; by default made from source and table.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
@click.option("-v", "--verbose", is_flag=True, help="Show tables, types and every commit.")
@click.option("--restart", is_flag=True, help="Begin again: forget where the job stood. Tables keep their rows.")
@click.option("--accept-changed", is_flag=True, help="Import what was added to a file that has only grown.")
@click.option(
    "--dry-run", is_flag=True, help="Show types, first rows, plan and about how long it takes; touch no target."
)
@click.option("--ui", is_flag=True, help="Serve a page of the import while it goes on.")
def import_command(sources: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **options: Any) -> int:
    """Import CSV, JSON lines or Parquet into a DuckDB, SQLite or PostgreSQL database, in file order.

    A SOURCE is a file (plain, .gz, .bz2, .zst or .xz), a pattern in quotes, an address such as
    https://... or s3://..., or - for standard input. Several are one job.

    Rows that cannot be written are set aside with line, byte offset and reason in the table
    _headway_rejects; their neighbours are not touched. Ctrl-C finishes what was read and stops; the
    same command goes on there, and changes nothing once the file is imported.

    Status: 0 done, 1 failed, 2 usage, 3 too many rejects, 130 interrupted, 143 terminated.
    """
    if options["ui"] and options["dry_run"]:
        raise click.UsageError("--ui shows an import, and --dry-run makes none: leave one of them out")
    options = {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        if value == "":  # of a shell's variable that is not set, as a rule
            name = "to" if name == "target" else name.replace("_", "-")
            raise click.UsageError(f"--{name} is empty: give it a value, or leave it out")
    options["delimiter"] = _DELIMITERS.get(options.get("delimiter", ""), options.get("delimiter"))
    if options.get("quote") == "none":
        options["quote"] = None
    target = options.pop("target")
    with Display(quiet=quiet, verbose=verbose) as display:
        job = ImportJob(
            sources, target, begin=display.begin, advance=display.advance, stopping=display.stopping, **options
        )
        try:
            job.run()
        except (HeadwayError, KeyboardInterrupt) as error:
            display.stop()
            if job.began:
                _show(job, as_json=as_json, quiet=quiet, verbose=verbose)
            if isinstance(error, TooManyRejects):
                click.echo(f"headway: {error}", err=True)
                return REJECTS_STATUS
            if isinstance(error, RunErrors):  # each worker says the same where a `setup` fails
                for message in dict.fromkeys(map(str, error.exceptions)):
                    click.echo(f"headway: {message}", err=True)
                return 1
            if job.began:
                click.echo("The same command goes on behind the last row that was committed.", err=True)
            raise
    _show(job, as_json=as_json, quiet=quiet, verbose=verbose)
    return 0


def _show(job: ImportJob, *, as_json: bool, quiet: bool, verbose: bool) -> None:
    if job.result.preview is not None:
        preview = job.result.preview
        click.echo(json.dumps(preview.to_dict(), default=str) if as_json else told(preview))
        return
    if as_json:
        click.echo(json.dumps(job.result.to_dict(), default=repr))
        if job.result.already_finished and not quiet:
            click.echo(summary(job.result, job), err=True)
    elif not quiet:
        click.echo(summary(job.result, job))
        if verbose and job.result.report is not None:
            click.echo(str(job.result.report))
    warn(job.result)
