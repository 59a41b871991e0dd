"""A worker dies, in virtual time: what is lost, what is tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.core.block import Tag
from headway.core.engine import Engine
from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.core.ticket import Answer
from headway.errors import Raised, WorkerDied
from headway.sim.driver import VirtualRun

OUT = StageSpec("consume", None, "output")


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


def test_a_death_that_names_a_call_already_answered_costs_nothing_handed_out_since() -> None:
    stage = StageSpec("map", lambda x: x, "work", workers=1, on="process", on_error="dead_letter")
    run = VirtualRun(make_plan(PipelineSpec("p", (stage, OUT))), range(40), {"work": 1.0})
    slot = run.engine.stages[0].slots[0]

    def die() -> None:
        run._workers.pop(slot)
        died = Raised(WorkerDied("killed", stage="work"), "WorkerDied\n")
        run.engine.lost(slot, died, run.now, Answer(-5, 0, started=run.now, stopped=run.now), 0)

    run.at(5.5, die)
    run.run()
    assert run.dead == []
    assert run.outputs == list(range(40))


def test_an_expansion_that_was_to_go_on_is_lost_with_its_worker_and_gives_no_child_twice() -> None:
    def tens(value: int) -> Iterator[int]:
        yield from range(10 * value, 10 * value + 10)

    def die_before_it_goes_on(engine: Engine) -> None:
        slot = engine.stages[0].slots[0]
        if not died and slot.tickets and slot.tickets[0].resumed:
            died.append(slot.tickets[0].blocks[0].tags[0])
            run._workers.pop(slot)
            engine.lost(slot, Raised(WorkerDied("killed", stage="expand"), "WorkerDied\n"), run.now, None, None)

    died: list[Tag] = []
    stages = (
        StageSpec("flat_map", tens, "expand", on="process", queue=2, on_error="dead_letter"),
        StageSpec("map", lambda x: x, "work", queue=2),
        OUT,
    )
    plan = make_plan(PipelineSpec("p", stages))
    run = VirtualRun(plan, range(6), {"expand": 0.1, "work": 0.5}, on_event=die_before_it_goes_on)
    run.run()
    (root,) = died
    (lost,) = run.dead
    given = [x for x in run.outputs if x // 10 == root]
    assert run.engine.complete
    assert isinstance(lost.error, WorkerDied)
    assert 0 < len(given) < 10
    assert lost.seq == (root, len(given))
    assert run.outputs == [x for x in range(60) if x // 10 != root or x in given]
    assert given == list(range(10 * root, 10 * root + len(given)))
