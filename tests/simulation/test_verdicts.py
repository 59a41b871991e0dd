"""Verdicts on the virtual clock: what limits a pipeline is known there, so what is said of it can be checked."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pytest

from headway import Pipeline, RateLimit
from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.gauges import Heavy, Level
from headway.sim.driver import VirtualRun
from headway.sim.service import recorded
from headway.watch.ceilings import shared_ceilings
from headway.watch.report import Report, make_report
from headway.watch.verdict import judge

STATES = ("busy", "overhead", "blocked", "starved", "lane_wait", "throttled", "paused")


def same(row):
    return row


def three(**options):
    return (
        Pipeline([], **options.pop("pipeline", {}))
        .map(same, name="first")
        .map(same, name="middle", **options)
        .to(same, name="last")
    )


def test_a_stage_that_is_always_busy_is_named_with_its_capacity():
    report = three().simulate({"first": 1.0, "middle": 2.0, "last": 1.5})
    assert report.bottleneck.stage == "middle"
    assert report.bottleneck.verdict == "stage_limited"
    assert report.bottleneck.confirmed
    assert report.bottleneck.ceiling == 0.5
    assert report.steady.rate == pytest.approx(0.5)
    assert "workers=2" in report.bottleneck.todo


def test_a_slow_sink_is_the_limit_and_counts_as_a_stage():
    report = three().simulate({"first": 1.0, "middle": 2.0, "last": 2.5})
    assert (report.bottleneck.stage, report.bottleneck.verdict) == ("last", "sink_limited")


def test_a_slow_source_is_not_a_stages_fault():
    plan = make_plan(PipelineSpec("p", (StageSpec("map", same, "work"), StageSpec("sink", same, "write"))))
    run = VirtualRun(plan, range(500), {"work": 1.0, "write": 0.5}, source_s=3.0).run()
    neck = make_report(run.engine, "p", run.now).bottleneck
    assert (neck.stage, neck.verdict, neck.confirmed) == ("source", "source_limited", True)


def test_a_source_that_ended_long_before_the_run_is_not_its_limit():
    stages = (StageSpec("map", same, "work", workers=4), StageSpec("sink", same, "write"))
    run = VirtualRun(make_plan(PipelineSpec("p", stages)), range(3), {"work": 5.0, "write": 0.5}, source_s=0.01).run()
    report = make_report(run.engine, "p", run.now)
    assert report.source["reading"] == 1.0
    assert report.bottleneck.stage == "work"


def test_what_is_opened_before_the_first_row_is_none_of_the_sources_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("headway.run.inline.perf_counter", lambda: now[0])

    @contextmanager
    def loaded():
        now[0] += 60.0
        yield 1

    def rows():
        for n in range(10):
            now[0] += 0.5
            yield n

    report = Pipeline(rows()).map(lambda n, one: n + one, setup=loaded).run(mode="inline")
    assert report.figures()["model"]["source_s"] == pytest.approx(0.5)


def test_a_slow_consumer_is_named():
    plan = make_plan(PipelineSpec("p", (StageSpec("map", same, "work"), StageSpec("consume", None, "output"))))
    run = VirtualRun(plan, range(500), {"work": 1.0}, think_s=3.0).run()
    report = make_report(run.engine, "p", run.now)
    assert (report.bottleneck.stage, report.bottleneck.verdict) == ("output", "sink_limited")
    assert "consumer" in report.bottleneck.because
    assert [stage.name for stage in report.stages] == ["work"]


def test_a_rate_limit_is_told_from_a_slow_stage():
    report = three(workers=4, rate=RateLimit(2.0)).simulate({"first": 0.1, "middle": 0.3, "last": 0.1})
    assert (report.bottleneck.stage, report.bottleneck.verdict) == ("middle", "rate_limited")
    assert report.bottleneck.ceiling == pytest.approx(2.0)
    assert report.steady.rate == pytest.approx(2.0, rel=0.02)


def test_a_hot_key_is_named_with_the_ceiling_of_its_share():
    stage = StageSpec("map", same, "post", workers=8, needs="key", key=lambda row: 0 if row % 2 else row)
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("sink", same, "write")), order="none"))
    run = VirtualRun(plan, range(3000), {"post": 1.0}).run()
    report = make_report(run.engine, "p", run.now)
    neck = report.bottleneck
    assert (neck.stage, neck.verdict, neck.confirmed) == ("post", "key_limited", True)
    assert neck.ceiling == pytest.approx(1 / (0.5 * 1.0), rel=0.02)
    assert "key 0 has 50%" in neck.because
    assert report.stages[0].lane_wait > 0.5


def test_a_window_that_is_too_small_is_told_from_one_that_order_fills():
    def service(rng, _row):
        return 40.0 if rng.random() < 0.02 else 1.0

    held = three(workers=8, pipeline={"window": 24}).simulate({"middle": service}, items=2000)
    assert held.bottleneck.verdict == "order_limited"
    assert held.bottleneck.stage == "last"
    small = (
        Pipeline([], window=4)
        .map(same, workers=4, name="first")
        .map(same, workers=4, name="second")
        .ordered("none")
        .simulate({"first": 1.0, "second": 1.0})
    )
    assert (small.bottleneck.verdict, small.bottleneck.stage) == ("window_limited", "source")
    assert small.reorder == []


def record(name, on="thread", **fields):
    base = dict.fromkeys(STATES, 0.0) | {
        "name": name, "on": on, "kind": "map", "workers": 1, "slots": 1.0, "capacity": 100.0, "alone": False,
        "service": {"mean": 0.01, "p50": 0.01, "p99": 0.01}, "cpu": 0.0,
    }  # fmt: skip
    return base | fields


def model(*stages, cores=4, **cpu_s):
    measured = {s["name"]: {"cpu_s": cpu_s.get(s["name"]), "hot_share": None} for s in stages}
    return {"cores": cores, "steps": [], "stages": measured}


SOURCE = {"reading": 0.1, "window_wait": 0.0, "blocked": 0.9}


def test_a_thread_stage_that_computes_is_limited_by_the_interpreter_and_processes_are_proposed():
    work = record("work", workers=4, slots=4.0, busy=0.97, cpu=0.24, service={"mean": 0.04, "p50": 0.04, "p99": 0.05})
    write = record("write", kind="sink", busy=0.1, starved=0.9, capacity=900.0)
    found = judge([work, write], SOURCE, [], model(work, write, work=0.0097), 98.0)
    assert found["verdict"] == "gil_limited"
    assert found["stage"] == "work"
    assert found["confirmed"]
    assert 'on="process"' in found["todo"]
    assert found["ceiling"] == pytest.approx(1 / 0.0097)


def test_a_sink_that_computes_on_the_only_thread_is_limited_by_its_own_calls():
    parse = record("parse", "process", workers=2, slots=2.0, busy=0.75, starved=0.2, capacity=115.0)
    write = record("write", kind="sink", alone=True, busy=0.94, cpu=0.85, capacity=98.0)
    found = judge([parse, write], SOURCE, [], model(parse, write, write=0.0094), 92.0)
    assert (found["stage"], found["verdict"], found["confirmed"]) == ("write", "sink_limited", True)
    beside = record("beside", busy=0.3, cpu=0.3, capacity=300.0)
    found = judge([beside, write], SOURCE, [], model(beside, write, beside=0.002, write=0.0094), 85.0)
    assert found["verdict"] == "gil_limited"


def test_threads_that_wait_are_not_limited_by_the_interpreter():
    work = record("work", busy=0.97, cpu=0.05)
    found = judge([work], SOURCE, [], model(work, work=0.0005), 97.0)
    assert found["verdict"] == "stage_limited"


def test_processes_that_use_all_processors_are_limited_by_those():
    work = record("work", "process", workers=8, slots=8.0, busy=0.97, cpu=0.24, capacity=210.0,
                  service={"mean": 8 / 210, "p50": 0.04, "p99": 0.05})  # fmt: skip
    found = judge([work], SOURCE, [], model(work, cores=2, work=0.0098), 200.0)
    assert found["verdict"] == "core_limited"
    assert found["ceiling"] == pytest.approx(2 / 0.0098)


def test_code_that_lets_go_of_the_interpreter_is_not_held_up_by_it():
    work = record("work", workers=4, slots=4.0, busy=0.97, cpu=0.9, capacity=400.0)
    verdicts = {c.verdict for c in shared_ceilings([work], model(work, work=0.01))}
    assert "gil_limited" not in verdicts


def tasks(share, loop_s=0.00016, **measured):
    """64 async calls at a time, and what the event loop takes: `share` of the time, `loop_s` seconds a row."""
    work = record("work", "task", workers=64, slots=64.0, busy=0.76, overhead=0.23, capacity=64 / 0.0075, cpu=None,
                  service={"mean": 0.0075, "p50": 0.0075, "p99": 0.008})  # fmt: skip
    return [work], model(work) | {"loop_s": loop_s, "loop_share": share, **measured}


def test_an_event_loop_that_is_always_busy_is_the_limit_and_not_the_stage_whose_calls_wait_for_it():
    stages, measured = tasks(0.99)
    found = judge(stages, SOURCE, [], measured, 6100.0)
    assert (found["stage"], found["verdict"], found["confirmed"]) == ("work", "handoff_limited", True)
    assert found["ceiling"] == pytest.approx(1 / 0.00016)
    assert "event loop" in found["because"]
    assert "160 µs" in found["because"]
    assert "more workers change nothing" in found["todo"]


def test_what_a_loop_takes_that_has_little_to_do_bounds_nothing():
    stages, measured = tasks(0.11, loop_s=0.0006)
    assert shared_ceilings(stages, measured) == []
    assert judge(stages, SOURCE, [], measured, 180.0)["verdict"] != "handoff_limited"


def test_the_loop_and_threads_that_compute_share_one_interpreter():
    work = record("work", busy=0.9, cpu=0.8, capacity=110.0, service={"mean": 1 / 110, "p50": 0.009, "p99": 0.01})
    found = {
        c.verdict: c.rate
        for c in shared_ceilings([work], model(work, work=0.009) | {"loop_s": 0.001, "loop_share": 0.1})
    }
    assert found == {"gil_limited": pytest.approx(1 / 0.010), "core_limited": pytest.approx(4 / 0.010)}


def test_a_report_without_figures_of_its_loop_is_judged_as_before():
    work = record("work", busy=0.97, cpu=0.9)
    assert [c.rate for c in shared_ceilings([work], model(work, work=0.01))] == pytest.approx([100.0, 400.0])


def test_a_stage_whose_time_goes_into_handing_over_is_told_so():
    work = record("work", busy=0.2, overhead=0.75)
    other = record("other", starved=0.9, capacity=500.0)
    found = judge([work, other], SOURCE, [], model(work, other), 19.0)
    assert found["verdict"] == "handoff_limited"
    assert "one stage" in found["todo"]


def test_stages_that_wait_for_each_other_are_balanced():
    def varying(rng, _row):
        return rng.expovariate(1.0)

    pipeline = Pipeline([])
    for name in "abcd":
        pipeline = pipeline.map(same, name=name, queue=1)
    report = pipeline.simulate(dict.fromkeys("abcd", varying), items=3000, seed=1)
    assert report.bottleneck.verdict == "balanced"
    assert 0.4 < report.steady.rate < 0.7, "small queues and varying times lower what 1 / slowest stage promises"


@pytest.mark.parametrize("seed", range(5))
def test_every_slot_is_always_in_exactly_one_state(seed):
    def varying(rng, _row):
        return rng.expovariate(1.0)

    stages = [
        StageSpec("map", same, "a", workers=3, rate=RateLimit(2.0)),
        StageSpec("map", same, "b", workers=2, needs="key", key=lambda row: row % 3),
        StageSpec("map", same, "c", queue=1, timeout=3.0),
    ]
    plan = make_plan(PipelineSpec("p", (*stages, StageSpec("sink", same, "d")), on_error="skip", window=9))
    looked = []

    def look(engine):
        for stage in engine.stages:
            total = sum(stage.meter.times(run.now).values())
            total += sum(run.now - slot.mark for slot in stage.slots if slot.tickets)
            looked.append(total - len(stage.slots) * run.now)

    run = VirtualRun(plan, range(300), dict.fromkeys("abcd", varying), seed=seed, on_event=look)
    run.run()
    assert max(map(abs, looked)) < 1e-6 * run.now
    report = make_report(run.engine, "p", run.now)
    for stage in report.stages:
        assert sum(stage[state] for state in STATES) == pytest.approx(1.0)
    assert sum(report.source[state] for state in report.source) == pytest.approx(1.0)


def test_a_stall_is_shown_at_once():
    plan = make_plan(PipelineSpec("p", (StageSpec("map", same, "a"), StageSpec("sink", same, "b"))))
    run = VirtualRun(plan, range(100), {"a": lambda _rng, row: 1000.0 if row == 10 else 0.001})
    seen = []
    run.at(1.0, lambda: seen.append(make_report(run.engine, "p", run.now)))
    run.run()
    stage = seen[0].stages[0]
    assert stage.busy > 0.98
    assert seen[0].stages[1].starved > 0.98
    assert seen[0].queues[0].age > 0.98
    assert seen[0].items.read > 10


def test_a_level_is_weighted_by_time():
    level = Level(0.0)
    level.set(4, 1.0)
    level.set(0, 3.0)
    assert level.mean(4.0) == 2.0
    assert level.most == 4


def test_the_most_frequent_key_is_found_among_many():
    heavy = Heavy()
    for number in range(100_000):
        heavy.add("hot" if number % 10 == 0 else number)
    assert max(heavy.counts, key=heavy.counts.__getitem__) == "hot"
    assert heavy.counts["hot"] / heavy.seen == pytest.approx(0.1, abs=1 / 256)


def test_a_report_is_written_and_read_again(tmp_path):
    report = three().simulate({"first": 1.0, "middle": 2.0, "last": 1.5})
    report.to_json(tmp_path / "report.json")
    again = Report.from_json(tmp_path / "report.json")
    assert again.to_dict() == report.to_dict()
    assert str(again) == str(report)
    assert again.what_if({"middle": 2}).rate == pytest.approx(1 / 1.5)


@pytest.mark.parametrize("ask", [4, 8])
def test_a_prediction_knows_that_handing_over_costs_as_much_for_many_items_as_for_one(ask: int) -> None:
    # A wait of a millisecond before and behind one of ten: while they wait for it they are given single items.
    times, costs = {"a": 0.001, "b": 0.010, "c": 0.001}, dict.fromkeys("abc", 0.0015)

    def run(workers: int) -> Report:
        stages = [StageSpec("map", same, name, workers=workers if name == "b" else 1) for name in times]
        plan = make_plan(PipelineSpec("p", (*stages, StageSpec("consume", None, "output"))))
        found = VirtualRun(plan, range(3000), times, handover=costs, modelled={}).run()
        return make_report(found.engine, "p", found.now)

    made, then = run(1).what_if({"b": ask}), run(ask).steady.rate
    assert then is not None
    assert made.rate == pytest.approx(then, rel=0.05)


def test_a_prediction_for_more_writers_knows_what_handing_over_costs_them() -> None:
    def run(workers: int, order: str) -> Report:
        plan = make_plan(PipelineSpec("p", (StageSpec("sink", same, "write", workers=workers),), order=order))
        found = VirtualRun(plan, range(2000), {"write": 0.005}, handover={"write": 0.0005}, modelled={}).run()
        return make_report(found.engine, "p", found.now)

    made, then = run(1, "input").what_if({"write": 4}), run(4, "none").steady.rate
    assert made.rate == pytest.approx(then, rel=0.02)


def test_times_are_drawn_so_that_a_short_simulation_has_the_mean_that_was_measured() -> None:
    draw = recorded([(1.0, 95), (20.0, 5)], 3.9)
    for seed in range(20):
        rng = random.Random(seed)
        drawn = [draw(rng, None) for _ in range(320)]
        assert sum(drawn) / 320 == pytest.approx(
            3.9, rel=0.11
        )  # drawn one by one, it would be 12% off or more now and then
        assert sorted(set(drawn)) == pytest.approx([2.0, 40.0])


@pytest.mark.slow  # a machine that is busy with other tests has another bottleneck
def test_what_processes_would_give_a_stage_that_computes_is_predicted():
    def computes(row: int) -> int:
        return sum(range(40_000)) + row

    report = Pipeline(range(400)).map(computes, name="work", workers=2).to(str, name="end").run()
    assert report.bottleneck.verdict == "gil_limited"
    [row] = report.what_if
    processes = max(2, report.to_dict()["model"]["cores"])
    assert row["change"] == f'work on="process", workers={processes}'
    assert row["low"] < row["rate"] < row["high"]
    assert row["rate"] > report.rate
