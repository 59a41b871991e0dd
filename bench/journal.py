"""What it costs a process worker to record the outcome of each call, or only to publish where it is."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from headway.call import Caller, drive
from headway.claim import Cell
from headway.core.ticket import Job
from headway.run.child import _Cell
from headway.run.journal import Journal, Writer
from headway.run.worker import Recipe
from measure import Table, interleave, median

ROWS = [("2024-01-01", n, 12.5, "a short text") for n in range(1000)]
BLOCKS, TARGET = 20, 3.0


def same(row: Any) -> Any:
    """The cheapest stage: what is measured is the rest."""
    return row


def runner(recipe: Recipe, kind: str) -> Callable[[], None]:
    """Runs a block of rows as a child does: plainly, publishing the cursor, or recording."""
    journal = Journal()
    journal.release()
    writer = Writer(journal, recipe)
    fn = writer.recording(recipe) if kind == "recorded" else recipe.fn
    caller = Caller(recipe.kind, fn)
    new: Callable[[], Cell] = partial(_Cell, writer, nullcontext()) if kind == "published" else Cell

    def run() -> None:
        cell, job = new(), Job(1, ROWS, range(len(ROWS)))
        writer.begin(job, cell, None)
        drive(caller.run(job, cell))
        writer.end()

    return run


def repeat(run: Callable[[], None]) -> None:
    """Run a number of blocks."""
    for _ in range(BLOCKS):
        run()


def pickled() -> None:
    """One pickle for each row: what recording cannot do without."""
    for row in ROWS:
        pickle.dumps(row, protocol=pickle.HIGHEST_PROTOCOL)


def bench() -> Table:
    """Measure all variants in turn."""
    recipe = Recipe("map", "same", same)
    kinds = ("plain", "published", "recorded")
    variants = {kind: partial(repeat, runner(recipe, kind)) for kind in kinds} | {"pickle": partial(repeat, pickled)}
    samples = interleave(variants, rounds=11)
    cpu = {name: median(sample.cpu for sample in found) / len(ROWS) / BLOCKS * 1e6 for name, found in samples.items()}
    table = Table(
        f"Journal of a process worker: {BLOCKS} blocks of {len(ROWS)} small rows, the function gives its row back",
        ("variant", "us of CPU a row", "more than the bare loop", "in pickles of a row"),
    )
    for name in kinds:
        more = cpu[name] - cpu["plain"]
        table.row(name, cpu[name], more, more / cpu["pickle"])
    table.row("pickle", cpu["pickle"], "", 1.0)
    table.judge(
        "recorded: more than the bare loop", (cpu["recorded"] - cpu["plain"]) / cpu["pickle"], TARGET, " pickles"
    )
    return table
