"""A trace as a report: what can be counted from the calls of a run alone."""

from __future__ import annotations

from typing import Any

from headway.gauges import Histogram
from headway.watch.show import STATES
from headway.watch.timeline import Call, Timeline


def data_of(name: str, timeline: Timeline) -> dict[str, Any]:
    """The fields of a report, as far as calls tell them; what they do not tell is None, 0 or empty."""
    calls = timeline.calls()
    end = max((call.back or call.handed_out for call in calls), default=0.0)
    names = list(dict.fromkeys(stage for stage, _ in timeline.slots))
    spans = timeline.between(0.0, end)["slots"]
    stages = [
        _stage(stage, [c for c in calls if c.stage == stage], [s for s in spans if s["stage"] == stage])
        for stage in names
    ]
    read = 1 + max((call.rows()[1] for call in calls), default=-1)
    for stage in stages:
        mean = stage["service"]["mean"]
        share = stage["in"] / read if read else 0.0
        stage["capacity"] = stage["workers"] / (mean * share) if mean and share else None
    done = stages[-1]["out"] if stages else 0
    items = dict.fromkeys(("read", "written", "filtered", "dead", "expanded", "children", "unread", "late"), 0)
    items |= {"read": read, "written": done, "dead": sum(stage["failed"] for stage in stages)}
    none = {"p50": None, "p90": None, "p99": None, "max": None}
    return {
        "name": name, "state": "done", "items": items, "elapsed": end, "fill": None, "drain": None,
        "steady": {"rate": None, "seconds": 0.0}, "rate": done / end if end else None,
        "latency": none, "latency_unordered": none, "source": {"reading": None, "window_wait": None, "blocked": None},
        "stages": stages, "queues": [], "reorder": [], "bottleneck": None, "what_if": [], "advice": [], "ignored": [],
        "failures": [], "unfinished": [], "complete": False, "trace": None,
    }  # fmt: skip


def _stage(name: str, calls: list[Call], slots: list[dict[str, Any]]) -> dict[str, Any]:
    times, items, failed, busy = Histogram(), 0, 0, 0.0
    for call in calls:
        count = sum(1 if isinstance(part, dict) else part[1] - part[0] + 1 for part in call.tags)
        items, failed, busy = items + count, failed + len(call.failed), busy + call.stopped - call.started
        times.record((call.stopped - call.started) / count, count)
    seconds = dict.fromkeys(STATES, 0.0)
    for slot in slots:
        for start, stop, state, *_ in slot["spans"]:
            seconds[state] = seconds.get(state, 0.0) + stop - start
    total = sum(seconds.values())
    shares = {state: share / total if total else 0.0 for state, share in seconds.items()}
    return {
        "name": name, "on": "", "workers": len(slots), "slots": float(len(slots)), "in": items, "out": items - failed,
        "filtered": 0, "failed": failed, "retries": sum(call.attempt > 1 for call in calls), "timeouts": 0, "restarts": 0,
        "service": {"mean": busy / items if items else None, "p50": times.quantile(0.5), "p99": times.quantile(0.99)},
        "cpu": None, **shares, "zombies": 0, "handoff": None, "kind": "map", "alone": True,
    }  # fmt: skip
