"""Traps known in advance: five mistakes that pipelines of this kind are made with."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from conformance.faults import DROP
from conformance.modes import MODES, run
from headway import Pipeline
from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun
from headway.sim.service import exponential

Stages = list[tuple[str, int, int | None]]


def virtual(
    stages: Stages, rows: Any, service: Any, *, window: int | None = None, seed: int = 0, **how: Any
) -> VirtualRun:
    """Stages (name, workers, queue) in input order on the virtual clock."""
    steps = [
        StageSpec("map", lambda value: value, name, workers=workers, queue=queue) for name, workers, queue in stages
    ]
    steps.append(StageSpec("consume", None, "output"))
    return VirtualRun(make_plan(PipelineSpec("p", tuple(steps), window=window)), rows, service, seed=seed, **how)


@pytest.mark.parametrize("policy", ["skip", "keep", "dead_letter"])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_filtered_or_failed_never_reaches_the_next_stage(mode, policy):
    def sort_out(value: int) -> Any:
        if value % 3 == 0:
            raise ValueError("bad")
        return DROP if value % 3 == 1 else value

    def strict(value: Any) -> int:
        if type(value) is not int or value % 3 != 2:
            raise AssertionError(f"met {value!r}")
        return value

    def describe(source, on):
        stages = Pipeline(source, on_error=policy).map(sort_out, on=on, workers=2)
        on = "thread" if on == "process" else on
        return stages.filter(lambda value: strict(value) > 0, on=on, name="keep").map(strict, on=on)

    out = run(mode, describe, range(60))
    good = [n for n in range(60) if n % 3 == 2]
    assert [v for v in out.outputs if isinstance(v, int)] == good
    assert out.counts("sort_out") == (60, 20, 20, 20)
    assert out.counts("keep") == (20, 20, 0, 0)
    assert out.counts("strict") == (20, 20, 0, 0)


@pytest.mark.parametrize("window", [1, 2, 7, 64])
def test_the_re_sequencer_needs_no_total_and_holds_at_most_the_window_less_one(window):
    held = []

    def watch(engine: Any) -> None:
        held.append(max(gate.held_items for stage in engine.stages for gate in stage.gates))

    # Endless, and the first item is by far the slowest: all others wait for it.
    service = {"work": lambda _rng, value: 1000.0 if value == 0 else 0.001}
    endless = virtual(
        [("work", 100, None)], itertools.count(), service, window=window, leave_after=500, on_event=watch
    ).run()
    assert endless.outputs == list(range(500))
    assert max(held) == window - 1


def test_window_and_concurrency_are_two_numbers():
    def slow_one_in_a_hundred(rng: random.Random, value: int) -> float:
        return 0.2 if value % 100 == 37 else rng.uniform(0.001, 0.010)

    service = {"first": slow_one_in_a_hundred, "second": lambda rng, _value: rng.uniform(0.001, 0.010)}
    stages: Stages = [("first", 8, None), ("second", 8, None)]
    times = {window: virtual(stages, range(1000), service, window=window).run().now for window in (8, 256, None)}
    assert times[8] > 1.8 * times[None]
    assert times[256] < 1.1 * times[None]
    assert make_plan(PipelineSpec("p", (StageSpec("map", abs, "abs", workers=8),), order="none")).window() >= 256


def test_the_slowest_stage_is_a_ceiling_and_not_a_promise():
    def share_of_the_ceiling(queue: int) -> float:
        names = "abcd"
        line = virtual([(name, 1, queue) for name in names], range(3000), {name: exponential(1.0) for name in names})
        return 3000 / line.run().now

    shares = {queue: share_of_the_ceiling(queue) for queue in (1, 2, 8, 64)}
    assert shares[1] < shares[2] < shares[8] < shares[64] < 1.0
    assert 0.45 < shares[1] < 0.70
    assert 0.80 < shares[8] < 0.90
    regular = virtual([(name, 1, 1) for name in "abcd"], range(3000), dict.fromkeys("abcd", 1.0))
    assert 3000 / regular.run().now > 0.99
