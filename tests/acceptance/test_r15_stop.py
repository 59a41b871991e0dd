"""R15: stop from outside: from a thread, a task, a stage, and while the source is blocked."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from acceptance.scenario import MODES
from headway import DROP, HeadwayError, Pipeline, PlanError, RunError
from headway.errors import RunErrors

STOP_AT = 1000


class Endless:
    """Counts without end, and remembers what was pulled."""

    def __init__(self) -> None:
        self.pulled: list[int] = []
        self.closed = 0

    def __call__(self) -> Any:
        try:
            for n in itertools.count():
                self.pulled.append(n)
                yield n
        finally:
            self.closed += 1


def pipeline(source: Any, mode: str, sink: Any) -> Pipeline[Any]:
    return Pipeline(source, window=64).map(lambda value: value, on=mode, workers=4, queue=4).batch(7).to(sink)


class Sink:
    """Takes batches and calls `then` once it has so many items."""

    def __init__(self, then: Any = None) -> None:
        self.items: list[int] = []
        self.batches: list[int] = []
        self.reached = threading.Event()
        self._then = then

    def __call__(self, batch: list[int]) -> None:
        self.items += batch
        self.batches.append(len(batch))
        if len(self.items) >= STOP_AT and not self.reached.is_set():
            self.reached.set()
            if self._then:
                self._then()


def check(source: Endless, sink: Sink, report: Any) -> None:
    """All that was pulled before the stop was delivered, the incomplete batch included."""
    assert report.state == "drained"
    assert sink.items == source.pulled[: len(sink.items)]
    assert report.items.read == report.items.written == len(sink.items)
    # A row that was being read when the stop came may have been read in vain only if it was never given.
    assert len(source.pulled) - len(sink.items) <= 1
    assert set(sink.batches[:-1]) == {7}
    assert 1 <= sink.batches[-1] <= 7
    assert source.closed == 1
    assert report.complete


@pytest.mark.parametrize("mode", MODES)
def test_from_another_thread(mode):
    source, sink = Endless(), Sink()
    run = pipeline(source, mode, sink).start()
    assert sink.reached.wait(100)
    stopper = threading.Thread(target=run.drain)
    stopper.start()
    stopper.join()
    check(source, sink, run.wait())


@pytest.mark.parametrize("mode", MODES)
def test_from_a_task(mode):
    source, sink = Endless(), Sink()

    async def main() -> Any:
        run = pipeline(source, mode, sink).open()
        async with run:

            async def stop() -> None:
                assert await asyncio.to_thread(sink.reached.wait, 100)
                run.drain()

            stopper = asyncio.create_task(stop())
            report = await run.wait_async()
            await stopper
        return report

    check(source, sink, asyncio.run(main()))


@pytest.mark.parametrize("mode", MODES)
def test_from_inside_a_stage(mode):
    source = Endless()
    runs: list[Any] = []
    sink = Sink(lambda: runs[0].drain())  # noqa: PLW0108 - the run is made later
    started = threading.Event()

    def rows() -> Any:
        assert started.wait(60)
        yield from source()

    run = pipeline(rows, mode, sink).start()
    runs.append(run)
    started.set()
    check(source, sink, run.wait())


@pytest.mark.parametrize("mode", MODES)
def test_while_the_source_is_blocked(mode):
    """A source that waits for a row that never comes does not hold the run; what it gives later is not asked for."""
    go, waiting = threading.Event(), threading.Event()

    def rows() -> Any:
        yield from range(10)
        waiting.set()
        assert go.wait(100)
        yield 10

    sink = Sink()
    run = pipeline(rows, mode, sink).start()
    assert waiting.wait(100)
    run.drain()
    with pytest.warns(RuntimeWarning, match="the source is still in a read"):
        report = run.wait()
    go.set()
    assert sink.items == list(range(10))
    assert report.state == "drained"


@pytest.mark.parametrize("mode", MODES)
def test_an_async_source_that_waits_is_cancelled(mode):
    async def rows() -> Any:
        for n in range(10):
            yield n
        waiting.set()
        await asyncio.Event().wait()

    waiting = threading.Event()
    sink = Sink()
    run = pipeline(rows, mode, sink).start()
    assert waiting.wait(100)
    run.drain()
    report = run.wait()
    assert sink.items == list(range(10))
    assert report.state == "drained"


@pytest.mark.parametrize("mode", MODES)
def test_a_cancel_delivers_a_prefix_and_says_what_was_given_up(mode):
    source, sink = Endless(), Sink()
    run = pipeline(source, mode, sink).start()
    assert sink.reached.wait(100)
    run.cancel()
    report = run.wait()
    assert report.state == "cancelled"
    assert sink.items == list(range(len(sink.items)))
    items = report.items
    assert items.read == items.written + items.unread
    assert report.unfinished == ([[items.written, items.read - 1]] if items.unread else [])
    assert report.complete


@pytest.mark.parametrize("mode", MODES)
def test_after_an_abort_waiting_raises_with_the_counts(mode):
    source, sink = Endless(), Sink()
    run = pipeline(source, mode, sink).start()
    assert sink.reached.wait(100)
    run.abort()
    with pytest.raises(RunError, match="aborted") as caught:
        run.wait()
    items = caught.value.report.items
    assert items.read == items.written + items.unread
    assert f"{items.read:,} read, {items.written:,} written" in str(caught.value)


@pytest.mark.parametrize("stop", ["drain", "cancel", "abort"])
@pytest.mark.parametrize("mode", MODES)
def test_stopping_a_run_that_has_ended_does_nothing(mode, stop):
    run = pipeline(range(20), mode, Sink()).start()
    report = run.wait()
    getattr(run, stop)()
    assert run.wait().items == report.items
    assert run.report.state == "done"


@pytest.mark.parametrize("stop", ["drain", "cancel", "abort"])
@pytest.mark.parametrize("mode", MODES)
def test_stopping_a_run_that_has_just_begun(mode, stop):
    source, sink = Endless(), Sink()
    run = pipeline(source, mode, sink).start()
    getattr(run, stop)()
    if stop == "abort":
        with pytest.raises(RunError, match="aborted"):
            run.wait()
    else:
        assert run.wait().state in ("drained", "cancelled")
    assert run.report.complete
    assert sink.items == list(range(len(sink.items)))


def test_a_stage_cannot_wait_for_its_own_run():
    runs: list[Any] = []
    ready = threading.Event()

    def wait(value: int) -> Any:
        assert ready.wait(60)
        return runs[0].wait()

    run = Pipeline([1], on_error="dead_letter").map(wait).start()
    runs.append(run)
    ready.set()
    (letter,) = run.wait().dead_letters
    assert isinstance(letter.error, HeadwayError)
    assert "own run" in str(letter.error)


@pytest.mark.parametrize("mode", MODES)
def test_many_stops_from_many_threads_are_one(mode):
    source, sink = Endless(), Sink()
    run = pipeline(source, mode, sink).start()
    assert sink.reached.wait(100)
    threads = [threading.Thread(target=run.drain) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(source, sink, run.wait())


# ---- scaling while it runs


@pytest.mark.parametrize("mode", MODES)
def test_workers_come_and_go_under_load_and_the_order_is_kept(mode):
    rows, steps = 4000 if mode != "process" else 1500, itertools.cycle([1, 4, 2, 6, 3])
    outputs: list[int] = []
    work = Pipeline(range(rows), window=128).map(
        lambda value: value if value % 5 else DROP, on=mode, workers=2, queue=16, name="work"
    )
    with work.open() as run:
        for value in run:
            outputs.append(value)
            if value % (200 if mode != "process" else 400) == 1:
                run.scale("work", next(steps))
        assert outputs == [n for n in range(rows) if n % 5]
    assert run.report.complete
    assert run.report.items.filtered == rows // 5


@pytest.mark.parametrize("mode", MODES)
def test_scaling_keeps_the_order_of_each_key(mode):
    steps = itertools.cycle([1, 4, 2, 5])
    outputs: list[tuple[int, int]] = []
    work = (
        Pipeline([(n % 7, n) for n in range(1400)], window=128)
        .map(lambda row: row, on=mode, workers=2, key=lambda row: row[0], name="work")
        .ordered("key")
    )
    with work.open() as run:
        for row in run:
            outputs.append(row)
            if len(outputs) % 300 == 0:
                run.scale("work", next(steps))
    for key in range(7):
        assert [n for k, n in outputs if k == key] == list(range(key, 1400, 7))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_asked_before_the_run_has_begun_is_done_and_leaves_no_worker_behind(mode, workers):
    """That none is left is looked at behind each test."""

    async def main():
        async with Pipeline(range(50)).map(lambda value: value, on=mode, workers=2, name="work").open() as run:
            run.scale("work", workers)  # the task of the run has had no turn yet
            assert [value async for value in run] == list(range(50))
        assert run.report.to_dict()["stages"][0]["workers"] == workers

    asyncio.run(main())


def test_a_total_scan_cannot_be_scaled():
    go = threading.Event()

    def rows():
        yield go.wait(60)

    run = Pipeline(rows).scan(lambda s, v: (s, v), 0, name="sum").start()
    with pytest.raises(PlanError, match="sum"):
        run.scale("sum", 2)
    with pytest.raises(PlanError, match="nowhere"):
        run.scale("nowhere", 2)
    go.set()
    run.wait()


# ---- several things at once


@pytest.mark.parametrize("mode", MODES)
def test_when_several_things_fail_all_are_told_first_cause_first(mode):
    def rows() -> Any:
        try:
            yield from range(100)
        finally:
            raise OSError("source close")

    class Bad:
        def open(self, resume: Any) -> None:
            """Nothing is to be opened."""

        met = False

        def write(self, items: Any) -> None:
            if 3 in items:
                self.met = True
                raise ValueError("row 3")

        def commit(self, state: Any) -> None:
            if self.met:
                raise ConnectionError("commit")

        def close(self, error: BaseException | None) -> None:
            """Nothing is to be closed."""

    with pytest.raises(RunErrors) as caught:
        Pipeline(rows, window=8).map(lambda value: value, on=mode, workers=2).to(Bad()).run()
    told = [type(error.__cause__).__name__ for error in caught.value.exceptions]
    assert told[0] == "ValueError"
    assert set(told) == {"ValueError", "OSError", "ConnectionError"}
    assert isinstance(caught.value, RunError)
    assert caught.value.report.state == "failed"
    caught_some = caught.value.subgroup(lambda error: isinstance(error.__cause__, OSError))
    assert caught_some is not None
