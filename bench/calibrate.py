"""`make calibrate`: predictions against what then happens, over real pipelines.

Each pipeline runs as it is, is asked what more workers would give, and runs again with these, several times in turn;
the run of median rate counts on both sides, so that a moment in which the machine did something else does not. A
prediction is right if it is within 10% of what was measured, or if that lies in its interval. Nothing is left out.
`make calibrate ARGS="staircase 'hot key'"` runs the pipelines with these words in their names and writes no page.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway import Pipeline, RateLimit
from headway.machine import cores
from measure import busy, machine

SECONDS = 3.0
"""About how long a run takes."""
ROUNDS = 3
SHUFFLED = 20
"""Times are drawn so that every 20 rows have the same ones, shuffled: what is compared is no luck of the draw."""
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "calibration.md"


@dataclass(frozen=True)
class Case:
    """A pipeline: milliseconds of its calls by stage, what they do, and the workers to ask about.

    `moved`: it is asked about these workers in processes, which the report has to propose by itself.
    """

    name: str
    stages: dict[str, float]
    verdict: str
    ask: dict[str, int]
    kind: str = "wait"
    on: str = "thread"
    options: dict[str, dict[str, Any]] | None = None
    spread: str = "none"
    order: str = "input"
    window: int | None = None
    moved: bool = False

    @property
    def change(self) -> str:
        """What is asked about, as a report says it."""
        between = ' on="process", workers=' if self.moved else "="
        return ", ".join(f"{name}{between}{count}" for name, count in self.ask.items())

    def predicted(self, report: Any) -> Any:
        """The prediction for it, with rate, low and high; None where it is not proposed."""
        if not self.moved:
            return report.what_if(self.ask)
        return next((row for row in report.what_if if row.change == self.change), None)


def waits(ms: float, spread: str) -> Callable[[Any], Any]:
    """A call that waits."""

    def call(row: Any) -> Any:
        time.sleep(_drawn(ms, spread, row) / 1e3)
        return row

    return call


def waits_async(ms: float, spread: str) -> Callable[[Any], Any]:
    """An async call that waits."""

    async def call(row: Any) -> Any:
        await asyncio.sleep(_drawn(ms, spread, row) / 1e3)
        return row

    return call


def computes(ms: float, _spread: str) -> Callable[[Any], Any]:
    """A call that computes for about so long when it has a processor to itself."""
    rounds = int(ms * ROUNDS_MS)

    def call(row: Any) -> Any:
        total = 0
        for number in range(rounds):
            total += number
        return row

    return call


def _drawn(ms: float, spread: str, row: int) -> float:
    if spread == "none":
        return ms
    share = (_shuffled(row // SHUFFLED, ms)[row % SHUFFLED] + 0.5) / SHUFFLED
    if spread == "exp":
        return -math.log(1 - share) * ms
    return ms * (10.0 if share > 0.95 else 0.53)


def _shuffled(number: int, ms: float) -> list[int]:
    found = _orders.get((number, ms))
    if found is None:
        found = _orders[number, ms] = list(range(SHUFFLED))
        random.Random(hash((number, ms))).shuffle(found)
    return found


_orders: dict[tuple[int, float], list[int]] = {}
"""Drawn before; no `functools.cache`, which cannot travel to a process."""


def _rounds_a_ms() -> float:
    count, best = 200_000, float("inf")
    for _ in range(5):
        start, total = time.thread_time(), 0
        for number in range(count):
            total += number
        best = min(best, time.thread_time() - start)
    return count / (best * 1e3)


ROUNDS_MS = _rounds_a_ms()


def cases() -> list[Case]:
    """All of them."""
    four = {"read": 2.0, "parse": 1.0, "process": 4.0, "write": 3.0}
    middle = {"a": 1.0, "b": 8.0, "c": 1.0}
    found = [
        Case("staircase", four, "stage_limited", {"process": 3}),
        Case("staircase, both", four, "stage_limited", {"process": 3, "write": 2}),
        Case("staircase, tasks", four, "stage_limited", {"process": 3}, on="task"),
        Case("staircase, tasks, both", four, "stage_limited", {"process": 3, "write": 2}, on="task"),
        Case("staircase, processes", four, "stage_limited", {"process": 3}, on="process"),
        Case("slow sink", {"a": 2, "b": 3, "c": 8}, "sink_limited", {"c": 2}),
        Case("one stage", {"a": 5}, "sink_limited", {"a": 4}),
        Case("one stage, tasks", {"a": 5}, "sink_limited", {"a": 8}, on="task"),
        Case("tasks that fill the loop", {"a": 5}, "sink_limited", {"a": 64}, on="task", options={"a": {"workers": 32}}),
        Case("tasks of a full loop", {"a": 5}, "handoff_limited", {"a": 128}, on="task", options={"a": {"workers": 64}}),
        Case("one in ten", {"a": 1, "b": 10, "c": 1}, "stage_limited", {"b": 4}),
        Case("one in ten, eight", {"a": 1, "b": 10, "c": 1}, "stage_limited", {"b": 8}),
        Case("computes in threads", middle, "gil_limited", {"b": 2}, kind="compute"),
        Case("computes in threads, four", middle, "gil_limited", {"b": 4}, kind="compute"),
        Case("computes, moved to processes", middle, "gil_limited", {"b": cores()}, kind="compute", moved=True),
        Case("computes in four threads, moved to processes", middle, "gil_limited", {"b": max(4, cores())}, kind="compute",
             options={"b": {"workers": 4}}, moved=True),
        Case("computes in one process", {"a": 20}, "sink_limited", {"a": 2}, kind="compute", on="process"),
    ]  # fmt: skip
    for spread in ("exp", "heavy"):
        found += [
            Case(f"{spread}: staircase", four, "stage_limited", {"process": 3}, spread=spread),
            Case(f"{spread}: tasks", four, "stage_limited", {"process": 3}, spread=spread, on="task"),
            Case(f"{spread}: slow middle", {"a": 2, "b": 8, "c": 2}, "stage_limited", {"b": 3}, spread=spread),
            Case(f"{spread}: any order", {"a": 2, "b": 8, "c": 2}, "stage_limited", {"b": 3}, spread=spread, order="none"),
            Case(f"{spread}: slow sink", {"a": 2, "b": 3, "c": 8}, "sink_limited", {"c": 2}, spread=spread, order="none"),
            Case(f"{spread}: balanced, queues of 2", {"a": 4, "b": 4, "c": 4}, "balanced", {"a": 2, "b": 2, "c": 2},
                 spread=spread, order="none", options={key: {"queue": 2} for key in "abc"}),
        ]  # fmt: skip
    found += [
        Case("rate limit", {"a": 1, "b": 1}, "rate_limited", {"a": 4}, options={"a": {"rate": RateLimit(150.0)}}),
        Case("rate limit beyond", {"a": 1, "b": 5}, "sink_limited", {"b": 4}, options={"a": {"rate": RateLimit(400.0)}}, order="none"),
        Case("hot key", {"a": 5, "b": 1}, "key_limited", {"a": 8}, options={"a": {"key": hot, "workers": 4}}, order="none"),
        Case("even keys", {"a": 8, "b": 1}, "stage_limited", {"a": 4}, options={"a": {"key": even, "workers": 2}}, order="none"),
        Case("two workers each", {"a": 4, "b": 8}, "sink_limited", {"b": 4}, options={"a": {"workers": 2}, "b": {"workers": 2}}, order="none"),
    ]  # fmt: skip
    return found


def hot(row: int) -> int:
    """Half of the rows have one key."""
    return 0 if row % 2 else row


def even(row: int) -> int:
    """Hundreds of keys."""
    return row % 331


def run(case: Case, workers: dict[str, int], rows: int) -> Any:
    """One run with these workers."""
    make = computes if case.kind == "compute" else waits_async if case.on == "task" else waits
    pipeline: Pipeline[Any] = Pipeline(range(rows), window=case.window)
    *names, last = case.stages

    def options(name: str) -> dict[str, Any]:
        asked: dict[str, Any] = {"workers": workers[name]} if name in workers else {}
        if asked and case.moved:
            asked["on"] = "process"
        return {"on": case.on, **(case.options or {}).get(name, {}), **asked}

    for name in names:
        pipeline = pipeline.map(make(case.stages[name], case.spread), name=name, **options(name))
    many = options(last).get("workers", 1) > 1
    order: Any = "none" if many and "key" not in options(last) else case.order
    return pipeline.to(make(case.stages[last], case.spread), name=last, order=order, **options(last)).run()


def rows_of(case: Case) -> int:
    """Rows for a run of about SECONDS."""
    per_row = max(ms / (case.options or {}).get(name, {}).get("workers", 1) for name, ms in case.stages.items())
    return max(150, int(SECONDS * 1e3 / per_row))


def rate_of(report: Any) -> float:
    """Rows a second in the steady phase, or in all where that was too short."""
    return float(report.steady.rate or report.rate)


def both(case: Case) -> tuple[Any, Any]:
    """The report of a run as it is, and of one with the workers asked about: those of median rate."""
    rows, before, after = rows_of(case), list[Any](), list[Any]()
    for _ in range(ROUNDS):
        before.append(run(case, {}, rows))
        made = case.predicted(before[-1])
        gain = made.rate / rate_of(before[-1]) if made is not None else 1.0
        after.append(run(case, case.ask, max(rows, int(rows * min(4.0, gain)))))
    first, second = (sorted(reports, key=rate_of)[ROUNDS // 2] for reports in (before, after))
    return first, second


def main(names: list[str]) -> int:
    """Run those named, or all, print the table and write the page if all were run."""
    where = f"{machine()}." + (" The machine was busy with other work." if busy() else "")
    print(where)
    table = [
        "| pipeline | verdict | measured | asked | predicted (interval) | then measured | off | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    right = verdicts = total = 0
    chosen = [case for case in cases() if not names or any(name in case.name for name in names)]
    if not chosen:
        print(f"no such pipeline; there are: {', '.join(case.name for case in cases())}", file=sys.stderr)
        return 2
    for case in chosen:
        total += 1
        first, second = both(case)
        made, rate = case.predicted(first), rate_of(second)
        good, predicted, off = False, "not proposed", ""
        if made is not None:
            good = abs(made.rate / rate - 1) <= 0.10 or made.low <= rate <= made.high
            predicted, off = f"{made.rate:,.4g} ({made.low:,.4g} to {made.high:,.4g})", f"{made.rate / rate - 1:+.0%}"
        said = first.bottleneck.verdict
        right += good
        verdicts += said == case.verdict
        wrong = "" if said == case.verdict else f" (is {case.verdict})"
        line = (
            f"| {case.name} | {said}{wrong} | {rate_of(first):,.4g} | {case.change} | "
            f"{predicted} | {rate:,.4g} | {off} | {'' if good else 'missed'} |"
        )
        table.append(line)
        print(line, flush=True)
    summary = f"{right} of {total} predictions are within 10% of what was measured or have it in their interval; {verdicts} of {total} verdicts are right."
    print(summary)
    if not names:
        PAGE.write_text(
            "# Predictions and what happened\n\nMade by `make calibrate`: each pipeline runs, is asked what other numbers of workers would "
            f"give, and runs with these. Rates are rows a second. Nothing is left out.\n\n{where}\n\n{summary}\n\n"
            + "\n".join(table)
            + "\n",
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
