"""R06: the order contracts "input" and "none"."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from acceptance.scenario import MODES, iterate
from conformance.modes import run
from headway import Pipeline

WAIT_S = 0.002
# The scenario names random delays; real workers have no virtual clock, and nothing is asserted about time.


def wait(value: int) -> int:
    time.sleep(random.Random(value).uniform(0, WAIT_S))  # the delay that the scenario names
    return value


async def wait_async(value: int) -> int:
    await asyncio.sleep(random.Random(value).uniform(0, WAIT_S))  # the same
    return value


def odd(value: int) -> bool:
    return value % 2 == 1


def three(value: int) -> list[tuple[int, int]]:
    return [(value, child) for child in range(3)]


def contract(source: Any, mode: str, order: Any) -> Pipeline[Any]:
    fn: Any = wait_async if mode == "task" else wait
    return (
        Pipeline(source, window=64)
        .map(fn, on=mode, workers=4, queue=4, name="first")
        .filter(odd, on="thread" if mode == "process" else mode)
        .map(fn, on=mode, workers=4, queue=4, name="second")
        .flat_map(three, on="thread" if mode == "process" else mode)
        .ordered(order)
    )


EXPECTED = [(n, child) for n in range(100) if n % 2 for child in range(3)]


@pytest.mark.parametrize("mode", MODES)
def test_in_input_order_the_outputs_equal_those_of_the_sequential_program(mode):
    assert contract(range(100), mode, "input").collect() == EXPECTED


@pytest.mark.parametrize("mode", MODES)
def test_without_order_the_outputs_are_the_same_in_some_order(mode):
    assert sorted(contract(range(100), mode, "none").collect()) == EXPECTED


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("order", ["input", "none"])
def test_both_hold_in_any_schedule_of_the_virtual_clock(order, seed):
    def describe(source, on):
        return (
            Pipeline(source, window=64)
            .map(lambda value: value, workers=4, queue=4, name="first")
            .filter(odd)
            .map(lambda value: value, workers=4, queue=4, name="second")
            .flat_map(three)
            .ordered(order)
        )

    out = run("simulated", describe, range(100), seed=seed)
    assert (out.outputs if order == "input" else sorted(out.outputs)) == EXPECTED
    assert out.complete


@pytest.mark.parametrize("mode", MODES)
def test_the_first_output_leaves_before_the_source_has_ended(mode):
    go = threading.Event()

    def rows() -> Any:
        yield from range(20)
        assert go.wait(60)
        yield from range(20, 100)

    outputs = []

    def look(value: Any) -> None:
        outputs.append(value)
        go.set()

    iterate(contract(rows, mode, "input"), mode, look)
    assert outputs == EXPECTED


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "process"])
def test_without_order_an_item_that_is_slow_leaves_last(mode):
    go = threading.Event()
    left: list[int] = []

    def slow(value: int) -> int:
        if value == 0:
            assert go.wait(60)
        return value

    async def slow_async(value: int) -> int:
        return await asyncio.to_thread(slow, value)

    fn: Any = slow_async if mode == "task" else slow

    def look(value: int) -> None:
        left.append(value)
        if len(left) == 99:
            go.set()

    # The window must hold what overtakes the slow item: it is not refilled while that is awaited.
    pipeline = Pipeline(range(100), window=128).map(fn, on=mode, workers=4, queue=4).ordered("none")
    iterate(pipeline, mode, look)
    assert left[-1] == 0
    assert sorted(left) == list(range(100))


def test_re_sequencing_happens_once_in_front_of_the_consumer_that_needs_it():
    plan = contract(range(100), "thread", "input").plan()
    placed = [(edge["from"], edge["to"]) for edge in plan.to_dict()["edges"] if edge["placed"]]
    assert placed == [("three", "output")]
    assert [edge["placed"] for edge in contract(range(100), "thread", "none").plan().to_dict()["edges"]] == [None] * 5


def test_the_contract_is_visible_in_the_description():
    text = str(contract(range(100), "thread", "input").plan())
    assert "re-sequencer" in text
    assert "needs input" in text
    text = str(contract(range(100), "thread", "none").plan())
    assert "re-sequencer" not in text
    assert "needs none" in text
