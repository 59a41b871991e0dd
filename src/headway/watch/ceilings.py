"""What bounds the rate of a pipeline, one bound at a time, from the numbers of a run.

Every bound is in rows of the source per second. "1 / slowest stage" is one of them; processors, the
interpreter's lock, a hot key, a rate limit and the source are others. None of them is a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IN_PROCESS = ("thread", "inline")
BUSY_CPU = 0.7
"""From this share of a call's time on a processor it counts as computing, not waiting."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """At most `rate` rows a second, because of `stage`; `verdict` is the code for this kind of bound."""

    rate: float
    verdict: str
    stage: str
    because: str


def visits_of(stage: Mapping[str, Any]) -> float:
    """Calls of a stage for each row of the source, from its record in a report."""
    capacity, mean = stage["capacity"], stage["service"]["mean"]
    return stage["slots"] / (mean * capacity) if capacity and mean else 0.0


def slot_ceiling(stage: Mapping[str, Any], workers: int | None = None) -> Ceiling | None:
    """What the stage's slots could do if they never waited."""
    if not stage["capacity"]:
        return None
    slots = workers if workers is not None else stage["slots"]
    rate = stage["capacity"] * slots / stage["slots"]
    last = stage["kind"] in ("sink", "consume")
    each = told_s(stage["service"]["mean"])
    who = "the consumer takes" if stage["kind"] == "consume" else f"{stage['name']} takes"
    many = f" with {slots:.3g} workers" if slots != 1 else ""
    return Ceiling(rate, "sink_limited" if last else "stage_limited", stage["name"], f"{who} {each} a call{many}")


def cpu_s(stage: Mapping[str, Any], model: Mapping[str, Any]) -> float:
    """Processor seconds of a stage for one row of the source; 0 where it is not measured."""
    found = model["stages"].get(stage["name"], {}).get("cpu_s")
    return (found or 0.0) * visits_of(stage)


def shared_ceilings(
    stages: list[dict[str, Any]], model: Mapping[str, Any], workers: Mapping[str, int] | None = None
) -> list[Ceiling]:
    """The bounds that more workers do not move: the interpreter's lock, processors, rates, hot keys, the source."""
    workers = workers or {}
    found = []
    here = [(cpu_s(s, model), s) for s in stages if s["on"] in IN_PROCESS]
    locked = sum(seconds for seconds, _ in here)
    # Where calls ran on more than one processor at once they do not need the lock (NumPy, hashing, compression).
    parallel = sum(s["cpu"] * s["slots"] for s in stages if s["on"] in IN_PROCESS and s["cpu"]) > 1.3
    if locked > 0 and not parallel:
        most = max(here, key=lambda pair: pair[0])[1]
        found.append(
            Ceiling(1 / locked, "gil_limited", most["name"], f"threads share one interpreter, and a row needs {told_s(locked)} of it")
        )  # fmt: skip
    computed = sum(cpu_s(s, model) for s in stages)
    if computed > 0:
        most = max(stages, key=lambda s: cpu_s(s, model))
        found.append(
            Ceiling(model["cores"] / computed, "core_limited", most["name"],
                    f"a row needs {told_s(computed)} of a processor, and there are {model['cores']}")
        )  # fmt: skip
    limits = {step["stage"]: step["rate"] for step in model["steps"] if step.get("rate")}
    for stage in stages:
        calls, name = visits_of(stage), stage["name"]
        if name in limits and calls:
            found.append(Ceiling(limits[name] / calls, "rate_limited", name, f"{name} may make {limits[name]:,.3g} calls a second"))  # fmt: skip
        measured = model["stages"].get(name, {})
        if measured.get("hot_share") and stage["service"]["mean"] and calls:
            share, mean = measured["hot_share"], stage["service"]["mean"]
            found.append(
                Ceiling(1 / (share * mean * calls), "key_limited", name,
                        f"key {measured['hot_key']} has {share:.0%} of the items of {name}, one at a time")
            )  # fmt: skip
    return found


def told_s(seconds: float | None) -> str:
    """A duration in the unit that suits it."""
    if seconds is None:
        return "?"
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 0.9995:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def told_rate(rate: float) -> str:
    """Rows a second: whole from a thousand on, four digits below it."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:,.4g}"
