"""R14: SIGTERM drains up to a deadline."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from acceptance.scenario import MODES
from acceptance.terminal import FOR_EVER_S, Script

COMMAND = """
from headway import Pipeline

def work(value):
    note("started", value)
    time.sleep({seconds})  # the scenario's call of so many seconds
    return value

class Sink:
    def open(self, resume):
        pass
    def write(self, items):
        self.items = [*getattr(self, "items", ()), *items]
    def commit(self, state):
        for item in getattr(self, "items", ()):
            note("committed", item)
        self.items = []
    def close(self, error):
        note("closed", type(error).__name__)

pipeline = Pipeline(lambda: read(range({rows})), window=9).map(work, on="{mode}", workers=4, queue=5)
pipeline = pipeline.map(lambda value: value, name="second", on="{mode}", queue=9).to(Sink())
how = {{"drain_timeout": {drain}}}
"""
RUN = (
    COMMAND
    + """
report = pipeline.run(**how)
print(report.state)
"""
)


def start(folder: Any, mode: str, seconds: float, drain: float, rows: int = 100) -> Script:
    text = RUN.format(mode=mode, seconds=seconds, drain=drain, rows=rows)
    if mode == "task":
        text = text.replace("def work", "import asyncio\nasync def work").replace("time.sleep(", "await asyncio.sleep(")
    return Script(folder, text, options=("-X", "dev"))


@pytest.mark.parametrize("seconds", [0.4, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", MODES)
def test_in_time_all_that_was_read_is_committed_stage_by_stage(tmp_path, mode, seconds):
    with start(tmp_path, mode, seconds, 30) as script:
        script.wait_for("read", 9)
        script.wait_for("started", 4)
        sent = script.send(signal.SIGTERM)
        assert script.status() == 1  # a Python script: the exception is its own to turn into a status
        read = script.noted("read")
        assert all(at <= sent + 0.2 for at in script.times("read"))
        assert script.noted("committed") == read == [str(n) for n in range(len(read))]
        assert script.noted("closed") == ["NoneType"]
        last = script.errors.splitlines()[-1]
        assert last.endswith(f"stopped by SIGTERM: {len(read)} read, {len(read)} written"), last
        assert script.errors.count("Traceback") == 1


@pytest.mark.parametrize("mode", MODES)
def test_at_the_deadline_the_numbers_that_were_not_finished_are_listed(tmp_path, mode):
    with start(tmp_path, mode, FOR_EVER_S, 1) as script:
        script.wait_for("read", 9)
        script.wait_for("started", 4)
        script.send(signal.SIGTERM)
        assert script.status() == 1
        assert sorted(script.noted("started"), key=int) == ["0", "1", "2", "3"]
        assert script.noted("committed") == []
        assert script.noted("closed") == ["NoneType"]
        assert "9 read, 0 written, 9 unread, not finished: 0 to 8" in script.errors


def test_at_the_deadline_what_was_finished_is_committed_and_the_rest_is_listed(tmp_path):
    text = RUN.format(mode="process", seconds="600 if value > 2 else 0", drain=1, rows=100)
    with Script(tmp_path, text) as script:
        script.wait_for("started", 7)
        script.send(signal.SIGTERM)
        assert script.status() == 1
        assert script.noted("committed") == ["0", "1", "2"]
        read = len(script.noted("read"))  # how far ahead it was when the signal came
        assert read > 7
        assert f"{read} read, 3 written" in script.errors
        assert f"not finished: 3 to {read - 1}" in script.errors


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_the_command_drains_and_its_status_is_143(tmp_path, mode):
    with Script(tmp_path, COMMAND.format(mode=mode, seconds=0.3, drain=30, rows=100), command="run") as script:
        script.wait_for("started", 4)
        script.send(signal.SIGTERM)
        assert script.status() == 143
        assert script.noted("committed") == script.noted("read")
        assert "Traceback" not in script.errors
        assert "stopped by SIGTERM" in script.errors


def test_a_second_one_cancels_and_the_command_still_ends_with_143(tmp_path):
    with Script(
        tmp_path, COMMAND.format(mode="process", seconds=600, drain=600, rows=100), "--json", command="run"
    ) as script:
        script.wait_for("read", 9)
        script.wait_for("started", 4)
        script.send_each(signal.SIGTERM, signal.SIGTERM)
        assert script.status() == 143
        assert "not finished: 0 to 8" in script.errors
        report = json.loads(script.out.read_text())
        assert report["state"] == "cancelled"
        assert report["unfinished"] == [[0, 8]]
        assert report["complete"]


def test_the_status_is_that_of_the_first_signal(tmp_path):
    with Script(tmp_path, COMMAND.format(mode="process", seconds=600, drain=600, rows=100), command="run") as script:
        script.wait_for("started", 4)
        script.send_each(signal.SIGTERM, signal.SIGINT)
        assert script.status() == 143


def test_the_status_is_0_where_the_input_had_ended(tmp_path):
    with Script(tmp_path, COMMAND.format(mode="process", seconds=0.5, drain=30, rows=6), command="run") as script:
        script.wait_for("read", 6)
        script.wait_for("started", 6)
        script.send(signal.SIGTERM)
        assert script.status() == 0
        assert script.noted("committed") == [str(n) for n in range(6)]
