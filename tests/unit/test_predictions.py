"""What a report predicts for processes in place of threads, from figures made by hand."""

from __future__ import annotations

import json

import pytest

from headway import Pipeline
from headway.watch.ceilings import visits_of
from headway.watch.predict import Predictor, changes

CORES = 4
COMPUTES = {"read": 0.0005, "work": 0.0095, "write": 0.0005}
"""Seconds of a call on a processor: together more than a call of `work` takes, so the lock is the limit."""


def same(row):
    return row


def figures(cpu_s, *, threads=1, cores=CORES):
    """Those of a pipeline whose calls take 10 ms in `work` and 1 ms around it, `cpu_s` seconds of them on a processor."""
    pipeline = Pipeline([]).map(same, name="read").map(same, name="work", workers=threads).to(same, name="write")
    data = pipeline.simulate({"read": 0.001, "work": 0.01, "write": 0.001}, items=500).figures()
    data["model"]["cores"] = cores
    for stage in data["stages"]:
        seconds = data["model"]["stages"][stage["name"]]["cpu_s"] = cpu_s.get(stage["name"])
        share = seconds / stage["service"]["mean"] if seconds is not None else None
        stage["cpu"] = stage["busy"] * share if share is not None else None
    return data


def stage_of(data, name):
    return next(stage for stage in data["stages"] if stage["name"] == name)


def test_a_stage_that_computes_is_proposed_for_as_many_processes_as_there_are_processors():
    data = figures(COMPUTES)
    [row] = changes(Predictor(data), simulated=True)
    assert row["change"] == 'work on="process", workers=4'
    assert row["workers"] == {"work": 4}
    # A row needs 11 ms of four processors, some of which goes into handing over.
    assert row["rate"] == pytest.approx(0.85 * CORES / 0.011)
    assert row["low"] < row["rate"] < row["high"]


def test_processes_are_no_fewer_than_the_threads_were_since_their_calls_may_have_waited_for_more_than_the_lock():
    # Eight threads, 10 ms a call, of which 1 on a processor: there is no telling what else they wait for.
    predictor = Predictor(figures({"read": 0.0001, "work": 0.001, "write": 0.0001}, threads=8))
    assert predictor.processes("work") == 8
    assert predictor.in_processes("work").rate == pytest.approx(0.85 * 8 / 0.01)


@pytest.mark.parametrize("known", [{}, {"read": 0.0005, "write": 0.0005}], ids=["none", "of others"])
def test_a_stage_without_figures_of_processors_is_not_proposed_for_processes(known):
    predictor = Predictor(figures(known))
    assert predictor.in_processes("work") is None
    assert not [row for row in changes(predictor, simulated=True) if "process" in row["change"]]


def test_a_stage_that_was_never_called_is_not_proposed_and_stands_in_nobodys_way():
    data = figures({"read": 0.0005, "work": 0.0098})
    write = stage_of(data, "write")
    write["service"] = dict.fromkeys(write["service"])
    write["capacity"] = write["cpu"] = None
    predictor = Predictor(data)
    assert predictor.in_processes("write") is None
    [row] = changes(predictor, simulated=False)
    assert row["workers"] == {"work": 4}


def test_a_stage_that_has_one_worker_by_its_nature_is_not_proposed_for_processes():
    data = figures(COMPUTES)
    stage_of(data, "work")["alone"] = True
    predictor = Predictor(data)
    assert predictor.ceilings({})[0].verdict == "gil_limited"
    assert predictor.in_processes("work") is None
    assert changes(predictor, simulated=True) == []


def test_a_report_read_from_a_file_proposes_the_same():
    data = figures(COMPUTES)
    again = json.loads(json.dumps(data))
    assert changes(Predictor(again), simulated=True) == changes(Predictor(data), simulated=True)
    assert visits_of(stage_of(again, "work")) == 1.0


def test_more_tasks_than_the_event_loop_can_serve_are_predicted_to_give_no_more_than_that():
    async def wait(row):
        return row

    report = Pipeline([]).map(wait, name="wait", workers=32).simulate({"wait": 0.0075}, items=2000)
    data = report.figures()
    free = Predictor(report.figures()).predict({"wait": 128})
    data["model"] |= {"loop_s": 0.00016, "loop_share": 0.7}
    made = Predictor(data).predict({"wait": 128})
    assert free.rate > 1.5 / 0.00016
    assert made.rate <= 1.05 / 0.00016
    assert (made.next_bottleneck, made.because[:14]) == ("wait", "the event loop")
