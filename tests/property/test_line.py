"""A plain line on the virtual clock is what the engine does, bit by bit: every call, every draw, every figure."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from headway import Pipeline, RateLimit, Retry
from headway.core.plan import Plan, make_plan
from headway.core.spec import BatchSpec, PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun
from headway.sim.line import Line, plain
from headway.sim.service import Service, exponential, recorded, uniform
from headway.watch.report import make_report


def draw_plan(rng: random.Random) -> Plan:
    count = rng.randint(1, 5)
    stages = []
    for number in range(count):
        kind: Any = rng.choice(["map", "map", "filter", "scan"])
        many = 1 if kind == "scan" else rng.choice([1, 1, 2, 3, 7])
        queue = rng.choice([None, None, None, 2, 5, 40])
        needs = rng.choice(["none", "input"]) if many == 1 else "none"
        stages.append(StageSpec(kind, None, f"s{number}", workers=many, queue=queue, needs=needs))
    order = rng.choice(["input", "none"])
    last: Any = rng.choice(["consume", "sink"])
    stages.append(StageSpec(last, None, "end", workers=rng.choice([1, 3]) if last == "sink" and order == "none" else 1))
    window = rng.choice([None, None, None, 2, 7, 50])
    return make_plan(PipelineSpec("line", tuple(stages), order=order, window=window))


def draw_service(rng: random.Random, plan: Plan) -> dict[str, Service]:
    """Times of all sizes, some with rare long calls: blocks are then cut, and tickets in a busy worker's queue recalled."""
    service: dict[str, Service] = {}
    unit = rng.choice([1.0, 1e-2, 1e-3, 1e-3, 1e-3, 1e-4, 1e-6])
    for stage in plan.stages:
        mean = rng.choice([0.5, 1.0, 2.0, 3.0, 4.0]) * unit * rng.choice([1.0, 1.0, 1.0, 0.1])
        service[stage.spec.name] = rng.choice([
            mean, mean, exponential(mean), uniform(mean / 2, 2 * mean),
            recorded([(mean / 2, 30), (20 * mean, 1)], mean),
            lambda random, row, mean=mean: mean * (row % 3 + random.random()),
            *[lambda random, _row: 0.04 if random.random() < 0.03 else 0.0004] * 2,
            *[lambda _random, row: 0.05 if row % 50 == 37 else 0.0] * 2,
        ])  # fmt: skip
        if rng.random() < 0.1:
            del service[stage.spec.name]
    return service


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_line_is_what_the_engine_does(first: int) -> None:
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        plan = draw_plan(rng)
        assert plain(plan, {})
        service, rows = draw_service(rng, plan), rng.choice([1, 2, 30, 200, 300])
        times: dict[str, Any] = {
            "seed": seed, "source_s": rng.choice([0.0, 0.0, 0.0, 1e-3]), "think_s": rng.choice([0.0, 0.0, 0.0, 2e-3])
        }  # fmt: skip
        times["handover"] = {"s0": rng.choice([0.0, 0.0, 3e-4])}
        run = VirtualRun(plan, range(rows), service, modelled={}, **times).run()
        line = Line(plan, rows, service, **times).run()
        assert line.log == run.log, seed
        assert line.emitted == run.emitted, seed
        assert line.rng.random() == run.rng.random(), seed
        told, expected = (make_report(r.engine, "line", r.now).figures() for r in (line, run))
        assert told == expected, seed
        assert line.engine.complete, seed


def plan_of(*stages: StageSpec | BatchSpec, **options: Any) -> Plan:
    return make_plan(PipelineSpec("line", (*stages, StageSpec("consume", None, "end")), **options))


WORK = StageSpec("map", None, "work", workers=2)


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(replace(WORK, key=lambda row: row)),
        plan_of(replace(WORK, rate=RateLimit(10.0))),
        plan_of(replace(WORK, timeout=1.0)),
        plan_of(replace(WORK, deadline=1.0)),
        plan_of(replace(WORK, hedge=True, idempotent=True)),
        plan_of(StageSpec("flat_map", None, "work")),
        plan_of(BatchSpec(3), StageSpec("map_batches", None, "work")),
        plan_of(BatchSpec(3), WORK),
        plan_of(WORK, window="auto"),
    ],
    ids=["key", "rate", "timeout", "deadline", "hedge", "flat_map", "batches", "batch", "window"],
)
def test_what_is_not_plain_goes_to_the_engine(plan: Plan) -> None:
    assert not plain(plan, {})


def test_what_filters_goes_to_the_engine_and_a_retry_that_cannot_come_does_not() -> None:
    plan = plan_of(replace(WORK, retry=Retry(3)))
    assert not plain(plan, {"work": 0.5})
    assert plain(plan, {"work": 1.0})


def test_a_simulation_with_random_times_repeats_exactly() -> None:
    pipeline = Pipeline(list[int]()).map(abs, name="a", workers=3).map(abs, name="b")
    first, again, other = (
        pipeline.simulate({"a": exponential(0.003), "b": 0.001}, items=300, seed=seed) for seed in (1, 1, 2)
    )
    assert first.calls == again.calls
    assert first.calls != other.calls
