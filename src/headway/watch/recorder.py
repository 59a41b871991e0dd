"""The flight recorder: every block of a run, when it was handed out, ran and came back, in a file.

The format is Chrome's trace events as JSON (the "Trace Event Format"), which Perfetto and chrome://tracing
open. Times there are microseconds from the start. The file is written as the run goes on, so that it can be
read after a crash too. The items of a block are in ``args``; an instant event named like a state says why the
slots of a stage that have nothing in hand are idle from then on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from headway.errors import PlanError
from headway.watch.timeline import Call, from_trace, runs_of


class Recorder:
    """Writes to `path`. Raises PlanError where that cannot be written."""

    def __init__(self, path: str | Path, name: str, now: float) -> None:
        self.path, self._start = Path(path), now
        self._open: dict[int, tuple[str, int, list[Any], int, float]] = {}
        self._rows: dict[tuple[str, int], int] = {}
        try:
            self._file: TextIO | None = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise PlanError(f"trace={str(path)!r} cannot be written: {error.strerror}") from None
        self._file.write("[\n")
        self._write({"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": name}}, first=True)

    def dispatched(self, ticket: int, stage: str, slot: int, tags: list[Any], attempt: int, now: float) -> None:
        """Items were handed to a slot."""
        self._open[ticket] = stage, slot, tags, attempt, now

    def answered(self, ticket: int, taken: int, failed: list[int], started: float, stopped: float, now: float) -> None:
        """They came back."""
        block = self._open.pop(ticket, None)
        if block is None:
            return
        stage, slot, tags, attempt, at = block
        tags = tags[: max(taken, 1)]
        self._write({
            "name": stage, "ph": "X", "pid": 1, "tid": self._row(stage, slot),
            "ts": self._us(started), "dur": max(0.0, round((stopped - started) * 1e6, 1)),
            "args": {
                "items": runs_of(tags), "attempt": attempt, "slot": slot, "failed": [tags[n] for n in failed if n < len(tags)],
                "handed_out": self._us(at), "back": self._us(now),
            },
        })  # fmt: skip

    def idle(self, stage: str, state: str, now: float) -> None:
        """From now on the slots of `stage` that have nothing in hand are idle for this reason."""
        self._write(
            {"name": state, "ph": "i", "s": "t", "pid": 1, "tid": 0, "ts": self._us(now), "args": {"stage": stage}}
        )

    def _us(self, time: float) -> float:
        return round((time - self._start) * 1e6, 1)

    def _row(self, stage: str, slot: int) -> int:
        """The row on which a slot is drawn."""
        if (stage, slot) not in self._rows:
            row = self._rows[stage, slot] = len(self._rows) + 1
            self._write({"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": f"{stage} {slot}"}})
            self._write({"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": row, "args": {"sort_index": row}})
        return self._rows[stage, slot]

    def _write(self, event: dict[str, Any], *, first: bool = False) -> None:
        if self._file is not None:
            self._file.write(("" if first else ",\n") + json.dumps(event, separators=(",", ":")))

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.write("\n]\n")
            self._file.close()
            self._file = None


def life(path: str | Path, seq: int) -> list[dict[str, Any]]:
    """The calls for row `seq` and its children in the trace at `path`, in order of time.

    Each has ``stage``, ``slot``, ``attempt``, ``items`` (of its block), ``failed``, and in seconds from the start
    ``handed_out``, ``started``, ``stopped``, ``back``. Raises HeadwayError for what is no trace.
    """
    found = [_told(call) for call in from_trace(path)[1].calls() if call.has(seq)]
    return sorted(found, key=lambda call: (call["started"], call["stopped"]))


def _told(call: Call) -> dict[str, Any]:
    count = sum(1 if isinstance(part, dict) else part[1] - part[0] + 1 for part in call.tags)
    return {
        "stage": call.stage, "slot": call.slot, "attempt": call.attempt, "items": count, "failed": call.failed,
        "handed_out": call.handed_out, "started": call.started, "stopped": call.stopped, "back": call.back,
    }  # fmt: skip
