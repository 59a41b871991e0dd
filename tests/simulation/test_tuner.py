"""Numbers of workers found while the run goes on, in virtual time: only at the limit, up to the target, and back where nothing is gained."""

from __future__ import annotations

import logging

import pytest

from headway import Pipeline, PlanError, RetryAfter
from headway.core.plan import make_plan
from headway.core.policy import RateLimit
from headway.core.spec import PipelineSpec, StageSpec
from headway.run.tuner import Tuner
from headway.sim.driver import VirtualRun

EVERY = 100.0


def same(row):
    return row


def tuned(stages, times, *, rows=3000, target=None, order="input", **options):
    plan = make_plan(PipelineSpec("p", (*stages, StageSpec("consume", None, "output")), order=order, **options))
    run = VirtualRun(plan, range(rows), times)
    tuner = Tuner(run.engine, target)
    history = []

    def look():
        for stage, workers in tuner.look(run.now):
            history.append((run.now, stage.spec.name, workers))
            run.engine.scale(stage, workers, run.now)
        if not run.engine.finished:
            run.at(run.now + EVERY, look)

    look()
    run.run()
    assert sorted(run.outputs) == list(range(rows))
    return run, history


def test_only_the_bottleneck_gets_more_until_another_is():
    stages = [StageSpec("map", same, "a"), StageSpec("map", same, "b", most=8), StageSpec("map", same, "c")]
    run, history = tuned(stages, {"a": 1.0, "b": 4.0, "c": 2.0})
    assert {name for _, name, _ in history} == {"b"}
    assert len(run.engine.stages[1].slots) == 2
    assert run.outputs == list(range(3000)), "order is kept throughout"


def test_it_climbs_the_staircase():
    stages = [
        StageSpec("map", same, name, most=8 if name in ("process", "write") else 0)
        for name in ("read", "process", "write")
    ]
    run, _ = tuned(stages, {"read": 2.0, "process": 4.0, "write": 3.0}, rows=5000)
    slots = {stage.spec.name: len(stage.slots) for stage in run.engine.stages[:3]}
    assert slots == {"read": 1, "process": 2, "write": 2}


def test_it_stops_at_the_target():
    run, _ = tuned([StageSpec("map", same, "a", most=50)], {"a": 1.0}, target=5.0, rows=8000)
    assert 5 <= len(run.engine.stages[0].slots) <= 8
    free, _ = tuned([StageSpec("map", same, "a", most=50)], {"a": 1.0}, rows=8000)
    assert len(free.engine.stages[0].slots) > 8


def test_a_change_without_gain_is_taken_back_and_logged(caplog):
    caplog.set_level(logging.INFO, "headway.scaling")
    shared = []

    def service(_rng, _row):
        """Calls that wait for each other, as threads that compute do: twice as many take twice as long."""
        return 1.0 * len(shared[0].engine.stages[0].slots) if shared else 1.0

    plan = make_plan(PipelineSpec("p", (StageSpec("map", same, "a", most=8), StageSpec("consume", None, "output"))))
    run = VirtualRun(plan, range(2000), {"a": service})
    shared.append(run)
    tuner, history = Tuner(run.engine), []

    def look():
        for stage, workers in tuner.look(run.now):
            history.append(workers)
            run.engine.scale(stage, workers, run.now)
        if not run.engine.finished:
            run.at(run.now + EVERY, look)

    look()
    run.run()
    assert history == [2, 1]
    text = caplog.text
    assert "a: 2 workers instead of 1, predicted 1.98 rows/s" in text
    assert "observed 0.99, before 0.99" in text
    assert "back to 1 workers" in text


def test_a_stage_that_starves_or_waits_stays_as_it_is():
    stages = [StageSpec("map", same, "a", most=8), StageSpec("map", same, "b")]
    _, history = tuned(stages, {"a": 1.0, "b": 5.0}, rows=500)
    assert history == []
    _, history = tuned([StageSpec("map", same, "a", most=8, rate=RateLimit(0.5))], {"a": 1.0}, rows=500)
    assert history == []


@pytest.mark.parametrize("error", [RetryAfter(5.0), None])
def test_half_as_many_after_a_time_limit_or_a_pause(error):
    asked = []

    def call(value):
        if error is not None and value == 1000 and not asked:
            asked.append(value)
            raise error
        return value

    times = {"a": lambda _rng, row: 9.0 if error is None and row == 1000 else 1.0}
    stage = StageSpec("map", call, "a", workers=2, most=40, timeout=5.0)
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output")), on_error="skip"))
    run = VirtualRun(plan, range(4000), times)
    tuner, sizes = Tuner(run.engine), []

    def look():
        for each, workers in tuner.look(run.now):
            sizes.append((len(each.slots), workers))
            run.engine.scale(each, workers, run.now)
        if not run.engine.finished:
            run.at(run.now + 20.0, look)

    look()
    run.run()
    assert any(after == max(2, before // 2) and after < before for before, after in sizes)
    assert run.engine.stages[0].meter.timeouts == (1 if error is None else 0)


@pytest.mark.parametrize(
    ("workers", "says"),
    [((4, 2), "fewest, most"), ((0, 2), "fewest, most"), ("many", "fewest, most"), ((1, 2, 3), "fewest, most")],
)
def test_what_is_no_range_is_refused(workers, says):
    with pytest.raises(PlanError, match=says):
        Pipeline([]).map(same, workers=workers)


def test_a_range_counts_as_many_for_the_order():
    plan = Pipeline([]).map(same, workers=(1, 4)).plan().to_dict()
    assert plan["edges"][-1]["placed"] == "re-sequencer"
    with pytest.raises(PlanError, match="one worker"):
        Pipeline([]).map(same, workers="auto", needs="input")


def test_a_real_run_with_ranges_ends_as_any_other():
    report = Pipeline(range(500)).map(same, workers="auto").map(same, workers=(2, 4)).to(same).run(target_rate=10.0)
    assert report.complete
    assert report.items.written == 500
