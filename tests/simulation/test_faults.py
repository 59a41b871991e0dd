"""Second attempts, limits, deaths, copies and changes of the number of workers, each alone and exactly, in virtual time."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from headway.core.block import Block
from headway.core.plan import make_plan
from headway.core.policy import RateLimit, Retry
from headway.core.scaling import scaled
from headway.core.settle import settle
from headway.core.spec import PipelineSpec, StageSpec
from headway.core.ticket import Answer
from headway.errors import ItemTimeout, PlanError, PredecessorFailed, RetryAfter, WorkerDied
from headway.sim.driver import VirtualRun

OUT = StageSpec("consume", None, "output")


def same(value):
    return value


def flaky(times, error=ConnectionError):
    """A function that raises for the values of `times` as often as said there."""
    left = Counter(times)

    def fn(value):
        if left[value] > 0:
            left[value] -= 1
            raise error("not yet")
        return value

    return fn


def plan(*stages, **options):
    return make_plan(PipelineSpec("p", (*stages, OUT), **{"on_error": "dead_letter", **options}))


def starts(run, stage, tag):
    return [round(started, 6) for name, _, t, started, _ in run.log if name == stage and t == tag]


def test_attempts_follow_each_other_at_growing_distances_and_others_pass_meanwhile():
    stage = StageSpec("map", flaky({3: 2}), "call", retry=Retry(3, on=ConnectionError, jitter=False))
    run = VirtualRun(plan(stage, order="none"), range(6), {"call": 0.01}).run()
    assert sorted(run.outputs) == list(range(6))
    assert run.outputs[-1] == 3
    assert starts(run, "call", 3) == [0.03, 0.14, 0.35], "0.1 s and 0.2 s after the ends of the calls before"
    assert run.engine.stages[0].meter.retries == 2


def test_under_input_order_what_waits_for_another_attempt_keeps_its_place():
    stage = StageSpec("map", flaky({3: 2}), "call", workers=2, retry=Retry(3, on=ConnectionError))
    run = VirtualRun(plan(stage), range(20), {"call": 0.01}).run()
    assert run.outputs == list(range(20))


def test_a_stage_that_relies_on_order_waits_as_a_whole():
    stage = StageSpec("map", flaky({3: 1}), "call", needs="input", retry=Retry(2, jitter=False))
    run = VirtualRun(plan(stage), range(6), {"call": 0.01}).run()
    assert run.outputs == list(range(6))
    assert starts(run, "call", 4) == [0.15]
    assert run.engine.stages[0].meter.times(run.now)["paused"] == pytest.approx(0.1)


def test_what_the_retry_does_not_cover_and_the_last_attempt_are_final():
    stage = StageSpec("map", flaky({1: 9, 2: 1}), "call", retry=Retry(3, on=ConnectionError))
    wrong = StageSpec("map", flaky({2: 1}, ValueError), "check", retry=Retry(3, on=ConnectionError))
    run = VirtualRun(plan(stage, wrong), range(4)).run()
    assert run.outputs == [0, 3]
    assert [(f.seq, f.stage, f.attempts) for f in sorted(run.dead, key=lambda f: f.seq)] == [
        (1, "call", 3), (2, "check", 1),
    ]  # fmt: skip


def test_a_budget_bounds_the_share_of_second_attempts():
    stage = StageSpec("map", flaky(dict.fromkeys(range(1000), 1)), "call", retry=Retry(2, budget=0.1))
    run = VirtualRun(plan(stage), range(1000), {"call": 0.001}).run()
    meter = run.engine.stages[0].meter
    assert 100 <= meter.retries <= 0.1 * meter.timed + 1
    assert len(run.outputs) == meter.retries


def test_retry_after_pauses_the_stage_and_is_no_attempt():
    seen = []

    def call(value):
        seen.append(value)
        if value == 2 and seen.count(2) < 3:
            raise RetryAfter(5.0)
        return value

    stage = StageSpec("map", call, "call", retry=Retry(1))
    run = VirtualRun(plan(stage), range(5), {"call": 0.01}).run()
    assert run.outputs == list(range(5))
    assert starts(run, "call", 3) == [10.05]
    assert run.engine.stages[0].meter.retries == 0
    assert run.engine.stages[0].meter.times(run.now)["paused"] == pytest.approx(10.0)


def test_an_item_that_asks_for_more_than_max_pause_fails():
    stage = StageSpec("map", flaky({2: 99}, lambda _: RetryAfter(4.0)), "call", retry=Retry(1, max_pause=10.0))
    run = VirtualRun(plan(stage), range(4)).run()
    assert run.outputs == [0, 1, 3]
    assert [(f.seq, type(f.error)) for f in run.dead] == [(2, RetryAfter)]
    assert run.now == pytest.approx(8.0)


def test_a_call_that_takes_too_long_fails_alone_whatever_the_block():
    slow = lambda _rng, value: 60.0 if value == 50 else 0.00001
    stage = StageSpec("map", same, "call", timeout=1.0)
    run = VirtualRun(plan(stage), range(100), {"call": slow}).run()
    assert run.outputs == [n for n in range(100) if n != 50]
    assert [(f.seq, type(f.error)) for f in run.dead] == [(50, ItemTimeout)]
    assert run.now < 1.1
    assert max(Counter(tag for name, _, tag, _, _ in run.log if name == "call").values()) == 1


def test_a_deadline_counts_the_time_in_queues():
    stage = StageSpec("map", same, "call", deadline=0.35)
    run = VirtualRun(plan(stage), range(6), {"call": 0.1}).run()
    assert run.outputs == [0, 1, 2], "the fourth would end at 0.4"
    assert [type(f.error) for f in run.dead] == [ItemTimeout] * 3
    assert len([1 for name, *_ in run.log if name == "call"]) == 3, "what was late before it began was not called"


def test_a_killed_worker_costs_the_item_at_its_cursor_and_nothing_else():
    stage = StageSpec("map", same, "call", workers=4, on="process")
    run = VirtualRun(plan(stage), range(100), {"call": 0.01})
    run.at(0.025, lambda: run.kill(run.engine.stages[0].slots[1]))
    run.run()
    assert [type(f.error) for f in run.dead] == [WorkerDied]
    assert run.outputs == [n for n in range(100) if n != run.dead[0].seq]
    assert run.engine.stages[0].meter.restarts == 1


@pytest.mark.parametrize("options", [{"idempotent": True}, {"retry": Retry(5, on=WorkerDied, backoff=0.0)}])
def test_an_item_that_kills_a_second_worker_is_poison(options):
    stage = StageSpec("map", same, "call", workers=2, on="process", **options)
    run = VirtualRun(plan(stage), range(20), {"call": 1.0})

    def kill_whoever_has_item_10():
        for slot in run.engine.stages[0].slots:
            if any(10 in ticket.blocks[0].tags for ticket in slot.tickets):
                run.kill(slot)
        if not run.engine.finished:
            run.at(run.now + 0.3, kill_whoever_has_item_10)

    run.at(0.3, kill_whoever_has_item_10)
    run.run()
    assert run.outputs == [n for n in range(20) if n != 10]
    (dead,) = run.dead
    assert (dead.seq, dead.attempts) == (10, 2)
    assert "poison" in str(dead.error)


def test_a_slow_call_that_everybody_waits_for_is_made_twice_and_the_first_answer_counts():
    calls = Counter()

    def slow_once(_rng, value):
        calls[value] += 1
        return 100.0 if value == 80 and calls[value] == 1 else 1.0

    stage = StageSpec("map", same, "call", workers=4, idempotent=True, hedge=True)
    run = VirtualRun(plan(stage), range(100), {"call": slow_once}).run()
    assert run.outputs == list(range(100))
    assert run.now < 40
    assert run.engine.stages[0].meter.hedges == 1
    assert calls[80] == 2


def key(value):
    return value % 3


@pytest.mark.parametrize("workers", [1, 3])
def test_block_key_sets_aside_what_follows_in_the_key(workers):
    stage = StageSpec("map", flaky({4: 1}), "step", workers=workers, needs="key", key=key, on_key_failure="block_key")
    run = VirtualRun(plan(stage), range(12), {"step": 0.1}).run()
    assert run.outputs == [n for n in range(12) if n % 3 != 1 or n < 4]
    assert [(f.seq, type(f.error)) for f in sorted(run.dead, key=lambda f: f.seq)] == [
        (4, ConnectionError), (7, PredecessorFailed), (10, PredecessorFailed),
    ]  # fmt: skip


def test_halt_ends_the_run_at_the_first_failure_of_a_key_whatever_else_is_set_aside():
    stage = StageSpec("map", flaky({4: 1}), "step", workers=3, needs="key", key=key, on_key_failure="halt")
    run = VirtualRun(plan(stage), range(12), {"step": 0.1}).run()
    assert run.engine.state == "failed"
    assert run.outputs == [0, 1, 2, 3]


@pytest.mark.parametrize(("first", "then"), [(1, 4), (4, 1), (2, 3)])
def test_the_number_of_workers_changes_under_load_and_order_is_kept(first, then):
    stage = StageSpec("map", same, "call", workers=first)
    run = VirtualRun(plan(stage), range(200), {"call": lambda rng, _: rng.expovariate(1.0)})
    running = run.engine.stages[0]
    run.at(30.0, lambda: run.engine.scale(running, then, run.now))
    run.run()
    assert run.outputs == list(range(200))
    assert len(running.slots) == then
    late = [(start, slot) for name, slot, _, start, _ in run.log if name == "call" and start > 40]
    assert len({slot for _, slot in late}) == then


@pytest.mark.parametrize(
    ("stages", "name", "says"),
    [
        ([StageSpec("map", same, "a")], "b", "there is no stage 'b'; there are 'a'"),
        ([StageSpec("map", same, "a", needs="input")], "a", "one worker"),
        ([StageSpec("map", same, "a")], "output", "cannot be changed"),
        ([StageSpec("scan", same, "a", on="process", needs="key", key=key)], "a", "processes"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_the_reason(stages, name, says):
    with pytest.raises(PlanError, match=says):
        scaled(plan(*stages).spec, name, 3)


def test_a_late_item_of_a_blocked_key_has_failed_with_the_one_before_it():
    stage = StageSpec(
        "map", same, "call", key=lambda _: "one", deadline=5.0, on_key_failure="block_key", rate=RateLimit(0.5),
    )  # fmt: skip
    run = VirtualRun(plan(stage), range(8), {"call": 0.0}).run()
    failed = {letter.seq: type(letter.error) for letter in run.dead}
    first = min(failed)
    assert failed == {n: ItemTimeout if n == first else PredecessorFailed for n in range(first, 8)}
    assert run.outputs == list(range(first))


def test_an_expansion_that_pauses_covers_only_its_own_items_also_where_its_block_has_gaps():
    block = Block((48,), (54,), [53], ["row"])
    block.cover([((48,), (49,)), ((53,), (54,))])
    stage = SimpleNamespace(plan=SimpleNamespace(per_member=False))
    done = settle(SimpleNamespace(blocks=[block], stage=stage, base=0), Answer(1, 0, ["a", "b"], [0, 0], parked=True))
    (out,) = done.outs
    assert [(p.lo, p.hi, p.tags) for p in out.parts()] == [((48,), (49,), []), ((53,), (53, 2), [(53, 0), (53, 1)])]
    assert (done.parked.lo, done.parked.hi, done.parked.spans, done.parked.values) == ((53, 2), (54,), None, ["row"])
