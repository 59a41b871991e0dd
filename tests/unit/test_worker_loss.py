"""A worker dies, in virtual time: what is lost, what is tried again."""

from __future__ import annotations

import pytest

from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.errors import WorkerDied
from headway.sim.driver import VirtualRun


def run_with_deaths(idempotent: bool, deaths: list[float], workers: int = 2) -> VirtualRun:
    stage = StageSpec(
        "map", lambda x: x, "work", workers=workers, on="process", idempotent=idempotent, on_error="dead_letter"
    )
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output"))))
    run = VirtualRun(plan, range(40), {"work": 1.0})
    slot = run.engine.stages[0].slots[0]
    for at in deaths:
        run.at(at, lambda: run.kill(slot))
    return run.run()


def test_a_death_costs_the_item_that_ran_and_no_other() -> None:
    run = run_with_deaths(False, [5.5])
    (lost,) = run.dead
    assert isinstance(lost.error, WorkerDied)
    assert run.outputs == [x for x in range(40) if x != lost.value]
    assert run.engine.complete
    assert run.engine.stages[0].meter.restarts == 1


def test_an_idempotent_item_is_tried_once_more_and_in_its_place() -> None:
    run = run_with_deaths(True, [5.5, 11.5])
    assert run.dead == []
    assert run.outputs == list(range(40))
    assert run.engine.complete


def test_an_item_whose_second_worker_dies_too_is_given_up() -> None:
    run = run_with_deaths(True, [5.5, 6.0], workers=1)
    (lost,) = run.dead
    assert lost.attempts == 2
    assert run.outputs == [x for x in range(40) if x != lost.value]


@pytest.mark.parametrize("at", [0.5 * n for n in range(1, 40)])
def test_a_death_at_any_time_leaves_every_item_with_one_fate(at: float) -> None:
    run = run_with_deaths(False, [at, at + 3.2])
    assert run.engine.fates.balanced
    assert run.engine.fates.written + run.engine.fates.dead == 40
