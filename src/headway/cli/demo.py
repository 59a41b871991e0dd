"""`headway demo`: makes a file, imports it into DuckDB, and checks every row of the result.

What does not belong here: the file's content (`demo_data`), the row function (`demo_rules`).
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headway.cli.demo_data import Answers, Fault, line_of_ledger, money, write_bookings
from headway.cli.demo_rules import TABLES
from headway.cli.import_display import Display, summary
from headway.importer.job import ImportJob
from headway.io.target import Address, Target


@click.command("demo", epilog="Example: headway demo --rows 100000")
@click.option("--rows", type=click.IntRange(min=0), default=1_000_000, show_default=True, help="Rows to generate.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder for the file and the database; by default a new one.",
)
@click.option("--ui", is_flag=True, help="Serve a page of the import while it goes on.")
def demo_command(rows: int, folder: Path | None, ui: bool) -> int:
    """Generate a sample file, import it into DuckDB in file order, and check the result.

    The file holds bookings of a small bank: some faulty rows, quoted line breaks, several alphabets.
    The import writes a ledger and the latest balance per account. Then every row of both tables and
    every reject is compared with what the generator knows. Status 1 if anything differs.
    """
    file, bank = _places(folder)
    began = time.monotonic()
    answers = _generate(file, rows)
    click.echo(f"{file}: {answers.rows:,} rows, {answers.bytes:,} bytes, {time.monotonic() - began:.1f} s")
    with Display(quiet=False, verbose=False, resumable=False) as display:
        job = ImportJob(
            file, bank, process="headway.cli.demo_rules:book", tables=TABLES, job="demo", ui=ui,
            begin=display.begin, advance=display.advance, stopping=display.stopping,
        )  # fmt: skip
        result = job.run()
    if result.report is not None:
        click.echo(str(result.report))
    click.echo(summary(result, job))
    wrong = list(_check(bank, answers))
    for what in wrong:
        click.echo(f"WRONG: {what}", err=True)
    if wrong:
        return 1
    click.echo(
        f"checked: all {answers.good:,} ledger rows, in file order; {len(answers.balances):,} balances; "
        f"{len(answers.faults):,} rejects by line, byte and reason: every one is right"
    )
    click.echo(f"{bank} is yours to look at ({time.monotonic() - began:.1f} s in all)")
    return 0


def _places(folder: Path | None) -> tuple[Path, Path]:
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="headway-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--dir {folder}: {error.strerror}") from None
    file, bank = folder / "bookings.csv", folder / "bank.duckdb"
    for path in (file, bank):
        if path.exists():
            raise click.UsageError(f"{path} is there already; choose another --dir, or remove it")
    return file, bank


def _generate(file: Path, rows: int) -> Answers:
    answers = Answers()
    with click.progressbar(length=rows, label="generating", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for answers in write_bookings(file, rows):
            bar.update(answers.rows - bar.pos)
    return answers


def _check(bank: Path, answers: Answers) -> Iterator[str]:
    """Compare the database with the answers; give what differs."""
    target = Address("duckdb", str(bank)).open()
    try:
        yield from _check_ledger(target, answers)
        yield from _check_balances(target, answers)
        yield from _check_rejects(target, answers)
    finally:
        target.close()


def _check_ledger(target: Target, answers: Answers) -> Iterator[str]:
    digest, count = hashlib.sha256(), 0
    columns = "entry, account, strftime(booked, '%Y-%m-%dT%H:%M:%S'), amount::VARCHAR, balance::VARCHAR, note"
    for row in target.rows(f"SELECT {columns} FROM ledger ORDER BY rowid"):  # noqa: S608 - the columns above
        digest.update(line_of_ledger(*row))
        count += 1
    if count != answers.good:
        yield f"the ledger has {count:,} rows, expected {answers.good:,}"
    elif digest.hexdigest() != answers.ledger:
        yield "the ledger's rows are not those of the file in their order"


def _check_balances(target: Target, answers: Answers) -> Iterator[str]:
    sql = (
        "SELECT account, balance::VARCHAR, (SELECT count(*) FROM ledger l WHERE l.account = b.account) FROM balances b"
    )
    found = {account: (balance, count) for account, balance, count in target.rows(sql)}
    expected = {account: (money(cents), count) for account, (cents, count) in answers.balances.items()}
    yield from _difference("balance of account", found, expected)


def _check_rejects(target: Target, answers: Answers) -> Iterator[str]:
    sql = "SELECT seq, line, byte, reason FROM _headway_rejects ORDER BY seq"
    found = {row[0]: Fault(*row) for row in target.rows(sql)}
    yield from _difference("reject of row", found, {fault.seq: fault for fault in answers.faults})


def _difference(what: str, found: dict[Any, Any], expected: dict[Any, Any]) -> Iterator[str]:
    wrong = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    if wrong:
        key = min(wrong)
        yield f"{len(wrong):,} differ; {what} {key}: found {found.get(key)}, expected {expected.get(key)}"
