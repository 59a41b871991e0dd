"""The check that runs after every test finds what it is meant to find."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

from support.census import Census


def test_finds_a_thread_that_still_runs():
    before, go_on = Census(), threading.Event()
    thread = threading.Thread(target=go_on.wait, name="forgotten")
    thread.start()
    assert before.left(patience_s=0) == ["thread 'forgotten'"]
    go_on.set()
    thread.join()
    assert before.left() == []


def test_finds_a_child_that_still_runs_and_one_that_nobody_waited_for():
    before = Census()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        left = before.left(patience_s=0)
        assert any(f"child {child.pid}" in line and "input()" in line for line in left)
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert any("(state Z)" in line for line in before.left(patience_s=0))
    assert before.left() == []


def test_finds_an_open_descriptor():
    before = Census()
    reader, writer = os.pipe()
    assert [line.split()[1] for line in sorted(before.left(patience_s=0))] == [
        str(reader),
        str(writer),
    ]
    os.close(reader)
    os.close(writer)
    assert before.left() == []


def test_finds_a_task_that_was_never_awaited_to_its_end():
    before = Census()
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.Event().wait())
    assert any("Event.wait" in line for line in before.left(patience_s=0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert before.left() == []


def test_waits_for_what_is_just_ending():
    before = Census()
    child = subprocess.Popen([sys.executable, "-c", ""])
    reaper = threading.Thread(target=child.wait)
    reaper.start()
    assert before.left() == []
