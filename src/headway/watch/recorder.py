"""The flight recorder: every block of a run, when it was handed out, ran and came back, in a file.

The format is Chrome's trace events as JSON (the "Trace Event Format"), which Perfetto and chrome://tracing
open. Times there are microseconds from the start. The file is written as the run goes on, so that it can be
read after a crash too. The items of a block are in ``args``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headway.errors import HeadwayError, PlanError


@dataclass(slots=True)
class _Open:
    stage: str
    slot: int
    tags: list[Any]
    attempt: int
    at: float


class Recorder:
    """Writes to `path`. Raises PlanError where that cannot be written."""

    def __init__(self, path: str | Path, name: str, now: float) -> None:
        self.path, self._start = Path(path), now
        self._open: dict[int, _Open] = {}
        self._rows: dict[tuple[str, int], int] = {}
        try:
            self._file: TextIO | None = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise PlanError(f"trace={str(path)!r} cannot be written: {error.strerror}") from None
        self._file.write("[\n")
        self._write({"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": name}}, first=True)

    def dispatched(self, ticket: int, stage: str, slot: int, tags: list[Any], attempt: int, now: float) -> None:
        """Items were handed to a slot."""
        self._open[ticket] = _Open(stage, slot, tags, attempt, now)

    def answered(self, ticket: int, taken: int, failed: list[int], started: float, stopped: float, now: float) -> None:
        """They came back."""
        block = self._open.pop(ticket, None)
        if block is None:
            return
        tags = block.tags[: max(taken, 1)]
        self._write({
            "name": block.stage, "ph": "X", "pid": 1, "tid": self._row(block.stage, block.slot),
            "ts": self._us(started), "dur": max(0.0, round((stopped - started) * 1e6, 1)),
            "args": {
                "items": _ranges(tags), "attempt": block.attempt, "slot": block.slot, "failed": [tags[at] for at in failed if at < len(tags)],
                "handed_out": self._us(block.at), "back": self._us(now),
            },
        })  # fmt: skip

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


def _ranges(tags: list[Any]) -> list[Any]:
    """Tags with runs of consecutive rows as [first, last]."""
    out: list[Any] = []
    for tag in tags:
        if isinstance(tag, int) and out and isinstance(out[-1], list) and len(out[-1]) == 2 and out[-1][1] == tag - 1:
            out[-1][1] = tag
        else:
            out.append([tag, tag] if isinstance(tag, int) else {"child": list(tag)})
    return out


def life(path: str | Path, seq: int) -> list[dict[str, Any]]:
    """The calls for row `seq` and its children in the trace at `path`, in order of time.

    Each has ``stage``, ``slot``, ``attempt``, ``items`` (of its block), ``failed``, and in seconds from the start
    ``handed_out``, ``started``, ``stopped``, ``back``. Raises HeadwayError for what is no trace.
    """
    text = Path(path).read_text(encoding="utf-8").rstrip()
    try:
        events = json.loads(text if text.endswith("]") else text.rstrip(",") + "]")
        calls = [e for e in events if e["ph"] == "X"]
    except (ValueError, KeyError, TypeError):
        raise HeadwayError(f"{path} is not a trace: record one with run(trace={str(path)!r})") from None
    found = [_call(e) for e in calls if any(_has(part, seq) for part in e["args"]["items"])]
    return sorted(found, key=lambda call: (call["started"], call["stopped"]))


def _has(part: Any, seq: int) -> bool:
    return bool(part["child"][0] == seq) if isinstance(part, dict) else bool(part[0] <= seq <= part[1])


def _call(event: dict[str, Any]) -> dict[str, Any]:
    args = event["args"]
    count = sum(1 if isinstance(part, dict) else part[1] - part[0] + 1 for part in args["items"])
    return {
        "stage": event["name"], "slot": args["slot"], "attempt": args["attempt"], "items": count, "failed": args["failed"],
        "handed_out": args["handed_out"] / 1e6, "started": event["ts"] / 1e6,
        "stopped": (event["ts"] + event["dur"]) / 1e6, "back": args["back"] / 1e6,
    }  # fmt: skip
