"""One process worker without an engine: what its death costs, how it is given up, what is seen of it from outside."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import Tally, repeats
from headway import DROP, ItemTimeout, WorkerDied
from headway.core.ticket import Job
from headway.run.journal import _RESUMED, _STATE, _TICKET
from support.workers import Hands, reached


class Unsendable:
    def __reduce__(self) -> Any:
        raise TypeError("not sent")


class Unreadable:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not read")


def die(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    else:
        os.kill(os.getpid(), getattr(signal, how))


def work(value: Any) -> Any:
    """Each way in which a call can end, by its input."""
    if isinstance(value, str) and value.startswith("die "):
        die(value[4:])
    if value == "drop":
        return DROP
    if value == "fail":
        raise KeyError("bad")
    if value == "unsendable":
        return Unsendable()
    if value == "unreadable":
        return Unreadable(1)
    return value


VALUES = [1, "drop", "fail", None, [2], "unsendable", "unreadable", 3.5]


def plain(answer: Any) -> Any:
    failed = [(offset, type(why.error).__name__, str(why.error)) for offset, why in answer.failed]
    origin = answer.origin if answer.origin is not None else list(range(len(answer.values)))
    return answer.taken, answer.values, origin, failed


@pytest.mark.parametrize(
    ("how", "exitcode", "signalled"),
    [
        ("SIGKILL", None, 9),
        ("SIGTERM", None, 15),
        ("segfault", None, 11),
        ("exit", 7, None),
    ],
)
def test_a_death_costs_the_item_at_the_cursor_and_keeps_what_lies_before(how, exitcode, signalled):
    with Hands(work) as hands:
        hands.submit(1, VALUES)
        whole = hands.heard.wait("answered")
        hands.submit(2, [*VALUES, f"die {how}", "after"])
        hands.submit(3, ["not begun"])
        why, answer, cursor = hands.heard.wait("died")
        assert cursor == len(VALUES)
        assert answer.ticket == 2
        assert plain(answer) == plain(whole)
        assert answer.taken == len(VALUES)
        assert isinstance(why.error, WorkerDied)
        assert (why.error.exitcode, why.error.signal) == (exitcode, signalled)
        assert ("memory" in str(why.error)) == (how == "SIGKILL")
    assert hands.heard.kinds() == ["ready", "answered", "died"]


def test_a_rebuilt_failure_carries_the_traceback_of_the_worker():
    with Hands(work) as hands:
        hands.submit(1, ["fail", "die exit"])
        _, answer, _ = hands.heard.wait("died")
        ((_, why),) = answer.failed
        assert 'raise KeyError("bad")' in why.traceback
        assert "journal.py" not in why.traceback


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("filter", [1, 0, "fail", [], "x"], (5, [1, "x"], [0, 4], [(2, "KeyError", "'bad'")])),
        ("sink", [1, "fail", 3], (3, [], [], [(1, "KeyError", "'bad'")])),
    ],
)
def test_outcomes_of_other_kinds_are_kept_too(kind, values, expected):
    with Hands(work, kind) as hands:
        hands.submit(1, [*values, "die exit", 9])
        _, answer, cursor = hands.heard.wait("died")
        assert plain(answer) == expected
        assert cursor == len(values)


def test_outcomes_of_batches_are_kept_by_batch():
    def each(batch: list[Any]) -> list[Any]:
        return [work(value) for value in batch]

    with Hands(each, "map_batches") as hands:
        hands.submit(1, [[1, "drop"], [2, "fail"], [3], ["die exit", 4], [5]])
        _, answer, cursor = hands.heard.wait("died")
        assert cursor == 3
        assert answer.taken == 3
        assert answer.values == [1, 3]
        assert [offset for offset, _ in answer.failed] == [2, 3]


def test_an_async_function_is_recorded_too():
    async def slow(value: Any) -> Any:
        return work(value)

    with Hands(slow) as hands:
        hands.submit(1, [1, "fail", 2, "die SIGKILL"])
        _, answer, cursor = hands.heard.wait("died")
        assert (answer.taken, answer.values, cursor) == (3, [1, 2], 3)


def test_an_idempotent_stage_keeps_nothing_and_tells_the_cursor():
    with Hands(work, idempotent=True) as hands:
        hands.submit(1, [1, 2, 3])
        assert hands.heard.wait("answered").values == [1, 2, 3]
        hands.submit(2, [1, 2, "die SIGKILL", 3])
        _, answer, cursor = hands.heard.wait("died")
        assert (answer.ticket, answer.taken, answer.values, cursor) == (2, 0, [], 2)


def test_a_death_between_jobs_costs_nothing():
    with Hands(work) as hands:
        hands.submit(1, [1, 2])
        hands.heard.wait("answered")
        reached(lambda: hands.worker._journal.ticket == -1)
        os.kill(hands.worker.pid, signal.SIGKILL)
        _, answer, cursor = hands.heard.wait("died")
        assert (answer, cursor) == (None, None)


def test_inputs_that_cannot_be_read_stand_in_their_places_after_a_death():
    with Hands(work) as hands:
        values = [Unreadable(0), 1, Unsendable(), 2, Unreadable(3), "die exit", Unreadable(4), 5]
        hands.submit(1, values)
        _, answer, cursor = hands.heard.wait("died")
        assert cursor == 5
        assert answer.taken == 5
        assert answer.values == [1, 2]
        assert answer.origin == [1, 3]
        assert [offset for offset, _ in answer.failed] == [0, 2, 4]


def test_a_job_ends_early_where_its_outcomes_are_too_large_to_be_recorded():
    def grow(count: int) -> bytes:
        return b"x" * count

    with Hands(grow) as hands:
        hands.submit(1, [400_000, 400_000, 400_000, 1])
        answer = hands.heard.wait("answered")
        assert (answer.taken, len(answer.values), answer.failed) == (3, 3, [])
        hands.submit(2, [3_000_000, 1])
        answer = hands.heard.wait("answered", 2)
        assert (answer.taken, len(answer.values[0])) == (1, 3_000_000)
        hands.submit(3, [1, 2])
        assert hands.heard.wait("answered", 3).taken == 2


def test_more_unreadable_inputs_than_can_be_told_of_cost_only_their_words():
    with Hands(work) as hands:
        hands.submit(1, [Unreadable(n) for n in range(900)] + ["die exit"])
        _, answer, cursor = hands.heard.wait("died")
        assert (answer.taken, cursor, len(answer.failed)) == (900, 900, 900)


@repeats(3, 40)
def test_kills_at_random_instants_cost_at_most_the_call_that_ran(tmp_path, times):
    """The file has what was begun; the answer has to account for all of it but the call at the cursor."""

    def note(value: int) -> int:
        tally.bump()
        return value

    for round_ in range(times):
        tally = Tally(tmp_path / f"begun-{round_}")
        with Hands(note) as hands:
            hands.submit(1, list(range(1000)))
            reached(lambda least=25 * round_, tally=tally: tally.count > least)
            os.kill(hands.worker.pid, signal.SIGKILL)
            _, answer, cursor = hands.heard.wait("died")
            begun = tally.count
            if answer is None:
                assert hands.heard.wait("answered").taken == begun == 1000
            else:
                assert answer.values == list(range(answer.taken))
                assert begun <= answer.taken + (cursor is not None)
                assert cursor in (None, answer.taken)


def hang(value: Any) -> Any:
    if value == "hang":
        time.sleep(1000)  # hangs until it is killed
    if value == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)  # hangs until it is killed
    if value == "spin":
        while True:
            pass
    return value


@pytest.mark.parametrize("idempotent", [False, True])
def test_the_call_that_runs_is_seen_with_its_start_and_the_deadline_of_its_item(idempotent):
    with Hands(hang, idempotent=idempotent) as hands:
        assert hands.worker.running() is None
        before = time.perf_counter()
        hands.submit(5, [1, 2, "hang"], until=before + 900.0)
        ticket, began, until = reached(hands.worker.running)
        assert ticket == 5
        assert before <= began <= time.perf_counter()
        assert until == before + 900.0
        os.kill(hands.worker.pid, signal.SIGKILL)
        hands.heard.wait("died")
        assert hands.worker.running() is None


@pytest.mark.parametrize(("value", "code"), [("hang", 15), ("ignore", 9), ("spin", 15)])
def test_a_call_that_is_given_up_is_terminated_then_killed_and_fails_alone(value, code):
    why = ItemTimeout("too long", stage="work")
    with Hands(hang, grace=0.2) as hands:
        hands.submit(5, [1, 2, value, 4])
        hands.submit(6, [7])
        reached(lambda: (now := hands.worker._journal) and now.words[0] >> 1 == 2 and hands.worker.running())
        child = hands.worker._child
        hands.worker.give_up(5, why)
        hands.worker.give_up(5, ItemTimeout("again", stage="work"))
        told, answer, cursor = hands.heard.wait("died")
        assert told.error is why
        assert (answer.taken, answer.values, cursor) == (2, [1, 2], 2)
        if value != "ignore":  # else it may be terminated before it ignores that
            assert child.returncode == -code
    assert hands.heard.kinds() == ["ready", "died"]


def test_a_call_that_has_ended_meanwhile_is_not_given_up():
    with Hands(hang) as hands:
        hands.submit(5, [1])
        assert hands.heard.wait("answered").taken == 1
        hands.worker.give_up(5, ItemTimeout("too long", stage="work"))
        hands.submit(6, [2])
        assert hands.heard.wait("answered", 2).values == [2]
    assert hands.heard.kinds() == ["ready", "answered", "answered"]


def numbers(value: Any) -> Any:
    yield from range(value)
    die("exit")


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_generator_dies_with_its_worker_and_is_answered_once(idempotent):
    with Hands(numbers, "flat_map", idempotent=idempotent) as hands:
        hands.submit(1, [5], limit=3)
        answer = hands.heard.wait("answered")
        assert (answer.parked, answer.values) == (True, [0, 1, 2])
        reached(lambda: hands.worker._journal.ticket == -1)
        hands.worker.submit(Job(1, [], (), 100, resumed=1))
        _, answer, cursor = hands.heard.wait("died")
        assert (answer.ticket, answer.taken, answer.values, cursor) == (1, 0, [], 0)


@contextmanager
def _paused_between_parts() -> Iterator[tuple[Hands, Any]]:
    """A worker whose child has answered for a part of an expansion, has nothing in hand, and is stopped."""

    def many(value: int) -> Any:
        yield from range(value)

    with Hands(many, "flat_map") as hands:
        hands.submit(1, [5], limit=3)
        assert hands.heard.wait("answered").parked
        journal = hands.worker._journal
        reached(lambda: journal.ticket == -1)
        os.kill(hands.worker.pid, signal.SIGSTOP)
        yield hands, journal


def test_an_answer_that_came_before_a_death_is_not_taken_for_that_of_the_part_that_follows():
    """The child died behind its answer, before it said that nothing is in its hands; the parent had it go on by then."""

    with _paused_between_parts() as (hands, journal):
        journal.words[_STATE] -= 1
        journal.words[_TICKET] = 1
        hands.worker.submit(Job(1, [], (), 100, resumed=1))
        assert hands.worker.running() is None
        os.kill(hands.worker.pid, signal.SIGKILL)
        _, answer, cursor = hands.heard.wait("died")
        assert (answer, cursor) == (None, None)


def test_an_expansion_dies_with_its_worker_as_soon_as_that_has_taken_the_next_part():
    """Before its generator goes on the child has published no call; run again its first children would come twice."""

    with _paused_between_parts() as (hands, journal):
        hands.worker.submit(Job(1, [], (), 100, resumed=1))
        journal.words[_RESUMED], journal.words[_TICKET] = 1, 1
        os.kill(hands.worker.pid, signal.SIGKILL)
        _, answer, cursor = hands.heard.wait("died")
        assert (answer.ticket, answer.taken, answer.values, cursor) == (1, 0, [], 0)


def test_a_set_up_that_takes_too_long_is_told_once_and_its_process_ended():
    with Hands(
        lambda value, _: value,
        opens=False,
        setup=lambda: time.sleep(1000),  # hangs until it is killed: no event reaches a child
        setup_timeout=0.1,  # hangs: its limit is tried
    ) as hands:  # hangs until it is killed
        why = hands.heard.wait("broken")
        assert isinstance(why.error, TimeoutError)
        assert "setup_timeout=0.1 s" in str(why.error)
    assert hands.heard.kinds() == ["broken"]


def test_a_clean_up_that_kills_its_process_is_told():
    class Bad:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            os._exit(9)

    with Hands(lambda value, _: value, setup=Bad) as hands:
        pass
    assert hands.heard.kinds() == ["ready", "broken"]
    assert hands.heard.wait("broken").error.exitcode == 9


def hold_the_interpreter(value: Any) -> Any:
    ctypes.PyDLL(None).usleep(value)  # holds the interpreter's lock for that long: what is tried


def test_the_stack_shows_where_the_users_code_is():
    with Hands(hang) as hands:
        hands.submit(1, ["spin"])
        reached(hands.worker.running)
        assert "in hang" in hands.worker.stack(30.0)
        os.kill(hands.worker.pid, signal.SIGKILL)
        hands.heard.wait("died")
    assert "has ended" in hands.worker.stack(1.0)


def test_a_stack_that_cannot_be_had_says_so():
    with Hands(hold_the_interpreter) as hands:
        hands.submit(1, [100_000_000])
        reached(hands.worker.running)
        assert "holds the interpreter" in hands.worker.stack(0.2)
        os.kill(hands.worker.pid, signal.SIGKILL)
        hands.heard.wait("died")


@repeats(5, 100)
def test_replacements_leave_no_descriptor(times):
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    for _ in range(times):
        with Hands(work, opens=False) as hands:
            hands.submit(1, ["die exit"])
            hands.heard.wait("died")
        assert held() == before


def add(state: int, value: Any) -> Any:
    work(value)
    return state + value, state + value


@pytest.mark.parametrize("idempotent", [False, True])
def test_the_states_of_a_scan_outlive_its_worker(idempotent):
    states: dict[Any, Any] = {}
    with Hands(add, "scan", initial=0, states=states, idempotent=idempotent) as hands:
        hands.submit(1, [1, 2, 4], keys=["a", "b", "a"])
        assert hands.heard.wait("answered").values == [1, 2, 5]
        assert states == {"a": 5, "b": 2}
        hands.submit(2, [1, 1, "die exit"], keys=["b", "b", "b"])
        _, answer, cursor = hands.heard.wait("died")
        assert cursor == 2
        assert answer.values == ([] if idempotent else [3, 4])
        assert states == {"a": 5, "b": 2 if idempotent else 4}
    with Hands(add, "scan", initial=0, states=states) as hands:
        hands.submit(1, [1, 1], keys=["a", "b"])
        assert hands.heard.wait("answered").values == [6, 3 if idempotent else 5]
