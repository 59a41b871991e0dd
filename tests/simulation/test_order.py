"""Order in virtual time: what re-sequencing costs, and what happens without it."""

from __future__ import annotations

import heapq
import random

import pytest

from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun

ITEMS, SLOTS = 1000, 8


def drawn(seed: int) -> tuple[list[float], list[float]]:
    """Service times of two stages: about 1% take 200 ms in the first, the rest a few ms."""
    rng = random.Random(seed)
    first = [0.2 if rng.random() < 0.01 else rng.uniform(0.002, 0.008) for _ in range(ITEMS)]
    return first, [rng.uniform(0.002, 0.008) for _ in range(ITEMS)]


def ideal(first: list[float], second: list[float]) -> float:
    """The end of the two stages with unbounded queues and no order: each slot takes the next item there is."""
    free = [0.0] * SLOTS
    done = []
    for service in first:
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + service)
        done.append(begin + service)
    free = [0.0] * SLOTS
    end = 0.0
    for index in sorted(range(ITEMS), key=done.__getitem__):
        begin = max(done[index], heapq.heappop(free))
        heapq.heappush(free, begin + second[index])
        end = max(end, begin + second[index])
    return end


def two_stages(seed: int, window: int | None, order: str = "input") -> VirtualRun:
    first, second = drawn(seed)
    stages = [StageSpec("map", lambda x: x, name, workers=SLOTS, queue=64) for name in ("first", "second")]
    plan = make_plan(PipelineSpec("order", (*stages, StageSpec("consume", None, "output")), order=order, window=window))
    service = {"first": lambda _rng, x: first[x], "second": lambda _rng, x: second[x]}
    return VirtualRun(plan, range(ITEMS), service).run()


@pytest.mark.parametrize("seed", range(5))
def test_one_resequencer_costs_at_most_five_percent_and_holds_what_stragglers_delay(seed: int) -> None:
    run = two_stages(seed, window=100_000)
    assert run.outputs == list(range(ITEMS))
    assert run.now <= 1.05 * ideal(*drawn(seed))
    (gate,) = [gate for stage in run.engine.stages for gate in stage.gates]
    assert 100 <= gate.peak_items <= 400


@pytest.mark.parametrize("seed", range(5))
def test_a_window_of_256_holds_at_most_255_and_costs_at_most_ten_percent(seed: int) -> None:
    run = two_stages(seed, window=256)
    assert run.outputs == list(range(ITEMS))
    (gate,) = [gate for stage in run.engine.stages for gate in stage.gates]
    assert gate.peak_items <= 255
    assert run.engine.window.peak <= 256
    assert run.now <= 1.10 * ideal(*drawn(seed))


def test_a_window_as_small_as_the_number_of_workers_costs_most_of_the_concurrency() -> None:
    assert two_stages(0, window=SLOTS).now > 1.6 * two_stages(0, window=256).now


@pytest.mark.parametrize("window", [1, 2, 5, 17, 64])
def test_held_items_never_reach_the_window(window: int) -> None:
    run = two_stages(1, window=window)
    assert run.outputs == list(range(ITEMS))
    (gate,) = [gate for stage in run.engine.stages for gate in stage.gates]
    assert gate.peak_items <= window - 1


def test_without_order_a_slow_first_item_leaves_last() -> None:
    stage = StageSpec("map", lambda x: x, "work", workers=4)
    plan = make_plan(PipelineSpec("none", (stage, StageSpec("consume", None, "output")), order="none"))
    assert all(not s.gates for s in VirtualRun(plan, []).engine.stages)
    run = VirtualRun(plan, range(50), {"work": lambda _rng, x: 1000.0 if x == 0 else 1.0}).run()
    assert run.outputs[-1] == 0
    assert sorted(run.outputs) == list(range(50))


BALANCES = [(41, 1, False), (42, 100, True), (42, 250, False), (43, 7, False)]
"""(account, balance, needs a slow look-up): rows 1 and 2 set the same account."""


def balances(order: str, workers: int, seed: int) -> dict[int, int]:
    table: dict[int, int] = {}

    def write(row: tuple[int, int, bool]) -> None:
        table[row[0]] = row[1]

    steps = (
        StageSpec("map", lambda row: row, "process", workers=workers),
        StageSpec("sink", write, "write"),
    )
    plan = make_plan(PipelineSpec("bank", steps, order=order))
    slow = {"process": lambda rng, row: rng.expovariate(1.0) + (10.0 if row[2] else 0.0), "write": 0.1}
    VirtualRun(plan, BALANCES, slow, seed=seed).run()
    return table


def test_the_silent_reorder_happens_with_two_workers_and_no_order() -> None:
    assert any(balances("none", 2, seed)[42] == 100 for seed in range(20))


def test_input_order_at_the_sink_keeps_the_last_balance_in_every_schedule() -> None:
    for seed in range(300):
        assert balances("input", 2, seed) == {41: 1, 42: 250, 43: 7}


def test_an_automatic_window_grows_to_what_stragglers_need() -> None:
    service = {"work": lambda _rng, x: 4.0 if x % 400 == 399 else 0.01}

    def run(window: int | str) -> VirtualRun:
        stage = StageSpec("map", lambda x: x, "work", workers=8, queue=8)
        plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output")), window=window))
        return VirtualRun(plan, range(20_000), service).run()

    fixed, grown, wide = run(256), run("auto"), run(20_000)
    assert grown.outputs == list(range(20_000))
    assert 256 < grown.engine.window.items < 20_000
    assert grown.now < 0.8 * fixed.now
    assert grown.now < 1.2 * wide.now
