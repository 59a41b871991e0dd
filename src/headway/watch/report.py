"""The report of a run, finished or live. It reads the engine and changes nothing.

What to change next (what-if, advice) is computed elsewhere; its fields stand here empty.
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headway.core.engine import Engine
from headway.core.ledger import Timeline
from headway.core.stage import Stage
from headway.errors import Failure
from headway.text import message, shown

STEADY_ROWS = 20
"""Fewer rows than this have no steady rate."""
RUNS = 20
"""Most runs of unfinished rows that are told in words."""


class Record(dict[str, Any]):
    """A part of a report: a dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return Record({key: _records(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_records(item) for item in value]
    return value


class Report:
    """What happened in a run: counts, rates and times of the whole and of every stage.

    Times are seconds, rates rows of the source per second. Fields are attributes; `to_dict` has
    the same as plain data. ``dead_letters`` are the failures that were set aside in memory,
    ``states`` those of each scan by stage and key (None without one), ``ignored`` what an inline run did not do.
    """

    def __init__(
        self,
        data: dict[str, Any],
        *,
        dead_letters: list[Failure] | None = None,
        states: dict[str, dict[Any, Any]] | None = None,
    ) -> None:
        self._data = data
        self.states: dict[str, dict[Any, Any]] = states if states is not None else {}
        self.dead_letters: list[Failure] = dead_letters if dead_letters is not None else []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._data:
            raise AttributeError(name)
        return _records(self._data[name])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return json.loads(json.dumps(self._data))  # type: ignore[no-any-return]

    def to_json(self, path: str | Path) -> None:
        """Write the report to `path`."""
        Path(path).write_text(json.dumps(self._data, indent=1) + "\n", encoding="utf-8")

    @property
    def summary(self) -> str:
        """What was read, what was done, and the numbers of what was not, in one line."""
        items = self._data["items"]
        counts = ", ".join(f"{items[k]:,} {k}" for k in items if items[k] or k in ("read", "written"))
        return ", ".join([counts, *_not_finished(self._data)])

    def __repr__(self) -> str:
        return f"<Report of {self._data['name']!r}: {self._data['state']}>"

    def __str__(self) -> str:
        return "\n".join(_lines(self._data))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def make_report(
    engine: Engine,
    name: str,
    now: float,
    *,
    dead_letters: list[Failure] | None = None,
    states: dict[str, dict[Any, Any]] | None = None,
    ignored: list[str] | None = None,
) -> Report:
    """The report of `engine` as it stands at `now`."""
    times = _times(engine.times, now)
    elapsed = times["elapsed"]
    data: dict[str, Any] = {
        "name": name,
        "state": engine.state if engine.finished else "running",
        "items": asdict(engine.fates),
        **times,
        "stages": [_stage(stage, engine, now) for stage in engine.stages if stage.spec.kind != "consume"],
        "queues": [_queue(stage, now) for stage in engine.stages],
        "reorder": [_gate(stage, engine, now) for stage in engine.stages for _ in stage.gates],
    }
    seconds = elapsed if isinstance(elapsed, float) else 0.0
    data["rate"] = engine.times.emitted_roots / seconds if seconds > 0 else None
    data["bottleneck"] = _bottleneck(data["stages"], engine)
    data |= {"what_if": [], "advice": [], "ignored": ignored or []}
    data["failures"] = [
        {"seq": f.seq, "stage": f.stage, "attempts": f.attempts, "error": type(f.error).__name__,
         "message": message(f.error), "value": shown(f.value)}
        for f in engine.failures
    ]  # fmt: skip
    data["unfinished"] = _unfinished(engine) if engine.finished else []
    data["complete"] = engine.complete
    return Report(data, dead_letters=dead_letters, states=states)


def _unfinished(engine: Engine) -> list[list[int]]:
    """First and last number of each run of rows that were read and not brought to their end."""
    spans = engine.frontier.spans()
    starts = [lo for lo, _ in spans[1:]] + [(engine.fates.read,)]
    gaps = ((hi[0], lo[0] - (len(lo) == 1)) for (_, hi), lo in zip(spans, starts, strict=True))
    return [[first, last] for first, last in gaps if first <= last]


def _times(times: Timeline, now: float) -> dict[str, Any]:
    """The phases of the run.

    The steady interval runs from the first emission to the end of input; it has a rate only if it
    is at least twice as long as fill and drain together, and rows enough passed.
    """
    stop = times.stopped_at if times.stopped_at is not None else now
    end = times.end_of_input if times.end_of_input is not None else stop
    first, last = times.first_emission, times.last_emission
    fill = first - times.first_birth if first is not None and times.first_birth is not None else None
    drain = max(0.0, last - end) if last is not None else None
    seconds = max(0.0, end - first) if first is not None else 0.0
    long_enough = fill is not None and drain is not None and 0 < seconds >= 2 * (fill + drain)
    steady = long_enough and times.emitted_at_end >= STEADY_ROWS
    latency = times.latency
    return {
        "elapsed": stop - times.started_at,
        "fill": fill,
        "drain": drain,
        "steady": {"rate": times.emitted_at_end / seconds if steady else None, "seconds": seconds},
        "latency": {
            "p50": latency.quantile(0.5),
            "p90": latency.quantile(0.9),
            "p99": latency.quantile(0.99),
            "max": latency.max if latency.count else None,
        },
    }


def _stage(stage: Stage, engine: Engine, now: float) -> dict[str, Any]:
    meter, spec = stage.meter, stage.spec
    stop = engine.times.stopped_at if engine.times.stopped_at is not None else now
    times = fractions(stage, stop)
    mean = meter.spans["busy"] / meter.timed if meter.timed else None
    visits = meter.timed / engine.fates.read if engine.fates.read else 0.0
    return {
        "name": spec.name, "on": spec.on if isinstance(spec.on, str) else type(spec.on).__name__, "workers": len(stage.slots),
        "in": meter.items_in, "out": meter.items_out, "filtered": meter.filtered, "failed": meter.failed,
        "retries": meter.retries, "timeouts": meter.timeouts, "restarts": meter.restarts,
        "service": {"mean": mean, "p50": meter.service.quantile(0.5), "p99": meter.service.quantile(0.99)},
        "cpu": meter.cpu, "busy": times["busy"], "blocked": times["blocked"], "starved": times["starved"],
        "lane_wait": times["lane_wait"], "throttled": times["throttled"], "overhead": times["overhead"],
        "paused": times["paused"], "zombies": stage.zombies,
        "capacity": len(stage.slots) / (mean * visits) if mean and visits else None,
    }  # fmt: skip


def fractions(stage: Stage, now: float) -> dict[str, float]:
    """Fractions of the time of the stage's slots by state; they add up to 1. A block in hand counts as running."""
    spans = stage.meter.times(now)
    spans["busy"] += sum(max(0.0, now - slot.mark) for slot in stage.slots if slot.tickets)
    total = sum(spans.values())
    return {state: span / total if total > 0 else 0.0 for state, span in spans.items()}


def _queue(stage: Stage, now: float) -> dict[str, Any]:
    oldest = stage.oldest()
    age = now - oldest if oldest is not None else 0.0
    return {
        "into": stage.spec.name, "capacity": stage.capacity, "depth": stage.inbox.queued,
        "max_depth": stage.max_depth, "age": age, "bytes": stage.inbox.nbytes,
    }  # fmt: skip


def _gate(stage: Stage, engine: Engine, now: float) -> dict[str, Any]:
    gate = stage.gates[0]
    where = next(
        (f"{t.stage.spec.name}, slot {t.slot.number}" for t in engine.tickets.values()
         if any(b.lo <= gate.awaited < b.hi for b in t.blocks)),
        next((f"in front of {s.spec.name}" for s in engine.stages
              if any(b.lo <= gate.awaited < b.hi for b in s.inbox.all())), None),
    )  # fmt: skip
    waiting = gate.since is not None
    return {
        "before": stage.spec.name, "held": gate.held_items, "peak_held": gate.peak_items,
        "held_bytes": gate.held_bytes, "awaiting": gate.awaited[0] if waiting else None,
        "awaiting_age": now - gate.since if gate.since is not None else 0.0, "awaiting_where": where if waiting else None,
        "window": engine.window.items, "window_used": engine.window.used,
    }  # fmt: skip


def _bottleneck(stages: list[dict[str, Any]], engine: Engine) -> dict[str, Any] | None:
    """The stage of least capacity, and whether what was measured around it confirms it."""
    known = [(s["capacity"], i) for i, s in enumerate(stages) if s["capacity"]]
    if not known:
        return None
    ceiling, at = min(known)
    stage = stages[at]
    behind = stages[at + 1 :]
    confirmed = stage["busy"] >= 0.9 and all(s["starved"] > 0 for s in behind)
    if stage["busy"] < 0.5 and stages[0]["starved"] > 0.5:
        because = f"{stages[0]['name']} waits for it {stages[0]['starved']:.0%} of the time"
        return {
            "stage": "source",
            "verdict": "source_limited",
            "confirmed": stages[0]["starved"] >= 0.9,
            "ceiling": None,
            "because": because,
        }
    if engine.stages[-1].spec.kind == "sink" and at == len(stages) - 1:
        verdict, because = "sink_limited", f"{stage['name']} is busy {stage['busy']:.0%} of the time"
    else:
        verdict, because = "stage_limited", f"{stage['name']} is busy {stage['busy']:.0%} of the time"
    return {"stage": stage["name"], "verdict": verdict, "confirmed": confirmed, "ceiling": ceiling, "because": because}


def _not_finished(data: dict[str, Any]) -> list[str]:
    """The numbers of the rows that were not finished, in words, if there are any."""
    runs = [f"{first}" if first == last else f"{first} to {last}" for first, last in data["unfinished"]]
    more = f" and {len(runs) - RUNS:,} more such runs" if len(runs) > RUNS else ""
    return [f"not finished: {', '.join(runs[:RUNS])}{more}"] if runs else []


def _lines(data: dict[str, Any]) -> list[str]:
    items = data["items"]
    rate = data["steady"]["rate"]
    if rate is not None:
        speed = f"{rate:,.0f} rows/s steady"
    elif data["rate"] is not None:
        speed = f"{data['rate']:,.0f} rows/s over all; the run was too short for a steady rate"
    else:
        speed = "no rate"
    counts = ", ".join(f"{items[k]:,} {k}" for k in items if items[k] or k in ("read", "written"))
    lines = [f"{data['name']}: {data['state']} in {data['elapsed']:.2f} s, {speed}", f"  {counts}"]
    lines += [f"  {text}" for text in _not_finished(data)]
    if not data["complete"] and data["state"] != "running":
        lines.append("  the counts do not add up")
    neck = data["bottleneck"]
    if neck is not None:
        sure = "confirmed" if neck["confirmed"] else "not confirmed"
        lines.append(
            f"  bottleneck: {neck['stage']} ({neck['verdict']}, {sure}): {neck['because']}"
            + (f"; at most {neck['ceiling']:,.0f} rows/s" if neck["ceiling"] is not None else "")
        )
    width = max([len(s["name"]) for s in data["stages"]], default=0)
    digits = max([len(str(s["workers"])) for s in data["stages"]], default=1)
    for s in data["stages"]:
        mean = s["service"]["mean"]
        each = f"{1e3 * mean:9.3f} ms a call" if mean is not None else "no calls"
        lines.append(
            f"  {s['name']:<{width}}  {s['workers']:>{digits}} x {s['on']:<7} busy {s['busy']:4.0%}  blocked {s['blocked']:4.0%}  "
            f"starved {s['starved']:4.0%}  {each}"
        )
    lines += [
        f"  re-sequencer before {gate['before']}: held at most {gate['peak_held']:,} of window {gate['window']:,}"
        for gate in data["reorder"]
    ]
    lines += [
        f"  failed: item {failure['seq']} in {failure['stage']}: {failure['error']}: {failure['message']}"
        for failure in data["failures"][:3]
    ]
    lines += [f"  not done in one thread: {text}" for text in data["ignored"]]
    return lines
