"""The visualizer: the engine itself on the virtual clock, with everything that can be watched of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from headway.core.engine import Engine
from headway.core.plan import Plan, make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.errors import PlanError
from headway.sim.driver import VirtualRun
from headway.stages import make_stage, unique
from headway.watch.report import make_report
from headway.watch.show import sentence
from headway.watch.timeline import Call, Timeline
from headway.web.bodies import MOST_CALLS, SimulatedStage, Simulation
from headway.web.shown import Refused, told_live

SLOW = 50.0
HEAVY, HEAVY_SHARE = 10.0, 0.05
MOST_SPANS, MOST_POINTS = 2_000, 2_000
"""Of one slot, and of one curve: with more of them neighbours are one."""


class PoisonError(Exception):
    """What the item that fails raises."""


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


def _same(value: Any) -> Any:
    return value


def plan_of(wanted: Simulation) -> Plan:
    """The plan. Raises Refused for what cannot work."""
    if wanted.items * len(wanted.stages) > MOST_CALLS:
        raise Refused(422, f"items times stages may be {MOST_CALLS:,} at most: take fewer items")
    names = [stage.name for stage in wanted.stages]
    if len(set(names)) < len(names):
        raise Refused(422, "two stages have one name: give each a name of its own")
    fails = slowest(wanted).name if wanted.fail_at is not None else None

    def poisoned(value: Any) -> Any:
        if value == wanted.fail_at:
            raise PoisonError(f"item {value} cannot be done")
        return value

    steps: list[StageSpec] = []
    try:
        for stage in wanted.stages:
            queue = max(wanted.items, 1) if wanted.unbounded else stage.queue
            options = {"workers": stage.workers, "queue": queue, "name": stage.name}
            steps.append(make_stage("map", poisoned if stage.name == fails else _same, options, tuple(steps)))
        queue = max(wanted.items, 1) if wanted.unbounded else steps[-1].queue
        output = StageSpec("consume", None, unique("output", tuple(steps)), queue=queue)
        window = max(wanted.items, 1) if wanted.unbounded else wanted.window
        on_error = "dead_letter" if wanted.supervised else "raise"
        spec = PipelineSpec("simulation", (*steps, output), window=window, on_error=on_error, order=wanted.order)
        return make_plan(spec)
    except PlanError as error:
        raise Refused(422, str(error)) from None


def slowest(wanted: Simulation) -> SimulatedStage:
    """The stage whose calls take longest."""
    return max(wanted.stages, key=lambda stage: stage.time)


def service_of(wanted: Simulation) -> dict[str, Any]:
    """Seconds of a call by stage, as `Pipeline.simulate` takes them."""
    slow = slowest(wanted).name if wanted.slow_at is not None else None
    return {
        stage.name: _draw(stage, wanted.slow_at if stage.name == slow else None)
        if stage.jitter != "none" or stage.name == slow
        else stage.time
        for stage in wanted.stages
    }


def _draw(stage: SimulatedStage, slow_at: int | None) -> Callable[[Random, Any], float]:
    def draw(random: Random, value: Any) -> float:
        seconds = stage.time
        if stage.jitter != "none" and seconds > 0:
            seconds = random.expovariate(1 / seconds)
            if stage.jitter == "heavy" and random.random() < HEAVY_SHARE:
                seconds *= HEAVY
        return seconds * SLOW if value == slow_at and slow_at is not None else seconds

    return draw


class _Watched:
    """Looks at the engine after every event and keeps what has changed."""

    def __init__(self, gone: Callable[[], bool]) -> None:
        self.timeline = Timeline()
        self.run: VirtualRun
        self.gate: list[tuple[float, int, Any]] = []
        self.queues: list[tuple[float, str, int]] = []
        self._gone, self._events = gone, 0
        self._last: dict[str, Any] = {}

    def look(self, engine: Engine) -> None:
        now, last = self.run.now, self._last
        self._events += 1
        if self._events % 256 == 0 and self._gone():
            raise Abandoned
        for stage in engine.stages:
            name, depth, idle = stage.spec.name, stage.meter.depth.value, stage.meter.idle_state
            if last.get(name) != (depth, idle):
                if last.get(name, (None,))[0] != depth:
                    self.queues.append((now, name, depth))
                last[name] = depth, idle
                self.timeline.idle(name, idle, now)
            for gate in stage.gates:
                held = gate.held_items, gate.awaited[0] if gate.since is not None else None
                if last.get("", ()) != held:
                    last[""] = held
                    self.gate.append((now, *held))


def simulated(wanted: Simulation, gone: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Run it and tell all. Raises Refused for settings that cannot work, Abandoned once `gone` says so."""
    plan, watched = plan_of(wanted), _Watched(gone)
    run = VirtualRun(
        plan, range(wanted.items), service_of(wanted), seed=wanted.seed, source_s=wanted.source_time,
        on_event=watched.look, modelled={} if wanted.fail_at is None else None,
    )  # fmt: skip
    watched.run = run
    if wanted.stop is not None and wanted.stop_at is not None:
        run.at(wanted.stop_at, run.stop, wanted.stop)
    run.run()
    for stage in run.engine.stages:
        for slot in stage.slots:
            watched.timeline.slots.setdefault((stage.spec.name, slot.number))
    output = plan.stages[-1].spec.name
    for name, number, tag, start, stop in run.log:
        if name != output:
            watched.timeline.add(Call(name, number, [[tag, tag]], 1, start, start, stop, stop))
    out = [(stop, tag) for name, _, tag, _, stop in run.log if name == output]
    data = told_live(make_report(run.engine, "simulation", run.now))
    end = run.now
    timeline = watched.timeline.between(0.0, end, MOST_SPANS)
    timeline["slots"] = [slot for slot in timeline["slots"] if slot["stage"] != output]
    return {
        "report": data, "sentence": sentence(data), "timeline": timeline,
        "gate": _thinned(watched.gate, end), "queues": _thinned(watched.queues, end), "out": out,
        "dead": [failure.seq for failure in run.dead],
    }  # fmt: skip


def _thinned(points: list[Any], end: float) -> list[Any]:
    """Of many points, in each of equal parts of the time the highest and the last of each curve."""
    if len(points) <= 4 * MOST_POINTS or end <= 0:
        return points
    kept: dict[tuple[int, Any, bool], Any] = {}
    for point in points:
        curve = point[1] if isinstance(point[1], str) else ""
        level = point[2] if isinstance(point[1], str) else point[1]
        part = int(point[0] / end * MOST_POINTS)
        kept[part, curve, False] = point
        high = kept.get((part, curve, True))
        if high is None or level > (high[2] if isinstance(point[1], str) else high[1]):
            kept[part, curve, True] = point
    return sorted({id(point): point for point in kept.values()}.values(), key=lambda point: point[0])
