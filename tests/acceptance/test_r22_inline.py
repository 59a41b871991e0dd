"""R22: debug in one thread. That outputs, records and counts equal those of the other modes: tests/conformance."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

import pytest

from headway import Pipeline, PlanError, StageError, read_dead_letters


def check(value: int) -> int:
    if value == 3:
        raise ValueError("bad")
    return value * 10


def test_every_stage_runs_on_the_calling_thread_of_the_same_process():
    places = set()

    def where(value: Any) -> Any:
        places.add((os.getpid(), threading.get_ident()))
        return value

    async def where_async(value: Any) -> Any:
        return where(value)

    def rows() -> Any:
        where(None)
        yield from range(10)

    pipeline = (
        Pipeline(rows, mode="inline")
        .map(where, on="process", workers=4)
        .map(where_async, workers=3)
        .filter(lambda value: where(value) is not None, on="thread", workers=2)
        .batch(3)
        .map(where)
    )
    assert pipeline.collect() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert places == {(os.getpid(), threading.get_ident())}


def test_the_option_can_be_given_with_the_pipeline_or_with_the_run():
    threads = set()

    def where(value: int) -> int:
        threads.add(threading.get_ident())
        return value

    described = Pipeline(range(3), mode="inline").map(where)
    assert described.collect() == list(described) == Pipeline(range(3)).map(where).collect(mode="inline") == [0, 1, 2]
    assert Pipeline(range(3)).map(where).run(mode="inline").items.written == 3
    assert threads == {threading.get_ident()}
    described.collect(mode="concurrent")
    assert len(threads) == 2


def test_the_report_says_what_one_thread_cannot_give():
    report = Pipeline(range(3)).map(check, on="process", name="parse").run(mode="inline")
    assert any("'parse'" in text and "process" in text for text in report.ignored)
    assert "parse" in str(report)


def test_breakpoint_stops_in_the_stage_itself(monkeypatch):
    stops = []

    def hook() -> None:
        frame = sys._getframe(1)
        stops.append((frame.f_code.co_name, frame.f_locals["value"], threading.get_ident()))

    def enrich(value: int) -> int:
        breakpoint()  # noqa: T100
        return value

    monkeypatch.setattr(sys, "breakpointhook", hook)
    assert Pipeline([7], mode="inline").map(enrich).collect() == [7]
    assert stops == [("enrich", 7, threading.get_ident())]


def test_a_failing_item_can_be_run_again_alone_from_its_dead_letter(tmp_path):
    path = tmp_path / "letters.jsonl"
    report = Pipeline(range(6), on_error="dead_letter").map(check, workers=4).run(dead_letters=path)
    assert report.items.dead == 1
    with pytest.raises(StageError) as caught:
        Pipeline(read_dead_letters(path), mode="inline").map(check).collect()
    assert caught.value.value == 3
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.__traceback__ is not None
    assert Pipeline(read_dead_letters(path), mode="inline").map(lambda value: value + 1).collect() == [4]


async def add(value: int) -> int:
    await asyncio.sleep(0)  # a point where it is left to the loop
    return value + 1


async def rows() -> Any:
    yield 1
    yield 2


@pytest.mark.parametrize("pipeline", [Pipeline([1, 2]).map(add), Pipeline(rows).map(check)])
def test_a_sync_inline_run_of_something_async_is_refused_inside_a_running_loop_with_advice(pipeline):
    async def main() -> None:
        with pytest.raises(PlanError, match=r"await pipeline\.arun"):
            pipeline.collect(mode="inline")

    asyncio.run(main())


def test_the_async_form_works_inside_a_running_loop():
    async def main() -> None:
        assert [value async for value in Pipeline([1, 2], mode="inline").map(add)] == [2, 3]
        assert (await Pipeline(rows, mode="inline").map(add).arun()).items.written == 2

    asyncio.run(main())


def test_a_sync_inline_run_of_plain_functions_works_inside_a_running_loop():
    async def main() -> list[int]:
        return Pipeline([1, 2], mode="inline").map(check).collect()

    assert asyncio.run(main()) == [10, 20]


def test_an_async_inline_run_can_be_cancelled_like_any_other_task():
    async def main() -> None:
        started = asyncio.Event()
        closed = []

        def source() -> Any:
            try:
                yield from range(5)
            finally:
                closed.append(True)

        async def hang(value: int) -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(Pipeline(source, mode="inline", on_error="skip").map(hang).arun())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == [True]

    asyncio.run(main())
