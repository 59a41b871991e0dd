"""R13: Ctrl-C: a script in a process group, real signals, the status that a shell sees."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from acceptance.scenario import MODES
from acceptance.terminal import FOR_EVER_S, Script

RUN = """
from headway import Pipeline
mode, seconds, drain_timeout = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])

def work(value):
    note("started", value)
    time.sleep(seconds)  # the scenario's call of so many seconds
    note("ended", value)
    return value

def write(value):
    note("written", value)

def main():
    pipeline = Pipeline(lambda: read(range(100)), window=9).map(work, on=mode, workers=4, queue=5).to(write)
    pipeline.run(drain_timeout=drain_timeout)

main()
"""

TASKS = RUN.replace("def work", "import asyncio\nasync def work").replace("time.sleep(", "await asyncio.sleep(")
FORMS = {"task": TASKS, "thread": RUN, "process": RUN}
LONGEST_TRACEBACK = 20


def start(folder: Any, mode: str, seconds: float, drain_timeout: float, **how: Any) -> Script:
    return Script(folder, FORMS[mode], mode, seconds, drain_timeout, **how)


def check_one_short_traceback(text: str) -> None:
    assert text.count("Traceback") == 1, text
    assert text.splitlines()[-1].startswith("KeyboardInterrupt"), text
    assert len(text.splitlines()) <= LONGEST_TRACEBACK, text


@pytest.mark.parametrize("mode", ["task", "process"])
def test_without_time_to_drain_it_is_gone_at_once_with_one_short_traceback(tmp_path, mode):
    with start(tmp_path, mode, FOR_EVER_S, 0) as script:
        script.wait_for("started", 4)
        sent = script.send(signal.SIGINT)
        assert script.status() == 130
        assert all(at <= sent for at in script.times("started"))
        assert script.noted("ended") == script.noted("written") == []
        check_one_short_traceback(script.errors)


def test_a_thread_that_does_not_return_keeps_nobody_waiting(tmp_path):
    with start(tmp_path, "thread", FOR_EVER_S, 0, options=("-X", "dev")) as script:
        script.wait_for("started", 4)
        script.send(signal.SIGINT)
        assert script.status() == 130
        assert "it is left behind" in script.errors
        assert script.errors.count("Traceback") == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "seconds", [0.5, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)  # fmt: skip
def test_with_time_to_drain_all_that_was_read_is_delivered_and_nothing_more_is_read(tmp_path, mode, seconds):
    with start(tmp_path, mode, seconds, 35) as script:
        script.wait_for("read", 9)
        script.wait_for("started", 4)
        script.send(signal.SIGINT)
        assert script.status() == 130
        # Between the signal and its arrival an item may have ended, and its place been taken.
        read = script.noted("read")
        assert len(read) <= (9 if seconds > 1 else 18)
        assert script.noted("written") == read == [str(n) for n in range(len(read))]
        assert sorted(script.noted("ended"), key=int) == read
        check_one_short_traceback(script.errors)


@pytest.mark.parametrize("mode", ["task", "process"])
def test_a_second_one_cancels_what_the_first_would_wait_for(tmp_path, mode):
    with start(tmp_path, mode, FOR_EVER_S, FOR_EVER_S) as script:
        script.wait_for("started", 4)
        sent = script.send_each(signal.SIGINT, signal.SIGINT)
        assert script.status() == 130
        assert all(at <= sent for at in script.times("started"))
        assert script.noted("ended") == script.noted("written") == []
        check_one_short_traceback(script.errors)


STUBBORN = """
from headway import Pipeline

class Sink:
    def open(self, resume):
        if sys.argv[1] == "open":
            self.hang()
    def write(self, items):
        note("written", len(items))
        if sys.argv[1] == "write":
            self.hang()
    def commit(self, state):
        if sys.argv[1] == "commit":
            self.hang()
    def close(self, error):
        if sys.argv[1] == "close":
            self.hang()
    def hang(self):
        note("hanging")
        time.sleep(600)  # hangs: what the third signal ends

def rows():
    for n in range(1000):
        yield n
        if n > 3:
            time.sleep(0.02)  # rows go on coming while the sink hangs

Pipeline(rows).to(Sink()).run(drain_timeout=0)
"""


@pytest.mark.parametrize("part", ["open", "write", "commit", "close"])
def test_a_third_one_ends_a_sink_that_hangs(tmp_path, part):
    with Script(tmp_path, STUBBORN, part, options=("-X", "dev")) as script:
        if part in ("commit", "close"):
            script.wait_for("written", 1)
            script.send(signal.SIGINT)
        script.wait_for("hanging", 1)
        script.send_each(*[signal.SIGINT] * (3 - len(script.noted("signals"))))
        assert script.status() in (1, 130)
        assert script.errors.count("Traceback") == 1


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_ctrl_c_in_a_terminal_reaches_the_run_and_not_its_workers(tmp_path, mode):
    with start(tmp_path, mode, 0.3, 35, terminal=True) as script:
        script.wait_for("started", 4)
        script.press_ctrl_c()
        assert script.status() == 130
        assert script.noted("written") == script.noted("read")
        check_one_short_traceback(script.errors)


COMMAND = """
from headway import Pipeline

def work(value):
    note("started", value)
    time.sleep({seconds})  # the scenario's call of so many seconds
    return value

pipeline = Pipeline(lambda: read(range(100)), window=9).map(work, on="process", workers=4, queue=5)
pipeline = pipeline.to(lambda value: note("written", value))
"""


def test_the_command_ends_with_its_status_and_no_traceback(tmp_path):
    with Script(tmp_path, COMMAND.format(seconds=0.3), command="run") as script:
        script.wait_for("started", 4)
        script.send(signal.SIGINT)
        assert script.process.wait(60) == 130
        assert script.status() == 130
        assert script.noted("written") == script.noted("read")
        assert "Traceback" not in script.errors
        assert "interrupted" in script.errors


INPUT_ENDED = """
from headway import Pipeline

def work(value):
    note("started", value)
    time.sleep(0.5)  # a call that runs when the input has ended
    return value

def rows():
    yield from range(4)
    note("over")

report = Pipeline(rows).map(work, on="process", workers=2, queue=4).run()
print(report.state, report.items.written)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_the_input_had_ended_the_run_is_done_all_the_same(tmp_path, number):
    with Script(tmp_path, INPUT_ENDED) as script:
        script.wait_for("over", 1)
        script.wait_for("started", 2)
        script.send(number)
        assert script.status() == 0
        assert script.out.read_text() == "done 4\n"
        assert script.errors == ""


ITERATED = """
from headway import Pipeline

def work(value):
    note("started", value)
    return value

for value in Pipeline(range(10_000_000)).map(work, on=sys.argv[1], workers=2):
    if value == 5:
        note("five")
        time.sleep(600)  # hangs: what the third signal ends
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_consumer_that_iterates_gets_python_s_own_interrupt_and_everything_is_cleaned_up(tmp_path, mode):
    with Script(tmp_path, ITERATED, mode) as script:
        script.wait_for("five", 1)
        script.send(signal.SIGINT)
        assert script.status() == 130
        check_one_short_traceback(script.errors)
