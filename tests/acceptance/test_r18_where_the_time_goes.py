"""R18: see where the time goes. Real runs in every mode; the exact figures are those of the virtual clock."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from acceptance.scenario import MODES
from headway import Pipeline

MS = {"one": 1, "two": 1, "slow": 4, "write": 2}
STATES = ("busy", "overhead", "blocked", "starved", "lane_wait", "throttled", "paused")


def spends(ms: int, mode: str) -> Any:
    """A function that takes so many milliseconds."""
    if mode == "task":

        async def stage(row: Any) -> Any:
            await asyncio.sleep(ms / 1000)  # the scenario's service time: real time is what is measured
            return row

        return stage

    def stage_(row: Any) -> Any:
        time.sleep(ms / 1000)  # the scenario's service time: real time is what is measured
        return row

    return stage_


def pipeline(source: Any, mode: str, **options: Any) -> Pipeline[Any]:
    built: Pipeline[Any] = Pipeline(source)
    for name in ("one", "two", "slow"):
        built = built.map(spends(MS[name], mode), name=name, on=mode, **(options if name == "slow" else {}))
    return built.to(spends(MS["write"], mode), name="write", on=mode)


def adds_up(report: Any) -> None:
    for stage in report.stages:
        assert sum(stage[state] for state in STATES) == pytest.approx(1.0, abs=0.001), stage


ROWS = [pytest.param(200, id="200"), pytest.param(2000, id="2000", marks=pytest.mark.slow)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", ROWS)
def test_the_time_of_every_slot_is_accounted_for_and_the_slowest_stage_named(mode: str, rows: int) -> None:
    report = pipeline(iter(range(rows)), mode).run()
    adds_up(report)
    assert report.bottleneck.stage == "slow"
    assert report.stages[2].capacity == pytest.approx(1 / report.stages[2].service.mean)
    assert [stage.name for stage in report.stages] == list(MS)
    assert report.stages[3]["in"] == rows, "the sink counts as a stage"
    assert report.latency.p50 <= report.latency.p99 <= report.latency.max
    assert report.fill > 0.008
    assert report.drain is not None
    assert report.drain > 0
    into = {queue.into: queue for queue in report.queues}
    assert 0 < into["slow"].depth <= into["slow"].max_depth
    assert report.stages[0].blocked > 0, "what is before the slow stage waits for it"
    assert report.complete
    text = str(report)
    assert "bottleneck: slow (" in text
    assert len(text.splitlines()) < 20
    assert "slow" in report._repr_html_()


def test_a_snapshot_is_read_from_another_thread_while_a_call_does_not_end() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hangs(row: int) -> int:
        if row == 5:
            entered.set()
            leave.wait(60)
        return row

    run = Pipeline(range(60)).map(hangs, workers=4, name="call").to(lambda _: None, name="write").start()
    try:
        assert entered.wait(60)
        seen = run.snapshot()
        # Until everything but the call has passed, and the sink is done with what came before it.
        while seen.reorder[0].held < 54 or seen.reorder[0].window_used > 55:
            seen = run.snapshot()
        first, second = seen, run.snapshot()
        adds_up(first)
        gate = first.reorder[0]
        assert gate.awaiting == 5
        assert gate.awaiting_where.startswith("slot ")
        assert "of call" in gate.awaiting_where
        assert gate.window_used == 55
        assert second.reorder[0].awaiting_age > gate.awaiting_age > 0, "its age since birth grows"
        assert second.stages[0].busy * second.elapsed > 0, "the call that has not ended counts"
        assert second.state == "running"
    finally:
        leave.set()
        assert run.wait().complete


def test_the_price_of_order_is_the_difference_of_two_latencies() -> None:
    def service(rng: Any, _row: Any) -> float:
        return 1.0 if rng.random() < 0.02 else 0.01

    report = Pipeline([]).map(lambda row: row, workers=8, name="call").simulate({"call": service}, items=2000)
    assert report.latency.p50 > 5 * report.latency_unordered.p50
    unordered = Pipeline([]).map(lambda row: row, workers=8, name="call").ordered("none")
    bare = unordered.simulate({"call": service}, items=2000)
    assert bare.latency.p50 == bare.latency_unordered.p50
