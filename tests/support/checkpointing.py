"""A pipeline of one's own in a process that kills itself at a moment that the test chose; see `run`."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS = 400
MOMENTS = {
    "database": ("stage", "write", "before", "inside", "after", "letter"),
    "file": ("stage", "write", "before", "part", "replaced", "letter"),
}
"""Where a run may be killed: in a stage's call, in a write, around a commit, or when a dead letter was kept."""


def run(folder: Path, target: str, *, order: str, moment: str | None = None, number: int = 0) -> dict[str, Any] | None:
    """Run the child; its report, or None if it was killed, at the event `number` of kind `moment`."""
    told = json.dumps({"folder": str(folder), "target": target, "order": order, "moment": moment, "number": number})
    child = subprocess.run(
        [sys.executable, str(Path(__file__)), told], capture_output=True, text=True, check=False, timeout=100
    )
    if child.returncode == -signal.SIGKILL:
        return None
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def expected() -> list[tuple[int, int]]:
    """The rows that every run gives, in order."""
    return [(row, number) for row in range(ROWS) if row % 37 != 5 for number in range(row % 3)]


def letters() -> set[int]:
    """The rows that are set aside."""
    return {row for row in range(ROWS) if row % 37 == 5}


def _killer(moment: str | None, number: int) -> Callable[[str], None]:
    counts: dict[str, itertools.count[int]] = {}

    def at(what: str) -> None:
        if next(counts.setdefault(what, itertools.count(1))) == number and what == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def main(told: dict[str, Any]) -> None:
    """The child."""
    from headway import DuckDBSink, Pipeline, PostgresSink, SQLiteSink, current_item
    from headway.importer.bookkeeping import SavedState
    from headway.io import checkpoint, deadletter
    from headway.run import commits

    commits.COMMIT_S = 0.0
    folder, target, at = Path(told["folder"]), told["target"], _killer(told["moment"], told["number"])

    def check(row: int) -> int:
        at("stage")
        if row % 37 == 5:
            raise ValueError(row)
        return row

    def expand(row: int) -> list[tuple[int, int]]:
        return [(row, number) for number in range(row % 3)]

    keep = deadletter.DeadLetterFile.write

    def kept(self: Any, failure: Any) -> None:
        keep(self, failure)
        at("letter")

    deadletter.DeadLetterFile.write = kept  # type: ignore[method-assign]
    how: dict[str, Any] = {"job": "mine", "dead_letters": folder / "aside.jsonl"}
    made = Pipeline(range(ROWS), on_error="dead_letter", window=60).map(check, workers=3).flat_map(expand, workers=2)
    if target == "file":
        (folder / "out").mkdir(exist_ok=True)

        def write(value: tuple[int, int]) -> None:
            at("write")
            with (folder / "log").open("a") as log:
                log.write(f"{value[0]} {value[1]}\n")
            name = current_item().trace_id.replace("/", "-")
            (folder / "out" / name).write_text(json.dumps(value))

        save, fsync = checkpoint.CheckpointFile.save, os.fsync

        def saves(self: Any, state: Any) -> None:
            at("before")
            save(self, state)
            at("replaced")

        def fsyncs(descriptor: int) -> None:
            fsync(descriptor)
            at("part")

        checkpoint.CheckpointFile.save, os.fsync = saves, fsyncs  # type: ignore[method-assign]
        run = made.to(write, order=told["order"])
        how["checkpoint"] = folder / "checkpoint.json"
    else:
        kind: Any = PostgresSink if "://" in target else DuckDBSink if target.endswith(".duckdb") else SQLiteSink

        class Sink(kind):  # type: ignore[misc]
            def write(self, items: Any) -> None:
                super().write(items)
                at("write")

            def commit(self, state: Any) -> None:
                at("before")
                super().commit(state)
                at("after")

        advance = SavedState.advance

        def advances(self: Any, state: Any) -> None:
            advance(self, state)
            at("inside")

        SavedState.advance = advances  # type: ignore[method-assign]
        run = made.to(Sink(target, "t", columns={"row": "int", "number": "int"}), order=told["order"])
    report = run.run(**how)
    print(json.dumps({"job": report.job, "items": dict(report.items), "complete": report.complete}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
