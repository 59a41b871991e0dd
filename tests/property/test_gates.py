"""Every re-sequencer that the planner places is needed: without it some schedule gives another result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.core.plan import GatePlan, Plan, make_plan
from headway.core.policy import Retry
from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.sim.driver import VirtualRun

ROWS = 60


class Flaky(Exception):
    pass


def quick(value: Any) -> Any:
    return value


def by_key(value: Any) -> int:
    return (value if isinstance(value, int) else value[0]) % 3


def total(state: int, value: Any) -> tuple[int, Any]:
    after = state * 31 + (value if isinstance(value, int) else value[0])
    return after, (value, after)


def flaky() -> Callable[[Any], Any]:
    seen: set[Any] = set()

    def fn(value: Any) -> Any:
        if value % 7 == 0 and value not in seen:
            seen.add(value)
            raise Flaky
        return value

    return fn


def stage(name: str, workers: int = 1, **options: Any) -> StageSpec:
    kind = "scan" if "initial" in options else "map"
    return StageSpec(kind, options.pop("fn", total if kind == "scan" else quick), name, workers=workers, **options)  # type: ignore[arg-type]


PIPELINES: dict[str, Callable[[], tuple[tuple[Step, ...], dict[str, Any]]]] = {
    "several workers before the consumer": lambda: ((stage("a", 3),), {}),
    "a scan behind several workers": lambda: ((stage("a", 3), stage("b", initial=1, needs="input")), {}),
    "a scan, several workers, a scan": lambda: (
        (stage("a", 3), stage("b", initial=1, needs="input"), stage("c", 2), stage("d", initial=1, needs="input")),
        {},
    ),
    "lanes behind several workers": lambda: (
        (stage("a", 3), stage("b", 2, initial=1, key=by_key, needs="key")),
        {"order": "none"},
    ),
    "lanes of another key": lambda: (
        (
            stage("a", 3, key=by_key, needs="key"),
            stage("b", 2, initial=1, key=lambda value: value % 2, needs="key"),
        ),
        {"order": "none"},
    ),
    "lanes before a consumer in input order": lambda: ((stage("a", 3, key=by_key, needs="key"),), {}),
    "second attempts before the consumer": lambda: ((stage("a", fn=flaky(), retry=Retry(2, backoff=5.0)),), {}),
    "second attempts before a batch": lambda: (
        (stage("a", fn=flaky(), retry=Retry(2, backoff=5.0)), BatchSpec(4), UnbatchSpec(), stage("b")),
        {},
    ),
    "several workers before a consumer in key order": lambda: (
        (stage("a", 3),),
        {"order": "key", "order_key": by_key},
    ),
    "batches in input order": lambda: ((stage("a", 3), BatchSpec(4)), {}),
    "a stage that relies on order": lambda: (
        (stage("a", 3), stage("b", needs="input", fn=order_of()), stage("c", 2)),
        {"order": "none"},
    ),
}


def order_of() -> Callable[[Any], Any]:
    count = iter(range(10**6))
    return lambda value: (value, next(count))


def made(name: str) -> Plan:
    steps, options = PIPELINES[name]()
    return make_plan(PipelineSpec("p", (*steps, StageSpec("consume", None, "output")), **options))


def outputs(plan: Plan, seed: int) -> Any:
    service = {s.spec.name: lambda rng, _value: rng.expovariate(1.0) for s in plan.stages}
    run = VirtualRun(plan, range(ROWS), service, seed=seed).run()
    if plan.spec.order == "input":
        return run.outputs
    if plan.spec.order == "key":
        return sorted(run.outputs, key=by_key)  # stable: the order within a key stays
    return sorted(run.outputs)


def expected(name: str) -> Any:
    """What one worker everywhere, and no failure, gives."""
    steps, options = PIPELINES[name]()
    alone = [
        StageSpec(s.kind, quick if s.retry else s.fn, s.name, needs="input" if s.kind == "scan" and not s.key else "none",
                  key=s.key, initial=s.initial)
        if isinstance(s, StageSpec) else s
        for s in steps
    ]  # fmt: skip
    spec = PipelineSpec("p", (*alone, StageSpec("consume", None, "output")), **options)
    return outputs(make_plan(spec), 0)


PLACED = [
    (name, index) for name in PIPELINES for index, s in enumerate(made(name).stages)
    if any(isinstance(step, GatePlan) for step in s.intake)
]  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_with_its_re_sequencers_every_schedule_gives_the_result_of_a_plain_loop(name: str) -> None:
    for seed in range(8):
        assert outputs(made(name), seed) == expected(name), f"seed {seed}"


@pytest.mark.parametrize(("name", "index"), PLACED)
def test_without_any_one_of_them_some_schedule_gives_another(name: str, index: int) -> None:
    for seed in range(8):
        plan = made(name)
        plan.stages[index].intake = [s for s in plan.stages[index].intake if not isinstance(s, GatePlan)]
        try:
            if outputs(plan, seed) != expected(name):
                return
        except Exception:  # something behind it that relies on the order broke
            return
    raise AssertionError("nothing changes without it: nobody needed it")


def test_all_of_these_pipelines_place_one() -> None:
    assert {name for name, _ in PLACED} == set(PIPELINES)
