"""R17, first half: the caller's context variables are seen in stages; what one item changes no other sees."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from headway import Pipeline

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody")


@pytest.mark.parametrize("mode", ["task", "task async", "thread", "thread async"])
def test_variables_of_the_caller_are_seen_and_changes_stay_with_their_item(mode):
    def call(x: int) -> tuple[int, str]:
        seen = REQUEST.get()
        REQUEST.set(f"item {x}")
        return x, seen

    async def call_async(x: int) -> tuple[int, str]:
        seen = REQUEST.get()
        REQUEST.set(f"item {x}")
        await asyncio.sleep(0)  # a turn of the loop for the other calls
        assert REQUEST.get() == f"item {x}"
        return x, seen

    token = REQUEST.set("the caller")
    try:
        fn = call_async if mode.endswith("async") else call
        on = mode.split()[0]
        values = Pipeline(range(200)).map(fn, on=on, workers=3).map(lambda pair: (*pair, REQUEST.get())).collect()
    finally:
        REQUEST.reset(token)
    assert values == [(x, "the caller", "the caller") for x in range(200)]


def test_two_runs_at_once_keep_their_callers_apart():
    def run(name: str) -> list[str]:
        REQUEST.set(name)
        return Pipeline(range(50)).map(lambda _: REQUEST.get(), on="thread", workers=2).collect()

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(*(asyncio.to_thread(run, name) for name in ("a", "b"))))

    assert asyncio.run(main()) == [["a"] * 50, ["b"] * 50]
