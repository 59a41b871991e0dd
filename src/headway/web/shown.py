"""A run as the page sees it, whether it goes on or is over. What does not belong here: HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from headway.errors import Failure, HeadwayError
from headway.text import message, shown
from headway.watch.advice import advise
from headway.watch.predict import Predictor
from headway.watch.report import Report
from headway.watch.show import sentence
from headway.watch.timeline import Timeline
from headway.web.feed import Feed
from headway.web.texts import scrubbed

MOST_SPANS = 60
"""Of one slot in one event, or 1,500 where it is all of a finished run."""


class Refused(HeadwayError):
    """What was asked for cannot be. ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Shown(Protocol):
    """A run that the page can show."""

    feed: Feed

    async def watch(self) -> None:
        """Publish its events until it is over."""

    def line(self) -> dict[str, Any]:
        """Its entry in the list of runs."""

    def detail(self) -> dict[str, Any]:
        """All about it at this moment."""

    def figures(self) -> dict[str, Any]:
        """What was measured, for predictions."""

    def timeline(self) -> Timeline | None:
        """What its slots did, as far as it was recorded."""

    def stop(self, mode: str) -> str:
        """Ask for a stop; its state then. Raises Refused."""

    def scale(self, stage: str, workers: int) -> None:
        """Change the number of workers of a stage. Raises Refused."""

    async def study(self, stage: str, speedup: float, seconds: float) -> dict[str, Any]:
        """Measure what shorter calls of a stage would give. Raises Refused."""


def told_live(report: Report) -> dict[str, Any]:
    """The report of a run that goes on, without what takes a simulation."""
    data = report.figures()
    data["what_if"], data["advice"] = [], advise(data)
    return data


def told_dead(failure: Failure) -> dict[str, Any]:
    """A dead letter, all of it text."""
    found: dict[str, Any] = scrubbed({
        "seq": failure.seq if isinstance(failure.seq, int) else list(failure.seq or ()),
        "stage": failure.stage, "attempts": failure.attempts, "error": type(failure.error).__qualname__,
        "message": message(failure.error), "value": shown(failure.value),
    })  # fmt: skip
    return found


def detail(
    run: dict[str, Any], plan: Mapping[str, Any] | None, data: dict[str, Any], *, controls: bool
) -> dict[str, Any]:
    """What GET /api/runs/{id} gives."""
    scalable = [stage["name"] for stage in data["stages"] if not stage["alone"]] if controls else []
    return {
        "run": run, "plan": plan, "snapshot": data, "sentence": sentence(data),
        "limits": {"controls": controls, "scalable": scalable},
    }  # fmt: skip


def predicted(
    figures: Mapping[str, Any], workers: Mapping[str, int], queue: int | None = None, window: int | None = None
) -> dict[str, Any]:
    """What other settings would give. Raises Refused where too little was measured, or for what cannot be changed."""
    predictor = Predictor(figures)
    if not predictor.possible:
        raise Refused(409, "too little was measured for a prediction yet: wait until some rows have passed")
    try:
        made = predictor.resized(queue, window).predict(workers, seeds=1)
        ceilings = predictor.ceilings(workers)
    except ValueError as error:
        raise Refused(409, str(error)) from None
    first = predictor.ceilings({})[0]
    return {
        "rate": made.rate, "low": made.low, "high": made.high, "bottleneck": first.stage,
        "next_bottleneck": made.next_bottleneck, "because": made.because, "measured": predictor.rate,
        "ceilings": {f"{c.stage}: {c.verdict}": c.rate for c in reversed(ceilings)},
    }  # fmt: skip


def memory_bytes() -> int:
    """Resident memory of this process and of its children; 0 where the system does not tell."""
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    try:
        children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
        for pid in ("self", *children):
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
            except (OSError, IndexError):  # it has just ended
                continue
    except OSError:
        return total
    return total
