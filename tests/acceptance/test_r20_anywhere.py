"""R20: anywhere: a running loop, another thread, a daemonic process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from acceptance.scenario import MODES, one_stage

HOLD_S = 0.05
GENEROUS = 8
"""Tests run beside others on two cores: what is meant is that nothing holds the loop for the length of a run."""


def add(value: int) -> int:
    return value + 1


def slowly(value: int) -> int:
    time.sleep(0.01)  # work that takes a while: the loop must stay free meanwhile
    return value + 1


@pytest.mark.parametrize("mode", MODES)
def test_the_sync_form_works_inside_a_running_loop(mode):
    async def main() -> Any:
        return one_stage(range(100), add, mode).collect(), one_stage(range(100), add, mode).run()

    outputs, report = asyncio.run(main())
    assert outputs == list(range(1, 101))
    assert report.items.written == 100


@pytest.mark.parametrize("mode", MODES)
def test_the_sync_form_works_off_the_main_thread_and_installs_no_handlers(mode):
    found: list[Any] = []

    def note(value: int) -> int:
        found.append(signal.getsignal(signal.SIGINT))
        return value

    def main() -> None:
        found.append(one_stage(range(100), add, mode).map(note, on="thread").collect())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=main)
    thread.start()
    thread.join(60)
    assert found.pop() == list(range(1, 101))
    assert set(found) == {before}


@pytest.mark.parametrize("mode", MODES)
def test_the_async_form_runs_on_the_caller_s_loop_and_does_not_hold_it(mode):
    async def main() -> float:
        longest, last, over = 0.0, time.perf_counter(), False

        async def beat() -> None:
            nonlocal longest, last
            while not over:
                await asyncio.sleep(0)  # a turn of the loop for what is measured
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        heart = asyncio.create_task(beat())
        await asyncio.sleep(0)  # a turn of the loop for what is measured
        fn = add if mode == "task" else slowly
        report = await one_stage(range(200), fn, mode).arun()
        over = True
        await heart
        assert report.items.written == 200
        return longest

    assert asyncio.run(main()) < HOLD_S * GENEROUS


def test_stages_of_the_async_form_run_in_the_caller_s_loop():
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def where(value: int) -> bool:
            return asyncio.get_running_loop() is loop

        async with one_stage(range(10), where, "task").open() as run:
            assert [value async for value in run] == [True] * 10

    asyncio.run(main())


DAEMONIC = """
import multiprocessing, sys
from headway import Pipeline, PlanError

def add(value):
    return value + 1

def main(pipe):
    try:
        for mode in ("task", "thread"):
            pipe.send(Pipeline(range(5)).map(add, on=mode, workers=2).collect())
        try:
            Pipeline(range(5)).map(add, on="process").collect()
        except PlanError as error:
            pipe.send(str(error))
    finally:
        pipe.close()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=main, args=(there,), daemon=True)
    process.start()
    there.close()
    for _ in range(3):
        print(here.recv(), flush=True)
    process.join(30)
"""


def test_in_a_daemonic_process_threads_and_tasks_work_and_processes_are_refused_with_the_reason(tmp_path):
    script = tmp_path / "daemonic.py"
    script.write_text(DAEMONIC)
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=True)
    tasks, threads, refused = out.stdout.splitlines()
    assert tasks == threads == "[1, 2, 3, 4, 5]"
    assert "stage 'add'" in refused
    assert "daemonic" in refused
    assert 'on="thread"' in refused
