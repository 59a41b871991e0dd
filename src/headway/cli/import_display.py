"""What an import shows while it runs and when it ends. What does not belong here: options, counting."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import click

from headway.importer.job import ImportJob
from headway.importer.result import ImportResult
from headway.importer.stopping import DRAIN_S

SECONDS_A_LINE = 5.0
SHOWN_REASONS = 8
MESSAGE_LENGTH = 200
WARNED_SHARE = 0.01


class Display:
    """Live progress on standard error: a line that moves on a terminal, plain lines in a log.

    A context manager. `begin`, `advance` and `stopping` go to an `ImportJob`; they may be called from another thread.
    """

    def __init__(self, *, quiet: bool, verbose: bool, resumable: bool = True) -> None:
        self._quiet, self._verbose, self._resumable = quiet, verbose, resumable
        self._bar: Any = None
        self._task: Any = None
        self._said_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the moving line away, before something else is said."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, job: ImportJob) -> None:
        """Say what is imported into what, and start the progress."""
        if self._quiet:
            return
        tables = ", ".join(job.table_names)
        click.echo(f"{job.sources} -> {job.address} ({job.address.kind}): {tables}; job {job.name}", err=True)
        if job.result.resumed_at is not None:
            click.echo(f"going on at row {job.result.resumed_at:,}", err=True)
        if job.schema is not None and job.schema.inferred:
            columns = ", ".join(f"{field.name} {field.type}" for field in job.schema.fields)
            click.echo(
                f"columns, inferred from the first {job.schema.inferred:,} rows: {columns}; "
                "say --column NAME=TYPE where one should be another",
                err=True,
            )
        if self._verbose and job.binding is not None:
            for table in job.binding.tables:
                columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
                key = f"; key {', '.join(table.key)}, mode {table.mode}, keep {table.keep}" if table.key else ""
                click.echo(f"  {table.name}({columns}){key}", err=True)
            size = "" if job.size is None else f"{job.size:,} {job.unit}, "
            click.echo(f"  {size}{job.workers} worker processes", err=True)
        self._said_at = time.monotonic()
        if sys.stderr.isatty():
            self._bar, self._task = _bar(job)

    def advance(self, job: ImportJob) -> None:
        """Show how far the job is."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=job.bytes_done, **_figures(job))
            return
        now = time.monotonic()
        if self._verbose or now - self._said_at >= SECONDS_A_LINE:
            self._said_at = now
            figures = _figures(job)
            share = left = ""
            if job.size:
                share, left = f"{job.bytes_done / job.size:4.0%}  ", f"{_duration(figures['left'])} left  "
            slowest = f"  slowest: {figures['slowest']}" if figures["slowest"] else ""
            click.echo(
                f"{share}{job.bytes_done:,} {job.unit}  {job.counts.read:,} rows  {figures['rate']:,.0f} rows/s  {left}"
                f"{job.counts.rejected:,} rejects{slowest}",
                err=True,
            )

    def stopping(self, job: ImportJob, lines: int) -> None:
        """Say at once that the request to stop was heard, and what is still done."""
        if self._quiet:
            return
        text = (
            f"stopping: finishing {lines:,} lines that were read, for at most {DRAIN_S:.0f} s; "
            "Ctrl-C again stops at once"
        )
        if self._resumable:
            text += "; the same command goes on later"
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, soft_wrap=True)
        else:
            click.echo(text, err=True)


def summary(result: ImportResult, job: ImportJob) -> str:
    """Give the final lines: where every row went, how fast, what was slowest, what was set aside."""
    if result.already_finished:
        return (
            f"job {result.job} is finished already: {result.read:,} rows read, {result.written:,} written. "
            "Nothing was done."
        )
    lines = [
        (
            f"read {result.read:,} = written {result.written:,} + rejected {result.rejected:,} "
            f"+ skipped {result.skipped:,} + filtered {result.filtered:,}"
        ),
        f"{result.seconds:.1f} s, {result.rate:,.0f} rows/s{_bottleneck(result.report)}",
        "tables: " + ", ".join(_table(result, name) for name in result.tables),
    ]
    if result.resumed_at is not None:
        lines[1] += f"; went on at row {result.resumed_at:,}"
    if result.rejected:
        lines.append(f"rejects, in table _headway_rejects of {job.address}:")
        lines += _reasons(result)
    return "\n".join(lines)


def _table(result: ImportResult, name: str) -> str:
    """Say how many rows a table got; where rows are overwritten, also how many writes that took."""
    upserts = result.upserts.get(name)
    return f"{name} {result.tables[name]:,}" + (f" ({upserts:,} upserts)" if upserts is not None else "")


def _reasons(result: ImportResult) -> Iterator[str]:
    """Give a line per reason, the most frequent first, each with its first row."""
    ranked = sorted(result.reasons.items(), key=lambda found: (-found[1], found[0]))
    shown = SHOWN_REASONS if len(ranked) > SHOWN_REASONS + 1 else len(ranked)  # a line about one would be that one's
    for reason, count in ranked[:shown]:
        line, message = result.firsts[reason]
        hint = "; is the file in another --encoding, such as cp1252?" if reason == "bad_encoding" else ""
        text = message if message.isprintable() else repr(message)[1:-1]
        text = text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH] + "..."
        yield f"  {reason} {count:,}, first at line {line:,}{': ' if text else ''}{text}{hint}"
    if shown < len(ranked):
        rest = sum(count for _, count in ranked[shown:])
        yield f"  {rest:,} for {len(ranked) - shown} other reasons"
    earlier = result.rejected - sum(result.reasons.values())
    if earlier:
        yield f"  {earlier:,} of an earlier run"


def warn(result: ImportResult) -> None:
    """Warn where more than 1% of the rows were set aside."""
    if result.rejected > WARNED_SHARE * result.read:
        click.echo(f"warning: {result.rejected / result.read:.1%} of the rows were rejected", err=True)


def _bottleneck(report: Any) -> str:
    found = report.to_dict().get("bottleneck") if report is not None else None
    if not found or not found.get("stage"):
        return ""
    return (
        f"; bottleneck: {found['stage']} ({found['verdict']})"
        if found.get("verdict")
        else f"; bottleneck: {found['stage']}"
    )


def _figures(job: ImportJob) -> dict[str, Any]:
    seconds = time.monotonic() - job.started
    rows = job.counts.read - (job.result.resumed_at or 0)
    done, todo = job.bytes_done - job.start_byte, (job.size or 0) - job.bytes_done
    return {
        "rows": job.counts.read,
        "rejects": job.counts.rejected,
        "rate": rows / seconds if seconds > 0 else 0.0,
        "slowest": job.bottleneck,
        "left": todo * seconds / done if done and job.size else None,
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _bar(job: ImportJob) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task
    from rich.table import Column as Cell
    from rich.text import Text

    class Column(ProgressColumn):
        def __init__(self, show: Callable[[dict[str, Any]], str]) -> None:
            super().__init__()
            self._show = show

        def render(self, task: Task) -> Text:
            return Text(self._show(task.fields), no_wrap=True, overflow="ellipsis")

        def get_table_column(self) -> Cell:
            return Cell(no_wrap=True)  # one line, also where the terminal is narrow

    bar = Progress(
        BarColumn(bar_width=8),
        DownloadColumn(),
        Column(lambda shown: f"{shown['rows']:,} rows"),
        Column(lambda shown: f"{shown['rate']:,.0f} rows/s"),
        Column(lambda shown: f"{_duration(shown['left'])} left"),
        Column(lambda shown: f"{shown['rejects']:,} rejects"),
        Column(lambda shown: f"slowest: {shown['slowest']}" if shown["slowest"] else ""),
        console=Console(stderr=True),
    )
    bar.start()
    return bar, bar.add_task("import", total=job.size, completed=job.bytes_done, **_figures(job))
