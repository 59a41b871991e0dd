"""The planner: order proven on each edge, one re-sequencer where it is needed and none elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.plan import GatePlan, Plan, make_plan
from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.errors import PlanError
from headway.watch.plan import Plan as ShownPlan


def stage(name: str, workers: int = 1, **options: Any) -> StageSpec:
    return StageSpec("map", lambda x: x, name, workers=workers, **options)


OUT = StageSpec("consume", None, "output")


def plan(*steps: Step, **options: Any) -> Plan:
    return make_plan(PipelineSpec("p", (*steps, OUT), **options))


def gates(made: Plan) -> list[str]:
    """Before which stages a re-sequencer stands."""
    return [s.spec.name for s in made.stages for step in s.intake if isinstance(step, GatePlan)]


def test_one_worker_everywhere_keeps_order_without_a_resequencer() -> None:
    assert gates(plan(stage("a"), stage("b"))) == []


def test_several_workers_need_one_resequencer_in_front_of_the_ordered_consumer() -> None:
    assert gates(plan(stage("a", 4), stage("b"), stage("c", 2))) == ["output"]


def test_an_unordered_consumer_gets_no_resequencer() -> None:
    assert gates(plan(stage("a", 4), stage("b", 2), order="none")) == []


def test_a_stage_that_relies_on_order_gets_its_own_resequencer_only_where_order_is_lost() -> None:
    assert gates(plan(stage("a", 4), stage("b", needs="input"), stage("c"))) == ["b"]
    assert gates(plan(stage("a"), stage("b", needs="input"), stage("c", 3))) == ["output"]
    assert gates(plan(stage("a", 4), stage("b", needs="input"), stage("c", 3))) == ["b", "output"]
    assert gates(plan(stage("a", 4), stage("b", needs="input"), stage("c", 3), order="none")) == ["b"]


def test_a_batch_is_cut_in_order_only_if_order_is_needed_behind_it() -> None:
    assert gates(plan(stage("a", 4), BatchSpec(10), stage("b"))) == ["b"]
    assert gates(plan(stage("a", 4), BatchSpec(10), stage("b"), order="none")) == []
    assert gates(plan(stage("a", 4), BatchSpec(10), UnbatchSpec(), stage("b", needs="input"), order="none")) == ["b"]


def test_the_resequencer_stands_at_the_last_point_before_the_consumer_that_needs_it() -> None:
    made = plan(stage("a", 4), stage("b"), stage("c"), stage("d", needs="input"))
    assert gates(made) == ["d"]
    assert [(e.source, e.target, e.proven, e.needed, e.placed) for e in made.edges] == [
        ("source", "a", "input", "none", None),
        ("a", "b", "none", "none", None),
        ("b", "c", "none", "none", None),
        ("c", "d", "none", "input", "re-sequencer"),
        ("d", "output", "input", "input", None),
    ]


def test_a_placed_resequencer_names_its_cost_and_its_reason() -> None:
    (edge,) = [e for e in plan(stage("a", 4), window=300, window_bytes=1 << 20).edges if e.placed]
    assert (edge.max_items, edge.max_bytes) == (299, 1 << 20)
    assert "a, with 4 workers, loses it" in edge.why


def test_the_text_shows_every_edge_and_what_was_placed() -> None:
    text = str(ShownPlan(plan(stage("a", 4), window=300)))
    assert "source -> a" in text
    assert "re-sequencer" in text
    assert "at most 299 items" in text


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: stage("a", 2, needs="input"), "workers=1"),
        (lambda: stage("a", 0), "whole number from 1"),
        (lambda: stage("a", queue=0), "queue"),
        (lambda: stage("a", on_error="explode"), "on_error"),
        (lambda: plan(BatchSpec(100), window=199), "window=200"),
        (lambda: plan(BatchSpec(10, bytes=1000), window_bytes=1999), "window_bytes=2000"),
        (lambda: plan(BatchSpec(10), BatchSpec(2)), "unbatch"),
        (lambda: plan(UnbatchSpec()), "batch"),
        (lambda: plan(stage("a", max_failures=3)), "dead_letter"),
        (lambda: make_plan(PipelineSpec("p", (StageSpec("sink", print, "w", workers=2),))), 'order="none"'),
        (lambda: plan(order="sideways"), "order"),
        (lambda: BatchSpec(0), "size"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(build: Any, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        build()
    assert says in str(caught.value)


def test_the_default_window_follows_slots_queues_and_batches() -> None:
    assert plan(stage("a", 2, queue=4)).window(capacities=8) == 256
    assert plan(stage("a", 100, queue=4)).window(capacities=8) == 4 * (101 + 8)
    assert plan(BatchSpec(5000), stage("a", queue=4)).window(capacities=8) == 10_000
