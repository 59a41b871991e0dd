"""The staircase of four stages: exact in virtual time."""

from __future__ import annotations

import pytest

from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun
from headway.watch.report import fractions

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
