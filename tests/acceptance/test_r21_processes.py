"""R21: start methods and pickling: what works in a child process, and what is refused before anything is read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from acceptance.scenario import one_stage
from headway import Pipeline, PlanError

MAIN = """
import os
from headway import Pipeline

class Point:
    def __init__(self, x):
        self.x = x

def double(value):
    return Point(value * 2)

offset = 5

def outer(more):
    class Local:
        def __init__(self, x):
            self.x = x
    def inner(value):
        return Local(value.x + more + offset)
    return inner, Local

inner, Local = outer(100)
print("started")
pipeline = (
    Pipeline(range(4))
    .map(double, on="process", workers=2)
    .map(lambda point: (type(point) is Point, point), on="process")
    .map(lambda pair: pair[1] if pair[0] else None, on="thread")
)
points = pipeline.collect()
assert all(type(point) is Point for point in points), points
assert [p.x for p in points] == [0, 2, 4, 6]
values = Pipeline(points).map(inner, on="process").collect()
assert [v.x for v in values] == [105, 107, 109, 111]
assert all(type(v) is Local for v in values)
pids = Pipeline(range(4)).map(lambda value: os.getpid(), on="process").collect()
assert os.getpid() not in pids
print("done")
"""


def run_script(arguments: list[Any], script: str | None = None) -> list[str]:
    out = subprocess.run(
        [sys.executable, *arguments], input=script, capture_output=True, text=True, timeout=100, check=False
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.splitlines()


@pytest.mark.parametrize("form", ["file", "-c", "standard input"])
def test_lambdas_closures_and_classes_of_main_work_without_a_main_guard(tmp_path, form):
    path = tmp_path / "script.py"
    path.write_text(MAIN)
    lines = {
        "file": lambda: run_script([path]),
        "-c": lambda: run_script(["-c", MAIN]),
        "standard input": lambda: run_script(["-"], MAIN),
    }[form]()
    assert lines == ["started", "done"]


def reads(read: list[int]) -> Any:
    for n in range(100):
        read.append(n)
        yield n


@pytest.mark.parametrize("what", ["lock", "socket", "generator", "file"])
def test_what_cannot_be_sent_is_refused_before_the_first_item_naming_stage_and_variable(tmp_path, what):
    path = tmp_path / "file"
    path.touch()
    with socket.socket() as connection, path.open("a") as file:
        captured = {"lock": threading.Lock(), "socket": connection, "generator": (n for n in ()), "file": file}[what]

        def enrich(value: int) -> Any:
            return value, captured

        read: list[int] = []
        pipeline = Pipeline(reads(read)).map(enrich, on="process", workers=4)
        for start in (pipeline.plan, pipeline.collect, pipeline.run, lambda: list(pipeline)):
            with pytest.raises(PlanError, match="'captured'") as caught:
                start()
            assert "stage 'enrich'" in str(caught.value)
            assert "setup=" in str(caught.value)
        assert read == []


def test_what_a_set_up_or_an_object_captures_is_named_too():
    lock = threading.Lock()

    class Enricher:
        def __init__(self) -> None:
            self.guard = lock

        def __call__(self, value: int) -> int:
            return value

    with pytest.raises(PlanError, match="'guard'"):
        Pipeline([1]).map(Enricher(), on="process", name="enrich").collect()
    with pytest.raises(PlanError, match="'lock'"):
        Pipeline([1]).map(lambda value, _: value, on="process", setup=lambda: lock).collect()


def test_the_fork_of_this_process_is_never_used(monkeypatch):
    def refuse() -> int:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", refuse)
    assert one_stage(range(100), lambda value: value + 1, "process").collect() == list(range(1, 101))


LOGGING = """
import logging, sys, threading
from headway import Pipeline

logging.basicConfig(filename=sys.argv[2])
over = threading.Event()

def log():
    while not over.is_set():
        logging.getLogger("loop").warning("still here")

thread = threading.Thread(target=log)
thread.start()
try:
    for _ in range(int(sys.argv[1])):
        assert Pipeline(range(20)).map(lambda value: value + 1, on="process", workers=2).collect() == list(range(1, 21))
finally:
    over.set()
    thread.join()
"""


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_thread_that_logs_in_a_loop_hangs_no_child(tmp_path, times):
    script = tmp_path / "logging_loop.py"
    script.write_text(LOGGING)
    subprocess.run([sys.executable, script, str(times), tmp_path / "log"], timeout=600, check=True)
