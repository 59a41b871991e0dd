"""What the event loop of a run takes of a processor."""

from __future__ import annotations

import threading
import time

import pytest

from headway import Pipeline
from headway.run.loop import LoopTime

measured = pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clocks of other threads here")


async def same(row):
    return row


@measured
def test_a_report_tells_what_the_loop_takes_for_a_row_and_of_its_time():
    model = Pipeline(range(2000)).map(same, name="work").run().to_dict()["model"]
    assert model["loop_s"] > 0
    assert 0 < model["loop_share"] < 1.1  # of two clocks, which tick differently


@measured
def test_a_report_of_a_run_that_goes_on_has_it_too_from_any_thread():
    with Pipeline(range(200)).map(same, name="work").open() as run:
        for row in run:
            if row == 100:
                assert run.report.to_dict()["model"]["loop_s"] > 0


@measured
def test_it_stands_still_once_it_has_stopped_and_outlives_its_thread():
    spent = LoopTime()

    def work():
        spent.begin()
        sum(range(10_000))
        spent.stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert spent.spent() == spent.spent()
    assert spent.spent()[0] > 0


def test_where_threads_have_no_clocks_nothing_is_measured_and_nothing_fails(monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    model = Pipeline(range(50)).map(same, name="work").run().to_dict()["model"]
    assert (model["loop_s"], model["loop_share"]) == (0.0, 0.0)


def test_a_simulation_has_no_loop():
    model = Pipeline([]).map(same, name="work").simulate({"work": 1.0}).to_dict()["model"]
    assert (model["loop_s"], model["loop_share"]) == (0.0, 0.0)
