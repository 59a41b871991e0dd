"""Schedules on the virtual clock with the user's own functions: what depends on timing is found, shrunk and replayed."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from headway import DROP, Pipeline, PlanError, Retry
from headway.cli.main import main
from headway.testing import explore

ROWS = [(7, 42, 100), (8, 42, 250), *((row, row, row) for row in range(100, 108))]


def accounts(**options):
    """The silent reorder: row 7 sets the balance of account 42 to 100, row 8 to 250."""
    balance = {}

    def post(row):
        balance[row[1]] = row[2]
        return row

    def verify(report):
        assert report.complete
        assert balance[42] == 250, f"account 42 ends at {balance[42]}"

    return Pipeline(ROWS).map(post, workers=2, **options).ordered("none"), verify


def test_the_silent_reorder_is_found_shrunk_and_replayed():
    found = explore(accounts, schedules=500)
    assert not found
    (failure,) = found.failures
    assert failure.message == "account 42 ends at 100"
    assert found.seeds == [failure.seed]
    assert sum("took its own time" in line for line in failure.schedule) <= 2
    ends = [line.split(",")[0] for line in failure.schedule]
    assert any("ends item 1" in line for line in ends)
    again = explore(accounts, schedules=1, seed=failure.seed)
    assert again.failures == [failure]


def test_with_the_key_declared_no_schedule_fails():
    found = explore(lambda: accounts(key=lambda row: row[1]), schedules=500)
    assert found
    assert found.schedules == 500


def test_with_one_worker_no_schedule_fails():
    assert explore(lambda: (accounts()[0].with_workers({"post": 1}), lambda report: None), schedules=20)


def test_outputs_are_compared_with_those_of_one_thread():
    """A stage that is no function of its value alone."""

    def make():
        seen = []

        def number(value):
            seen.append(value)
            return value, len(seen)

        return Pipeline(range(6)).map(number, workers=3)

    found = explore(make, schedules=50)
    assert "on one thread it is" in found.failures[0].message


@pytest.mark.parametrize("order", ["input", "key", "none"])
def test_the_comparison_is_by_the_order_of_the_sink(order):
    def make():
        options = {"key": lambda value: value % 3} if order == "key" else {}
        wrote = []
        built = Pipeline(range(12)).map(lambda value: value * 2, workers=4).filter(lambda value: value % 4 == 0)
        return built.to(wrote.append, order=order, **options)

    assert explore(make, schedules=30)


def test_a_lost_update_between_two_awaits_is_found():
    def make():
        total = [0]

        async def add(value):
            before = total[0]
            await asyncio.sleep(0.001)  # virtual: a point where others run
            total[0] = before + value
            return value

        def verify(report):
            assert total[0] == 10, f"the total is {total[0]}"

        return Pipeline(range(5)).map(add, workers=3), verify

    assert explore(make, schedules=20).failures[0].message.startswith("the total is ")
    careful = asyncio.Lock

    def mended():
        total, lock = [0], careful()

        async def add(value):
            async with lock:
                before = total[0]
                await asyncio.sleep(0.001)  # virtual: a point where others run
                total[0] = before + value
            return value

        def verify(report):
            assert total[0] == 10, f"the total is {total[0]}"

        return Pipeline(range(5)).map(add, workers=3), verify

    assert explore(mended, schedules=50)


def test_retries_filters_batches_scans_and_set_ups_run_as_they_are():
    class Resource:
        async def __aenter__(self):
            await asyncio.sleep(1)  # virtual
            return 10

        async def __aexit__(self, *error):
            await asyncio.sleep(1)  # virtual

    async def add(value, ten):
        await asyncio.sleep(0.01)  # virtual
        return value + ten

    def make():
        failed = set()

        def flaky(value):
            if value % 3 == 0 and value not in failed:
                failed.add(value)
                raise ConnectionError
            return value if value % 2 else DROP

        def running(state, value):
            return state + value, state + value

        built = (
            Pipeline(range(20))
            .map(add, workers=3, setup=Resource)
            .map(flaky, workers=2, retry=Retry(3, on=ConnectionError))
        )
        return built.scan(running, 0).batch(3).map(sum)

    assert explore(make, schedules=20)


def test_time_that_is_waited_for_costs_nothing():
    async def slow(value):
        await asyncio.sleep(86_400)  # virtual: a day that takes no time
        return value

    assert explore(
        lambda: Pipeline(range(5)).map(slow, workers=2).ordered("none"), schedules=1, fakes={"asyncio.sleep": nap}
    )


async def nap(_seconds):
    """Stands for a sleep in the run on one thread, which has real time."""


def opens_socket(value):
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))
    return value


def starts_thread(value):
    threading.Thread(target=print).start()
    return value


def starts_process(value):
    subprocess.run([sys.executable, "-c", ""], check=True)
    return value


async def uses_thread(value):
    return await asyncio.to_thread(int, value)


@pytest.mark.parametrize(
    ("fn", "what"),
    [(opens_socket, "a socket"), (starts_thread, "a thread"), (starts_process, "a process"), (uses_thread, "a thread")],
)
def test_what_is_real_is_refused_with_the_name_of_the_stage(fn, what):
    def make():
        return Pipeline(range(3)).map(fn, name="post", on_error="skip"), lambda report: None

    with pytest.raises(PlanError, match=f"stage 'post' uses {what}.*fakes="):
        explore(make, schedules=1)


def test_a_stand_in_takes_the_place_of_what_is_real():
    def make():
        return Pipeline(range(3)).map(opens_socket)

    class Fake:
        def __enter__(self):
            return SimpleNamespace(connect=lambda address: None)

        def __exit__(self, *error):
            pass

    assert explore(make, schedules=3, fakes={"socket.socket": Fake})
    with pytest.raises(PlanError, match=r"there is no 'socket\.nothing' to replace"):
        explore(make, schedules=1, fakes={"socket.nothing": None})


def test_killed_workers_take_only_what_they_had_in_hand():
    def make():
        return Pipeline(range(40), on_error="skip").map(abs, on="process", workers=3)

    assert explore(make, schedules=30, faults=True)


def test_a_report_gives_the_times():
    report = Pipeline([]).map(abs, name="one", workers=2).simulate({"one": 1.0}, items=100)
    assert explore(lambda: Pipeline(range(20)).map(abs, name="one", workers=2), schedules=5, service=report)


def test_threads_start_as_ever_after_it():
    before = threading.Thread.start
    explore(lambda: Pipeline(range(3)).map(abs), schedules=1)
    assert threading.Thread.start is before
    time.sleep(0)  # the real one is back: it would raise if it were not


JOBS = """
from headway import Pipeline

def accounts(**options):
    balance = {}
    def post(row):
        balance[row[1]] = row[2]
        return row
    def verify(report):
        assert balance[42] == 250, "account 42 is wrong"
    rows = [(7, 42, 100), (8, 42, 250)]
    return Pipeline(rows).map(post, workers=2, **options).ordered("none"), verify

def keyed():
    return accounts(key=lambda row: row[1])

plain = Pipeline(range(5)).map(abs, workers=2)
number = 3
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    (tmp_path / "checked_jobs.py").write_text(JOBS)

    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(["check", *arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=exit_.value.code or 0, out=captured.out, err=captured.err)

    yield call
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_the_command_finds_it_and_replays_it(command):
    shown = command("checked_jobs.py:accounts", "--json")
    assert shown.status == 1
    seed = json.loads(shown.out)["failures"][0]["seed"]
    again = command("checked_jobs.py:accounts", "--replay", str(seed))
    assert again.status == 1
    assert f"seed {seed}: account 42 is wrong" in again.out
    assert f"--replay {seed}" in command("checked_jobs.py:accounts").out


def test_the_command_says_that_all_is_well(command):
    for name in ("keyed", "plain"):
        shown = command(f"checked_jobs.py:{name}", "--schedules", "25")
        assert (shown.status, shown.out) == (0, "25 schedules, all with the right result\n")


def test_the_command_refuses_what_is_no_pipeline(command):
    shown = command("checked_jobs.py:number")
    assert shown.status == 2
    assert "is of type int; a Pipeline is needed" in shown.err
