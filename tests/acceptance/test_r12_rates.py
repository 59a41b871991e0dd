"""R12: limits of rate and concurrency. Times are stamped by the calls; only what a busy machine cannot break is asserted."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import MODES, iterate
from headway import Pipeline, PlanError, RateLimit, RetryAfter


class Stamps:
    """When calls started, in any process: one line of a file each, on the clock that all processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, value: Any) -> Any:
        with self._path.open("a") as file:
            file.write(f"{time.monotonic()!r}\n")
        return value

    @property
    def times(self) -> list[float]:
        return sorted(map(float, self._path.read_text().split()))


def most_within(times: list[float], seconds: float) -> int:
    """Most starts in any window of so many seconds."""
    return max(bisect_right(times, start + seconds) - at for at, start in enumerate(times))


JITTER_S = 0.25
"""How much later than it was handed out a call may start on a machine that is busy with something else."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rows", "rate"), [(60, 50), pytest.param(200, 50, marks=pytest.mark.slow)])
def test_calls_of_all_workers_together_keep_to_the_rate(tmp_path, mode, rows, rate):
    stamps = Stamps(tmp_path / "stamps")
    report = Pipeline(range(rows)).map(stamps, on=mode, workers=8, rate=rate).run()
    times = stamps.times
    assert report.items.written == len(times) == rows
    # 200 items at 50 a second: the first at once, so never under 3.98 s, less what the first was late.
    assert times[-1] - times[0] >= (rows - 1) / rate - JITTER_S
    assert most_within(times, 1.0) <= rate + 1 + JITTER_S * rate
    assert report.stages[0].throttled > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", MODES)
def test_the_run_takes_the_time_that_the_rate_says(tmp_path, mode):
    stamps = Stamps(tmp_path / "stamps")
    Pipeline(range(200)).map(stamps, on=mode, workers=8, rate=50).run()
    assert 3.9 <= stamps.times[-1] - stamps.times[0] + 0.1 <= 4.4 + 8 * JITTER_S


@pytest.mark.parametrize("mode", MODES)
def test_a_burst_goes_at_once_and_not_more(tmp_path, mode):
    stamps = Stamps(tmp_path / "stamps")
    limit = RateLimit(2, burst=10)
    values = iter(Pipeline(range(100)).map(stamps, on=mode, workers=4, rate=limit))
    taken = [next(values) for _ in range(11)]
    values.close()  # type: ignore[attr-defined]
    assert taken == list(range(11))
    times = stamps.times
    assert times[10] - times[0] >= 0.5 - JITTER_S


@pytest.mark.parametrize("mode", MODES)
def test_never_more_calls_at_once_than_workers(tmp_path, mode):
    """Each call holds a file of its own for as long as it runs; each counts those it sees."""

    def work(value: int) -> int:
        mine = tmp_path / f"{value}"
        mine.touch()
        seen = len(list(tmp_path.iterdir()))
        time.sleep(0.002)  # long enough that calls at once see each other's files
        mine.unlink()
        return seen

    async def work_async(value: int) -> int:
        mine = tmp_path / f"{value}"
        mine.touch()
        seen = len(list(tmp_path.iterdir()))
        await asyncio.sleep(0.002)  # long enough that calls at once see each other's files
        mine.unlink()
        return seen

    fn: Any = work_async if mode == "task" else work
    seen = Pipeline(range(200)).map(fn, on=mode, workers=8).collect()
    assert 1 <= max(seen) <= 8
    if mode != "process":
        assert max(seen) > 1


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_is_shared_between_stages(tmp_path, mode):
    limit = RateLimit(40)
    stamps = Stamps(tmp_path / "stamps")
    pipeline = (
        Pipeline(range(15)).map(stamps, on=mode, workers=3, rate=limit).map(stamps, on=mode, workers=3, rate=limit)
    )
    assert pipeline.collect() == list(range(15))
    times = stamps.times
    assert len(times) == 30
    assert times[-1] - times[0] >= 29 / 40 - JITTER_S


@pytest.mark.parametrize("mode", MODES)
def test_calls_may_cost_different_units(tmp_path, mode):
    stamps = Stamps(tmp_path / "stamps")
    limit = RateLimit(100, cost=lambda value: value)
    report = Pipeline([10] * 6).map(stamps, on=mode, workers=3, rate=limit).run()
    times = stamps.times
    assert times[-1] - times[0] >= 5 * 10 / 100 - JITTER_S
    assert report.items.written == 6


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_asks_for_a_pause_of_all_its_workers(tmp_path, mode):
    stamps = Stamps(tmp_path / "stamps")

    def work(value: int) -> int:
        stamps(value)
        flag = tmp_path / "asked"
        if value == 20 and not flag.exists():
            flag.touch()
            raise RetryAfter(0.6)
        time.sleep(0.001)  # a call takes a moment: all workers are busy when one asks
        return value

    assert Pipeline(range(60), window=64).map(work, on=mode, workers=3).collect() == list(range(60))
    times = stamps.times
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) >= 0.6 - JITTER_S


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_throttled_stage_holds_no_other(mode):
    """What stands behind a slow limit does not keep the consumer from what has passed it."""
    first = threading.Event()
    values: list[int] = []

    def look(value: int) -> bool:
        values.append(value)
        first.set()
        return len(values) < 3

    iterate(
        Pipeline(range(1000)).map(lambda value: value, on=mode, rate=20).map(lambda value: value, on=mode), mode, look
    )
    assert values == [0, 1, 2]


@pytest.mark.parametrize("rate", [0, -1, "fast", RateLimit])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(PlanError):
        Pipeline([1]).map(abs, rate=rate)
