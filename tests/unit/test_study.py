"""Virtual speed-up: who pays what, what comes of it, and that a run is the same with it as without."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from headway import HeadwayError, Pipeline, PlanError
from headway.core.ticket import Answer
from headway.run.study import LEAST_S, Effect, Tolls


def hashed(slot: Any) -> Any:
    class Slot:
        stage = slot.stage

    return Slot()


def took(seconds: float) -> Answer:
    return Answer(0, 1, started=10.0, stopped=10.0 + seconds)


def parties(workers: int = 1) -> tuple[Tolls, Any, Any]:
    stage = SimpleNamespace(slots=[None] * workers)
    studied, other = SimpleNamespace(stage=stage), SimpleNamespace(stage=SimpleNamespace(slots=[None]))
    return Tolls(stage, 0.5), hashed(studied), hashed(other)  # type: ignore[arg-type]


def test_a_slot_that_works_pays_for_what_fell_due_meanwhile_and_the_stage_itself_nothing():
    tolls, studied, other = parties()
    tolls.charged = True
    tolls.began(other)
    assert tolls.ended(studied, took(0.004)) == 0.0
    assert tolls.ended(other, took(0.001)) == pytest.approx(0.002)
    assert tolls.ended(studied, took(0.004)) == 0.0
    tolls.paid(other, 0.002)
    assert tolls.debt(other) == pytest.approx(0.002), "what falls due while it pays is paid too"
    tolls.paid(other, 0.0025)
    assert tolls.debt(other) == 0.0
    tolls.began(other)
    tolls.ended(studied, took(0.004))
    assert tolls.ended(other, took(0.001)) == pytest.approx(0.0015), "what was paid too much counts"
    assert tolls.total == pytest.approx(0.006)


def test_a_slot_that_waits_has_paid_by_that():
    tolls, studied, other = parties()
    tolls.charged = True
    tolls.began(other)
    assert tolls.ended(other, took(0.001)) == 0.0
    tolls.ended(studied, took(0.1))
    tolls.began(other)
    assert tolls.ended(other, took(0.001)) == 0.0


def test_small_tolls_are_gathered_and_calls_side_by_side_share_one():
    tolls, studied, other = parties(workers=4)
    tolls.charged = True
    tolls.began(other)
    tolls.ended(studied, took(6 * LEAST_S))
    assert tolls.total == pytest.approx(0.75 * LEAST_S)
    assert tolls.ended(other, took(0.001)) == 0.0
    tolls.began(other)
    tolls.ended(studied, took(6 * LEAST_S))
    assert tolls.ended(other, took(0.001)) == pytest.approx(1.5 * LEAST_S)


def test_without_a_charge_nothing_falls_due():
    tolls, studied, other = parties()
    tolls.began(other)
    tolls.ended(studied, took(1.0))
    assert tolls.ended(other, took(1.0)) == tolls.total == 0.0


def wait(ms: float) -> Any:
    def call(row: int) -> int:
        time.sleep(ms / 1e3)  # service times: what is studied is how long calls take
        return row

    return call


@pytest.mark.parametrize("on", ["thread", "task", "process"])
def test_a_studied_run_gives_what_it_gives_without(on: str):
    async def wait_async(row: int) -> int:
        import asyncio

        await asyncio.sleep(0.002)  # a service time: how long calls take is what is studied
        return row

    slow = wait_async if on == "task" else wait(2)
    with Pipeline(range(3000)).map(slow, on=on, workers=2, name="slow").map(wait(1), name="quick").open() as run:
        with ThreadPoolExecutor(1) as aside:
            found = aside.submit(run.study, "slow", 0.5, 1.5)
            values = list(run)
        effect = found.result()
    assert values == list(range(3000))
    assert run.report.items == {**run.report.items, "read": 3000, "written": 3000}
    assert isinstance(effect, Effect)
    assert 0 < effect.low <= effect.rate <= effect.high
    assert effect.base > 0
    assert not {"dispatch", "_on_answer", "_on_died"} & vars(run.driver).keys(), "it has taken itself away"
    assert run.report.advice[-1] == str(effect)
    assert effect.to_dict()["gain"] == effect.gain


def test_a_run_that_ends_first_says_so_and_loses_nothing():
    with Pipeline(range(150)).map(wait(2), name="a").map(wait(1), name="b").open() as run:
        with ThreadPoolExecutor(1) as aside:
            found = aside.submit(run.study, "a", 0.9, 30.0)
            assert list(run) == list(range(150))
        with pytest.raises(HeadwayError, match="ended before the study did"):
            found.result()
    with pytest.raises(HeadwayError, match="ended before the study did"):
        run.study("a")


def test_too_few_rows_are_no_measurement():
    with Pipeline(range(40)).map(wait(50), name="a").open() as run:
        with ThreadPoolExecutor(1) as aside:
            found = aside.submit(run.study, "a", 0.5, 1.0)
            assert list(run) == list(range(40))
        with pytest.raises(HeadwayError, match=r"only \d+ rows came out in a window of 0.1 s; give the study more"):
            found.result()


def test_one_study_at_a_time():
    with Pipeline(range(2000)).map(wait(1), name="a").open() as run:
        with ThreadPoolExecutor(2) as aside:
            both = [aside.submit(run.study, "a", 0.5, 1.0) for _ in range(2)]
            assert list(run) == list(range(2000))
        errors = [str(error) for each in both if (error := each.exception()) is not None]
    assert errors == ["another stage is being studied; ask again when that has ended"]


@pytest.mark.parametrize(
    ("stage", "speedup", "seconds", "message"),
    [
        ("x", 0.5, 1.0, "there is no stage 'x'; there are 'a'"),
        ("a", 0.0, 1.0, "a share above 0 and below 1"),
        ("a", 1.0, 1.0, "a share above 0 and below 1"),
        ("a", 0.5, 0.0, "takes some seconds"),
    ],
)
def test_what_cannot_be_studied_is_refused(stage: str, speedup: float, seconds: float, message: str):
    with Pipeline(range(3)).map(wait(1), name="a").open() as run:
        with pytest.raises(PlanError, match=message):
            run.study(stage, speedup, seconds)
        list(run)


def test_an_option_studies_beside_the_run_and_the_report_has_what_was_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.studying.STUDY_S", 1.0)
    report = Pipeline(range(1500)).map(wait(1), name="a").run(study=("a", 0.5))
    assert "with calls of a 50% shorter about" in report.advice[-1]
    report = Pipeline(range(20)).map(wait(1), name="a").run(study=("a", 0.5))
    assert report.advice[-1] == "a was not studied: the run ended before the study did"
