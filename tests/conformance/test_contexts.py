"""Context variables: the caller's are seen by every stage, an item's by no other; and the item that a call is for."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from headway import DROP, Failure, HeadwayError, Pipeline
from headway.run.context import current_item

MODES = ("inline", "task", "task async", "thread", "thread async")
VAR: contextvars.ContextVar[Any] = contextvars.ContextVar("var", default="unset")


class Odd:
    """Cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    __hash__ = None  # type: ignore[assignment]


def asynchronous(fn):
    async def call(*values):
        await asyncio.sleep(0)  # a turn of the loop for the other calls
        return fn(*values)

    return call


def collect(mode: str, fn: Any, shape: str = "map", rows: Any = range(12), **more: Any) -> list[Any]:
    fn = asynchronous(fn) if mode.endswith("async") else fn
    options = {"on": mode.split(maxsplit=1)[0]} if mode != "inline" else {}
    pipeline = Pipeline(rows, on_error="keep", mode="inline" if mode == "inline" else "concurrent")
    if shape == "map_batches":
        return pipeline.map_batches(fn, 2, **options, **more).collect()
    return getattr(pipeline, shape)(fn, **options, **more).collect()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", ["set", Odd()], ids=["plain", "odd"])
def test_the_callers_variables_are_seen_and_an_items_by_no_other(mode, value):
    def fn(x):
        seen = VAR.get()
        if x % 3 == 1:
            VAR.set(Odd() if isinstance(value, Odd) else x)
        if x == 4:
            raise ValueError
        return DROP if x == 7 else seen

    token = VAR.set(value)
    try:
        values = collect(mode, fn)
    finally:
        VAR.reset(token)
    assert [v is value for v in values if not isinstance(v, Failure)] == [True] * 10
    assert len(values) == 11


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["filter", "flat_map", "map_batches", "scan"])
def test_every_kind_of_stage_keeps_items_apart(mode, shape):
    seen = []

    def fn(*values):
        seen.append(VAR.get())
        VAR.set("changed")
        return {"filter": True, "flat_map": [1], "map_batches": values[0], "scan": (0, 1)}[shape]

    more = {"initial": 0} if shape == "scan" else {}
    assert len(collect(mode, fn, shape, **more)) == 12
    assert set(seen) == {"unset"}


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_generator_keeps_its_own_variables_across_a_pause(mode):
    def fn(x):
        VAR.set(x)
        for _ in range(30):
            yield VAR.get()

    options = {"on": mode} if mode != "inline" else {}
    pipeline = Pipeline(range(3), window=2, mode="inline" if mode == "inline" else "concurrent")
    assert pipeline.flat_map(fn, queue=2, **options).collect() == [x for x in range(3) for _ in range(30)]


def test_a_set_up_may_prepare_the_context_of_its_worker():
    def setup():
        VAR.set("ready")

    assert set(Pipeline(range(5)).map(lambda _, __: VAR.get(), setup=setup, on="thread").collect()) == {"ready"}
    assert VAR.get() == "unset"


@pytest.mark.parametrize("mode", [*MODES, "process"])
def test_a_call_can_ask_which_item_it_is_for(mode):
    def fn(x):
        item = current_item()
        if x % 2:
            return DROP
        return x, item.seq, item.key, item.attempt, item.trace_id, item.age >= 0

    values = collect(mode, fn, workers=1)
    assert values == [(x, x, None, 1, f"pipeline/0/{x}", True) for x in range(0, 12, 2)]


def test_children_and_keys_are_told_too():
    def second(x):
        return current_item().seq, current_item().key, current_item().trace_id

    values = Pipeline([5, 6], name="run").flat_map(lambda x: [x, x]).map(second, key=lambda x: x % 2).collect()
    assert values == [
        ((0, 0), 1, "run/0/0/0"), ((0, 1), 1, "run/0/0/1"), ((1, 0), 0, "run/0/1/0"), ((1, 1), 0, "run/0/1/1"),
    ]  # fmt: skip


def test_outside_a_stage_there_is_no_item():
    with pytest.raises(HeadwayError, match="no such call"):
        current_item()
