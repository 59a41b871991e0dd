"""The numbers of a report, read from the engine. What they mean is said in verdict.py, how they look in show.py."""

from __future__ import annotations

from typing import Any

from headway.core.batch import Batcher
from headway.core.engine import Engine
from headway.core.ledger import Timeline
from headway.core.spec import BatchSpec, StageSpec, UnbatchSpec
from headway.core.stage import Stage
from headway.gauges import Histogram
from headway.machine import cores
from headway.text import shown
from headway.watch.where import find

STEADY_ROWS = 20
"""Fewer rows than this have no steady rate."""


def quantiles(times: Histogram) -> dict[str, float | None]:
    """p50, p90, p99 and the largest."""
    return {
        "p50": times.quantile(0.5),
        "p90": times.quantile(0.9),
        "p99": times.quantile(0.99),
        "max": times.max if times.count else None,
    }


def phases(times: Timeline, now: float) -> dict[str, Any]:
    """The phases of the run.

    fill: first birth to first emission; drain: end of input to the last emission; steady: between the first
    emission and the last one before the end of input. Its rate is that of the rows emitted after the first;
    it has one only if it is at least twice as long as fill and drain together, and rows enough passed.
    """
    stop = times.stopped_at if times.stopped_at is not None else now
    first, last = times.first_emission, times.last_emission
    fill = first - times.first_birth if first is not None and times.first_birth is not None else None
    drain = None
    if last is not None and times.end_of_input is not None:
        drain = max(0.0, last - times.end_of_input)
    seconds = max(0.0, times.steady_until - first) if first is not None and times.steady_until is not None else 0.0
    long_enough = fill is not None and 0 < seconds >= 2 * (fill + (drain or 0.0))
    rows = times.emitted_at_end - times.emitted_first
    rate = rows / seconds if long_enough and rows >= STEADY_ROWS else None
    return {
        "elapsed": stop - times.started_at,
        "fill": fill,
        "drain": drain,
        "steady": {"rate": rate, "seconds": seconds},
        "latency": quantiles(times.latency),
        "latency_unordered": quantiles(times.latency_unordered),
    }


def source(times: Timeline, now: float) -> dict[str, float | None]:
    """What the source did since it was first asked, until it ended: fractions, None before that."""
    spans = times.source.times(times.stopped_at if times.stopped_at is not None else now)
    spans.pop("ended")
    total = sum(spans.values())
    return {state: span / total if total > 0 else None for state, span in spans.items()}


def fractions(stage: Stage, now: float) -> dict[str, float]:
    """Fractions of the time of the stage's slots by state; they add up to 1. A block in hand counts as running."""
    spans = spans_of(stage, now)
    total = sum(spans.values())
    if total <= 0:
        return dict.fromkeys(spans, 0.0) | {"starved": 1.0}
    return {state: span / total for state, span in spans.items()}


def spans_of(stage: Stage, now: float) -> dict[str, float]:
    """Seconds of the stage's slots by state, the open ones included."""
    spans = stage.meter.times(now)
    spans["busy"] += sum(max(0.0, now - slot.mark) for slot in (*stage.slots, *stage.leaving) if slot.tickets)
    return spans


def visits(engine: Engine) -> list[float]:
    """Calls of each stage for one row of the source: what the stages before let through, times calls per item.

    From counts of settled items alone, so that what is still under way does not bias it.
    """
    found, passed = [], 1.0
    for stage in engine.stages:
        meter = stage.meter
        found.append(passed * meter.timed / meter.items_in if meter.items_in else 0.0)
        passed *= meter.items_out / meter.items_in if meter.items_in else 1.0
    return found


def stages(engine: Engine, now: float) -> list[dict[str, Any]]:
    """A record for each stage, the sink included, and the consumer's own, which has the kind "consume"."""
    stop = engine.times.stopped_at if engine.times.stopped_at is not None else now
    return [
        _stage(stage, calls, stop) | {"kind": stage.spec.kind, "alone": _alone(stage.spec)}
        for stage, calls in zip(engine.stages, visits(engine), strict=True)
    ]


def _stage(stage: Stage, calls: float, stop: float) -> dict[str, Any]:
    meter, spec = stage.meter, stage.spec
    spans, share = spans_of(stage, stop), fractions(stage, stop)
    mean = meter.spans["busy"] / meter.timed if meter.timed else None
    total, slots = sum(spans.values()), float(len(stage.slots))
    begun = stop - meter.depth.begun
    if begun > 0 and abs(total / begun - slots) > 0.01 * slots:  # their number has changed
        slots = total / begun
    return {
        "name": spec.name, "on": spec.on if isinstance(spec.on, str) else type(spec.on).__name__, "workers": len(stage.slots),
        "in": meter.items_in, "out": meter.items_out, "filtered": meter.filtered, "failed": meter.failed,
        "retries": meter.retries, "timeouts": meter.timeouts, "restarts": meter.restarts,
        "service": {"mean": mean, "p50": meter.service.quantile(0.5), "p99": meter.service.quantile(0.99)},
        "cpu": meter.cpu / total if total > 0 and spec.on != "task" else None,
        "busy": share["busy"], "blocked": share["blocked"], "starved": share["starved"],
        "lane_wait": share["lane_wait"], "throttled": share["throttled"], "overhead": share["overhead"],
        "paused": share["paused"], "zombies": stage.zombies,
        "capacity": slots / (mean * calls) if mean and calls else None,
        "slots": slots, "handoff": meter.handoff_s / meter.handed if meter.handed else None,
    }  # fmt: skip


def queue(stage: Stage, now: float) -> dict[str, Any]:
    """The queue in front of a stage: `depth` and `bytes` are means over time, `now` and `age` of the oldest as it stands."""
    meter, oldest = stage.meter, stage.oldest()
    return {
        "into": stage.spec.name, "capacity": stage.capacity, "depth": meter.depth.mean(now),
        "max_depth": meter.depth.most, "age": max(0.0, now - oldest) if oldest is not None else 0.0,
        "bytes": meter.nbytes.mean(now), "now": meter.depth.value, "max_bytes": meter.nbytes.most,
    }  # fmt: skip


def gate(stage: Stage, engine: Engine, now: float) -> dict[str, Any]:
    """The re-sequencer before a stage. `blocked`: share of the time in which it held something back."""
    gate = stage.gates[0]
    waiting = gate.since is not None and not engine.finished
    found = find(engine, gate.awaited) if waiting else None
    spent = now - (engine.times.first_birth if engine.times.first_birth is not None else now)
    held_s = gate.blocked_s + (now - gate.since if waiting and gate.since is not None else 0.0)
    awaited = gate.awaited[0] if len(gate.awaited) == 1 else list(gate.awaited)
    return {
        "before": stage.spec.name, "held": gate.held_items, "peak_held": gate.peak_items, "held_bytes": gate.held_bytes,
        "awaiting": awaited if waiting else None, "awaiting_age": now - found[1] if found is not None else 0.0,
        "awaiting_where": found[0] if found is not None else None,
        "window": engine.window.items, "window_used": engine.window.used,
        "blocked": held_s / spent if spent > 0 else 0.0,
    }  # fmt: skip


def model(engine: Engine, loop_cpu_s: float = 0.0, loop_s: float = 0.0) -> dict[str, Any]:
    """What a prediction needs: the pipeline as data, and what each of its calls took, as counts by seconds.

    `loop_cpu_s` of the `loop_s` seconds of its event loop were on a processor (0: not measured).
    """
    plan, reading = engine.plan, engine.times.source.spans["reading"]
    return {
        "cores": cores(),
        "order": plan.spec.order,
        "window": engine.window.items if plan.spec.window == "auto" else plan.spec.window,
        "window_bytes": plan.spec.window_bytes,
        "source_s": reading / engine.fates.read if engine.fates.read else 0.0,
        "loop_s": loop_cpu_s / engine.fates.read if engine.fates.read else 0.0,
        "loop_share": loop_cpu_s / loop_s if loop_s > 0 else 0.0,
        "steps": [_step(step) for step in plan.spec.steps],
        "stages": {stage.spec.name: _measured(stage) for stage in engine.stages},
    }


def _step(step: StageSpec | BatchSpec | UnbatchSpec) -> dict[str, Any]:
    if isinstance(step, BatchSpec):
        return {"batch": step.size, "within": step.within, "for_map": step.for_map}
    if isinstance(step, UnbatchSpec):
        return {"unbatch": True}
    return {
        "stage": step.name, "kind": step.kind, "workers": step.workers, "queue": step.queue, "needs": step.needs,
        "keyed": step.key is not None, "alone": _alone(step),
        "rate": step.rate.rate / step.rate.per if step.rate is not None and step.rate.cost is None else None,
    }  # fmt: skip


def _alone(step: StageSpec) -> bool:
    """Whether it has one worker by its nature."""
    single = step.kind == "consume" or (step.kind == "sink" and not callable(step.fn)) or step.needs == "input"
    return single or (step.kind == "scan" and step.key is None)


def _measured(stage: Stage) -> dict[str, Any]:
    meter = stage.meter
    calls = meter.timed
    hot = max(meter.keys.counts, key=meter.keys.counts.__getitem__, default=None) if meter.keys.counts else None
    return {
        "calls": calls,
        "blocks": meter.service.count,
        "overhead_s": meter.spans["overhead"] / calls if calls else 0.0,
        "cpu_s": meter.cpu / calls if calls and stage.spec.on != "task" else None,
        "times": meter.service.pairs(),
        "hot_key": shown(hot, 60) if meter.keys.counts else None,
        "hot_share": meter.keys.counts[hot] / meter.keys.seen if meter.keys.counts else None,
        "batch": next((step.size for step in stage.steps if isinstance(step, Batcher)), None),
    }
