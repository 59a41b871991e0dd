"""R19: silence is an error. A call that never returns fails the run and says where; waiting for others does not."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic

import pytest

from acceptance.scenario import MODES
from headway import Pipeline, StallError

LEFT = "ignore:a call of stage .* does not return:RuntimeWarning"
RELEASE = threading.Event()


@pytest.fixture(autouse=True)
def release():
    RELEASE.clear()
    yield
    RELEASE.set()


@pytest.mark.filterwarnings(LEFT)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_never_returns_fails_the_run_and_is_named(mode, workers):
    release = RELEASE if mode == "thread" else None

    def never(x: int) -> int:
        if x == 7:
            release.wait() if release is not None else __import__("time").sleep(
                3600
            )  # the scenario's call that never returns; in a child no event reaches it
        return x

    async def never_async(x: int) -> int:
        if x == 7:
            await asyncio.Event().wait()
        return x

    fn = never_async if mode == "task" else never
    with pytest.raises(StallError) as caught:
        Pipeline(range(20)).map(fn, on=mode, workers=workers, name="never").collect(stall_after=1.0)
    error, text = caught.value, str(caught.value)
    assert (error.stage, error.seq) == ("never", 7)
    assert error.age >= 1.0
    assert "stage 'never' for item 7, attempt 1" in text
    assert "never_async" in text if mode == "task" else "in never" in text
    assert error.report.state == "failed"
    assert error.report.items["written"] == 7 if workers == 1 else error.report.items["written"] <= 7


def test_a_run_without_the_limit_waits():
    timer = threading.Timer(1.5, RELEASE.set)
    timer.start()
    assert Pipeline(range(3)).map(lambda x: RELEASE.wait() and x, on="thread").collect() == [0, 1, 2]
    timer.join()


def waited(seconds: float) -> None:
    """Hold the thread for so long, by the clock that the limit is measured with."""
    until = monotonic() + seconds
    while monotonic() < until:
        threading.Event().wait(0.05)


@pytest.mark.parametrize("mode", MODES)
def test_time_spent_waiting_for_the_consumer_does_not_count(mode):
    pipeline = Pipeline(range(4)).map(abs, on=mode)
    with pipeline.open(stall_after=0.2) as run:
        waited(0.6)
        seen = []
        for value in run:
            waited(0.4)
            seen.append(value)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_time_spent_waiting_for_the_source_does_not_count(mode):
    def slow():
        for x in range(3):
            waited(0.5)
            yield x

    assert Pipeline(slow).map(abs, on=mode).collect(stall_after=0.2) == [0, 1, 2]
