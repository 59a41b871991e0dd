"""When a worker is followed by another, and when a call is over its limit."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from headway.core.spec import StageSpec
from headway.run.limits import sweep
from headway.run.restart import Restarts


def test_the_first_deaths_are_followed_at_once_and_then_ever_more_slowly():
    restarts = Restarts()
    pauses = []
    for _ in range(18):
        restarts.died(5.0)
        restarts.settled()
        pauses.append(restarts.pause_s(5.0))
    assert pauses == pytest.approx([0.0] * 10 + [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])
    assert restarts.pause_s(20.0) == 0.0


def test_deaths_without_an_item_settled_between_are_hopeless():
    restarts = Restarts()
    for at in (0.0, 1.0, 2.0, 3.0):
        restarts.died(at)
        assert not restarts.hopeless
    restarts.died(4.0)
    assert restarts.hopeless == 5
    restarts.settled()
    assert not restarts.hopeless


def test_deaths_far_apart_are_not():
    restarts = Restarts()
    for minute in range(20):
        restarts.died(61.0 * minute)
        assert not restarts.hopeless


class Fake:
    """A worker that says what it is told to say."""

    def __init__(self, running: Any, **limits: Any) -> None:
        self.call, self.given_up = running, []
        stage = SimpleNamespace(spec=StageSpec("map", int, "s", **limits))
        self.slot = SimpleNamespace(stage=stage, tickets=[1])

    def running(self) -> Any:
        return self.call

    def give_up(self, ticket: int, why: Exception) -> None:
        self.given_up.append((ticket, str(why)))


def look(*workers: Fake, now: float) -> float:
    return sweep([(worker.slot, worker) for worker in workers], now)  # type: ignore[misc]


def test_a_call_is_given_up_at_its_limit_and_not_before():
    worker = Fake((7, 10.0, None), timeout=2.0)
    assert look(worker, now=11.0) == 12.0
    assert not worker.given_up
    look(worker, now=12.0)
    assert worker.given_up == [(7, "the call of stage 's' was not over within timeout=2 s")]


def test_a_deadline_ends_a_call_that_has_time_left():
    worker = Fake((7, 10.0, 10.5), timeout=2.0, deadline=3.0)
    assert look(worker, now=10.0) == 10.5
    look(worker, now=10.6)
    assert worker.given_up == [(7, "the call of stage 's' was not over within deadline=3 s of its item")]


def test_without_limits_nobody_looks_again():
    assert look(Fake((7, 10.0, None)), now=1000.0) == inf


def test_a_call_that_begins_right_after_a_look_is_seen_in_time():
    assert look(Fake(None, timeout=2.0), now=10.0) == 12.0
