"""What bounds the rate of a pipeline, one bound at a time, from the numbers of a run.

Every bound is in rows of the source per second. "1 / slowest stage" is one of them; processors, the
interpreter's lock, the event loop, a hot key, a rate limit and the source are others. None of them is a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IN_PROCESS = ("thread", "inline")
BUSY_CPU = 0.7
"""From this share of a call's time on a processor it counts as computing, not waiting."""

BUSY_INTERPRETER = 0.5
"""From this share of its time on, what the event loop takes for a row is what it takes where it is the limit.

With less to do it wakes up for each item alone, which costs more: with one task of 5 ms 623 µs a row at 11% of its
time, with 8 of them 232 µs at 27%, 32 176 µs at 72%, 64 172 µs at 99%.
"""


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
    """The bounds that more workers do not move: the interpreter's lock and its event loop, processors, rates, hot keys."""
    workers = workers or {}
    found = []
    here = [(cpu_s(s, model), s) for s in stages if s["on"] in IN_PROCESS]
    locked, share = sum(seconds for seconds, _ in here), sum(s["cpu"] * s["slots"] for _, s in here if s["cpu"])
    if (
        share > 1.3
    ):  # calls that run on more than one processor at once do not need the lock (NumPy, hashing, compression)
        locked = share = 0.0
    loop_s = model.get("loop_s", 0.0) if share + model.get("loop_share", 0.0) >= BUSY_INTERPRETER else 0.0
    if locked + loop_s > 0:
        taken = told_s(locked + loop_s)
        if locked >= loop_s:
            most = max(here, key=lambda pair: pair[0])[1]
            verdict, because = "gil_limited", f"threads share one interpreter, and a row needs {taken} of it"
        else:
            most = max(stages, key=lambda s: model["stages"].get(s["name"], {}).get("blocks") or 0)
            verdict, because = (
                "handoff_limited",
                f"the event loop, which hands over and runs async calls, needs {taken} for a row",
            )
        found.append(Ceiling(1 / (locked + loop_s), verdict, most["name"], because))
    computed = sum(cpu_s(s, model) for s in stages) + loop_s
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
