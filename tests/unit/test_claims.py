"""A job in the hands of a worker: cut, given up, kept apart from the next."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from headway import DROP
from headway.call import Caller, drive
from headway.claim import Cell
from headway.core.policy import Retry
from headway.core.ticket import Job
from headway.errors import ItemTimeout, Raised, RetryAfter

WHY = Raised(ItemTimeout("too long", stage="s"), "")


def timed(kind: str, fn, **more) -> Caller:
    ticks = count(1)
    return Caller(kind, fn, timed=True, clock=lambda: float(next(ticks)), **more)


def given_up_within(kind: str, values: list, at: object, make=lambda v: v, **more):
    """The answer for a job whose call for `at` gives itself up, and what was called after all."""
    cell, called, answers = Cell(threading.Lock()), [], []

    def fn(value):
        called.append(value)
        if value == at:
            answers.append(cell.abandon(WHY, cell.began, 9.0))
        return make(value)

    drive(timed(kind, fn, **more).run(Job(1, values, range(len(values))), cell))
    return answers[0], called


def test_giving_up_keeps_what_was_done_fails_the_call_and_starts_nothing_more():
    answer, called = given_up_within("map", [0, 1, 2, 3, 4], 2, lambda v: v * 10)
    assert (answer.taken, answer.values, answer.origin) == (3, [0, 10], [0, 1])
    assert answer.failed == [(2, WHY)]
    assert called == [0, 1, 2]


def test_giving_up_keeps_failures_and_gaps_before_the_call():
    def make(value):
        if value == 0:
            raise ValueError
        return DROP if value == 1 else value

    answer, _ = given_up_within("map", [0, 1, 2, 3, 4], 3, make)
    assert (answer.taken, answer.values, answer.origin) == (4, [2], [2])
    assert [(at, type(why.error)) for at, why in answer.failed] == [(0, ValueError), (3, ItemTimeout)]


def test_a_batch_that_is_given_up_fails_each_member():
    answer, called = given_up_within("map_batches", [[1, 2], [3, 4], [5]], [3, 4])
    assert (answer.taken, answer.values, answer.origin) == (2, [1, 2], [0, 1])
    assert answer.failed == [(2, WHY), (3, WHY)]
    assert answer.broke == [1]
    assert called == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("atomic", "children", "origin"), [(False, [1, 2, 1], [0, 0, 1]), (True, [1, 2], [0, 0])])
def test_children_given_before_an_expansion_is_given_up_stand_unless_it_is_atomic(atomic, children, origin):
    cell, answers = Cell(threading.Lock()), []

    def fn(value):
        yield 1
        if value == 1:
            answers.append(cell.abandon(WHY, cell.began, 9.0))
        yield 2

    drive(timed("flat_map", fn, atomic=atomic).run(Job(1, [0, 1, 2], range(3), 100), cell))
    assert (answers[0].taken, answers[0].values, answers[0].origin) == (2, children, origin)
    assert answers[0].failed == [(1, WHY)]


def test_a_call_that_has_ended_is_not_given_up_and_its_job_is_cut():
    cell, seen = Cell(threading.Lock()), []

    def fn(value):
        if value == 1:
            seen.append(cell.abandon(WHY, before[0], 9.0))
        before.append(cell.began)
        return value

    before: list = []
    answer = drive(timed("map", fn).run(Job(1, [0, 1, 2], range(3)), cell))
    assert seen == [None]
    assert (answer.taken, answer.values, answer.failed) == (2, [0, 1], [])


def test_every_input_is_either_started_or_given_back_whoever_is_faster():
    for _ in range(200):
        cell, begun, called = Cell(threading.Lock()), threading.Event(), []

        def fn(value, called=called, begun=begun):
            called.append(value)
            begun.set()

        def cut(cell=cell, begun=begun):
            begun.wait()
            cell.cut()

        thief = threading.Thread(target=cut)
        thief.start()
        answer = drive(Caller("map", fn).run(Job(1, list(range(500)), range(500)), cell))
        thief.join()
        assert answer.taken == len(answer.values) == len(called)
        assert cell.cursor == len(called) - 1


def test_a_cell_that_was_cut_before_starts_nothing():
    cell = Cell()
    cell.cut()
    answer = drive(Caller("map", lambda v: v).run(Job(1, [1, 2], range(2)), cell))
    assert (answer.taken, answer.values) == (0, [])


@pytest.mark.parametrize(
    ("halts", "error", "halted"),
    [
        ((), ValueError, False), ((ValueError,), ValueError, True), ((KeyError,), ValueError, False), (True, ValueError, True),
        ((), lambda: RetryAfter(1), True),
    ],
)  # fmt: skip
def test_a_job_ends_at_a_failure_that_what_follows_has_to_wait_for(halts, error, halted):
    def fn(value):
        if value == 1:
            raise error()
        return value

    answer = drive(Caller("map", fn, halts=halts).run(Job(1, [0, 1, 2], range(3)), Cell()))
    assert answer.halted is halted
    assert answer.taken == (2 if halted else 3)
    assert [at for at, _ in answer.failed] == [1]


def writes(fail_on, retry, attempt, values=8):
    written: list = []

    def write(items):
        if fail_on in items:
            raise ConnectionError
        written.extend(items)

    caller = Caller("sink", write, writes=True, retry=retry)
    return drive(caller.run(Job(1, list(range(values)), range(values), attempt=attempt), Cell())), written


def test_a_write_that_is_to_be_tried_again_is_left_whole():
    answer, written = writes(1500, Retry(3, on=ConnectionError), 1, 2000)
    assert (answer.taken, answer.failed, type(answer.again.error)) == (1000, [], ConnectionError)
    assert written == list(range(1000))


@pytest.mark.parametrize("retry", [None, Retry(3, on=KeyError), Retry(2)])
def test_a_write_that_is_not_tried_again_is_traced_to_its_item(retry):
    answer, written = writes(5, retry, 2)
    assert (answer.taken, [at for at, _ in answer.failed], answer.again) == (8, [5], None)
    assert written == [0, 1, 2, 3, 4, 6, 7]


def test_a_scan_keeps_a_state_for_each_key_and_a_failure_changes_none():
    def fn(state, value):
        if value == "bad":
            raise ValueError
        return [*state, value], DROP if value == "drop" else len(state)

    states: dict = {}
    caller = Caller("scan", fn, initial=[], states=states)
    job = Job(1, ["a", "b", "bad", "drop", "c"], range(5), keys=[1, 2, 1, 1, 1])
    answer = drive(caller.run(job, Cell()))
    assert (answer.values, answer.origin) == ([0, 0, 2], [0, 1, 4])
    assert [at for at, _ in answer.failed] == [2]
    assert states == {1: ["a", "drop", "c"], 2: ["b"]}


def test_a_scan_that_is_given_up_does_not_write_its_state():
    cell, states = Cell(threading.Lock()), {}

    def fn(state, value):
        if value == 2:
            assert cell.abandon(WHY, cell.began, 9.0).values == [0]
        return state + value, state

    drive(timed("scan", fn, initial=lambda: 0, states=states).run(Job(1, [1, 2, 4], range(3)), cell))
    assert states == {None: 1}


def test_a_scan_that_returns_no_pair_says_what_it_has_to_return():
    answer = drive(Caller("scan", lambda s, v: v, initial=0).run(Job(1, [1], range(1)), Cell()))
    assert "(state, output), not int" in str(answer.failed[0][1].error)
