"""The planner: order proven on each edge, one re-sequencer where it is needed and none elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.plan import GatePlan, Plan, make_plan
from headway.core.policy import Retry
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


def by(value: Any) -> Any:
    return value


def test_a_keyed_stage_needs_its_keys_in_order_and_loses_the_order_of_everything_else() -> None:
    made = plan(stage("a"), stage("b", 4, key=by, needs="key"), stage("c", 2, key=by, needs="key"), order="none")
    assert gates(made) == [], "lanes hand on the order of their key"
    assert [(e.target, e.proven, e.needed) for e in made.edges] == [
        ("a", "input", "none"), ("b", "input", "key(by)"), ("c", "key(by)", "key(by)"), ("output", "key(by)", "none"),
    ]  # fmt: skip


def test_lanes_of_one_key_are_no_order_of_another() -> None:
    made = plan(stage("a", 2, key="x", needs="key"), stage("b", 2, key="y", needs="key"), order="none")
    assert gates(made) == ["b"]


def test_equal_names_are_the_same_key_and_so_is_the_same_function() -> None:
    assert gates(plan(stage("a", 2, key="x", needs="key"), stage("b", 2, key="x", needs="key"), order="none")) == []
    assert gates(
        plan(stage("a", 2, key=by, needs="key"), stage("b", 2, key=lambda v: v, needs="key"), order="none")
    ) == ["b"]


def test_one_worker_with_a_key_keeps_input_order() -> None:
    assert gates(plan(stage("a", key="x", needs="key"))) == []


def test_second_attempts_lose_the_order_unless_the_stage_relies_on_it() -> None:
    assert gates(plan(stage("a", retry=Retry(2)))) == ["output"]
    assert gates(plan(stage("a", retry=Retry(2), needs="input"))) == []
    assert gates(plan(stage("a", on="process", idempotent=True))) == ["output"]


def test_a_consumer_in_key_order_takes_the_key_of_the_nearest_keyed_stage() -> None:
    assert gates(plan(stage("a", 2, key="x", needs="key"), order="key")) == []
    assert gates(plan(stage("a", 2, key="x", needs="key"), stage("b"), order="key")) == []
    assert gates(plan(stage("a", 2, key="x", needs="key"), stage("b", 2), order="key")) == ["output"]
    with pytest.raises(PlanError, match="needs to know the key"):
        plan(stage("a", 2), order="key")


def test_a_batch_under_key_order_takes_what_comes_unless_order_is_lost_behind_it() -> None:
    keyed = stage("a", 2, key="x", needs="key")
    assert gates(plan(keyed, BatchSpec(4), order="key")) == []
    assert gates(plan(keyed, BatchSpec(4), stage("b", 2), order="key")) == ["b", "output"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"needs": "key"}, "goes with key="),
        ({"needs": "input", "key": "x"}, "leave out"),
        ({"on_key_failure": "block_key"}, "goes with key="),
        ({"key": 5}, "name or a function"),
        ({"hedge": True}, "idempotent=True"),
        ({"timeout": 0}, "above 0 seconds"),
        ({"deadline": -1}, "above 0 seconds"),
        ({"grace": -1}, "0 or more"),
        ({"on_key_failure": "stop", "key": "x"}, "one of"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_would(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        stage("a", **options)


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"on": "error"}, {"on": ()}, {"backoff": -1}, {"factor": 0.5}, {"budget": 2}]
)
def test_a_retry_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="Retry"):
        Retry(**options)


def test_a_key_on_batches_with_several_workers_is_refused() -> None:
    with pytest.raises(PlanError, match="put the keyed stage before the batch"):
        plan(BatchSpec(4), stage("a", 2, key="x", needs="key"))
