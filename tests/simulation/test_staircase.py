"""The staircase of four stages: exact in virtual time."""

from __future__ import annotations

import pytest

from headway import Pipeline
from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun
from headway.watch.figures import fractions

TIMES = {"read": 2.0, "parse": 1.0, "process": 4.0, "write": 3.0}
ROWS = 1000


def staircase(times: dict[str, float], workers: dict[str, int]) -> VirtualRun:
    stages = [StageSpec("map", lambda row: row, name, workers=workers.get(name, 1)) for name in times]
    plan = make_plan(PipelineSpec("staircase", (*stages, StageSpec("consume", None, "output"))))
    run = VirtualRun(plan, range(ROWS), times).run()
    assert run.outputs == list(range(ROWS))
    return run


@pytest.mark.parametrize(
    ("changed", "workers", "first", "period"),
    [
        ({}, {}, 10.0, 4.0),
        ({"parse": 0.5}, {}, 9.5, 4.0),
        ({"read": 1.0}, {}, 9.0, 4.0),
        ({"process": 3.0}, {}, 9.0, 3.0),
        ({}, {"process": 3}, 10.0, 3.0),
        ({}, {"process": 3, "write": 2}, 10.0, 2.0),
    ],
    ids=["as it is", "faster parse", "faster read", "faster process", "three process", "three process, two write"],
)
def test_first_row_and_steady_rate_are_exact(
    changed: dict[str, float], workers: dict[str, int], first: float, period: float
) -> None:
    run = staircase(TIMES | changed, workers)
    times = run.engine.times
    assert times.first_emission == first
    assert times.last_emission is not None
    # The last rows leave a period apart: the steady rate, without fill and drain.
    ends = [stop for stage, _, _, _, stop in run.log if stage == "write"]
    ends.sort()
    middle = ends[100:900]
    assert middle[-1] - middle[0] == pytest.approx(period * (len(middle) - 1))


def test_steady_utilisation_of_the_slots_is_exact() -> None:
    run = staircase(TIMES, {})
    spans: dict[str, float] = dict.fromkeys(TIMES, 0.0)
    start, stop = 1000.0, 3000.0
    for stage, _, _, began, ended in run.log:
        spans.setdefault(stage, 0.0)
        spans[stage] += max(0.0, min(ended, stop) - max(began, start))
    used = {stage: spans[stage] / (stop - start) for stage in TIMES}
    assert used == pytest.approx({"read": 0.5, "parse": 0.25, "process": 1.0, "write": 0.75}, abs=0.002)


def test_slot_states_add_up_to_the_whole_time_and_name_the_bottleneck() -> None:
    run = staircase(TIMES, {})
    for stage in run.engine.stages[:4]:
        assert sum(fractions(stage, run.now).values()) == pytest.approx(1.0)
    read, parse, process, write = (fractions(s, run.now) for s in run.engine.stages[:4])
    assert process["busy"] > 0.99
    assert read["blocked"] > 0.4
    assert parse["blocked"] > 0.7
    assert write["starved"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("changed", "process", "write", "fill", "rate", "named"),
    [
        ({}, 1, 1, 10.0, 1 / 4, "process"),
        ({"parse": 0.5}, 1, 1, 9.5, 1 / 4, "process"),
        ({"read": 1.0}, 1, 1, 9.0, 1 / 4, "process"),
        ({"process": 3.0}, 1, 1, 9.0, 1 / 3, "process"),
        ({}, 3, 1, 10.0, 1 / 3, "write"),
        ({}, 3, 2, 10.0, 1 / 2, "read"),
    ],
)
def test_the_report_has_the_exact_rate_and_names_the_right_stage(
    changed: dict[str, float], process: int, write: int, fill: float, rate: float, named: str
) -> None:
    report = pipeline(process, write).simulate(TIMES | changed)
    assert report.fill == fill
    assert report.steady.rate == rate
    assert (report.bottleneck.stage, report.bottleneck.confirmed) == (named, True)
    assert report.bottleneck.ceiling == pytest.approx(rate)


def pipeline(process: int = 1, write: int = 1) -> Pipeline[int]:
    return (
        Pipeline(list[int]())
        .map(lambda row: row, name="read")
        .map(lambda row: row, name="parse")
        .map(lambda row: row, name="process", workers=process)
        .map(lambda row: row, name="write", workers=write)
    )


def test_what_if_climbs_the_staircase() -> None:
    report = pipeline().simulate(TIMES)
    three = report.what_if({"process": 3})
    assert three.rate == pytest.approx(1 / 3)
    assert three.low <= 1 / 3 <= three.high
    assert three.next_bottleneck == "write"
    both = report.what_if({"process": 3, "write": 2})
    assert (both.rate, both.next_bottleneck) == (pytest.approx(1 / 2), "read")
    assert report.what_if[0].change == "workers: process=2"
    assert report.what_if[0].rate == pytest.approx(1 / 3)
    assert [row.next_bottleneck for row in report.what_if] == ["write", "read"]


def test_workers_for_a_rate_are_the_fewest() -> None:
    report = pipeline().simulate(TIMES)
    assert report.workers_for(0.25) == {}
    assert report.workers_for(1 / 3) == {"process": 2}
    assert report.workers_for(0.5) == {"process": 2, "write": 2}
