"""R10: a time limit for each item. What hangs is one record; everything else comes, in its place, once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import MODES
from headway import Failure, ItemTimeout, Pipeline, StageError, StallError

ABANDONED = "ignore:stage .* a call was given up:RuntimeWarning"
RELEASE = threading.Event()
"""What an abandoned thread waits for; set when its test is over."""


@pytest.fixture(autouse=True)
def release():
    RELEASE.clear()
    yield
    RELEASE.set()


def hanging(mode: str, at: int, begin: Callable[[int], None] = lambda _x: None) -> Any:
    """Make a function that hangs at item `at`, in the way of its mode; `begin` is told of every call."""
    release = RELEASE if mode == "thread" else None

    async def call_async(x: int) -> int:
        begin(x)
        if x == at:
            await asyncio.Event().wait()  # never set: the limit cuts it
        return x

    def call(x: int) -> int:
        begin(x)
        if x == at:
            if release is not None:
                release.wait(60)
            else:
                __import__("time").sleep(60)  # in a child, which is killed: no event of this process reaches it
        return x

    return call_async if mode == "task" else call


class Hang:
    """Hangs at item 5, in the way of its mode, and writes down every start."""

    def __init__(self, folder: Path, mode: str) -> None:
        self._folder, self._mode = str(folder), mode

    def begin(self, x: int) -> None:
        handle = os.open(f"{self._folder}/{x}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, b".")
        os.close(handle)

    def starts(self) -> dict[int, int]:
        return {int(path.name): path.stat().st_size for path in Path(self._folder).iterdir()}

    @property
    def fn(self) -> Any:
        return hanging(self._mode, 5, self.begin)


@pytest.mark.filterwarnings(ABANDONED)
@pytest.mark.parametrize("order", ["input", "none"])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_one_call_that_hangs_is_one_record_and_nothing_else(mode, workers, order, tmp_path):
    hang, letters = Hang(tmp_path, mode), list[Failure]()
    pipeline = Pipeline(range(20), on_error="dead_letter").map(
        hang.fn, on=mode, workers=workers, timeout=1.0, name="hang"
    )
    report_of = pipeline.ordered(order).open(dead_letters=letters)
    with report_of as run:
        values = list(run)
    assert sorted(values) == [x for x in range(20) if x != 5]
    if order == "input":
        assert values == sorted(values)
    (letter,) = letters
    assert (letter.seq, letter.stage, letter.value, type(letter.error)) == (5, "hang", 5, ItemTimeout)
    assert "timeout=1 s" in str(letter.error)
    assert hang.starts() == dict.fromkeys(range(20), 1)
    assert run.report.complete
    assert run.report.stages[0].failed == 1


@pytest.mark.filterwarnings(ABANDONED)
@pytest.mark.parametrize("mode", MODES)
def test_a_block_in_hand_is_cut_at_the_call_that_hangs(mode, tmp_path):
    """Hundreds of quick items first, so that the one that hangs stands in the middle of a large block."""
    hang = Hang(tmp_path, mode)
    fn = hanging(mode, 1300, lambda x: hang.begin(x) if x >= 1000 else None)
    values = Pipeline(range(2000), on_error="keep").map(fn, on=mode, timeout=1.0).collect()
    assert [x if isinstance(x, int) else x.seq for x in values] == list(range(2000))
    assert [type(x.error) for x in values if not isinstance(x, int)] == [ItemTimeout]
    assert hang.starts() == dict.fromkeys(range(1000, 2000), 1)


@pytest.mark.filterwarnings(ABANDONED)
@pytest.mark.parametrize("mode", MODES)
def test_what_waits_behind_a_call_that_is_given_up_does_not_pass_its_block(mode):
    """One worker, so that nothing but the worker keeps the order. Often: how the blocks lie is up to the machine."""
    pipeline = Pipeline(range(2000), on_error="keep").map(hanging(mode, 1300), on=mode, timeout=0.1)
    for _ in range(5 if mode == "process" else 20):
        assert [x if isinstance(x, int) else x.seq for x in pipeline.collect()] == list(range(2000))


@pytest.mark.filterwarnings(ABANDONED)
@pytest.mark.parametrize("mode", MODES)
def test_without_a_policy_the_run_stops_with_the_item(mode, tmp_path):
    hang = Hang(tmp_path, mode)
    with pytest.raises(StageError) as caught:
        Pipeline(range(20)).map(hang.fn, on=mode, timeout=0.3, name="hang").collect()
    assert isinstance(caught.value, ItemTimeout)
    assert (caught.value.seq, caught.value.stage, caught.value.value) == (5, "hang", 5)


@pytest.mark.parametrize("mode", MODES)
def test_a_deadline_counts_from_birth(mode, tmp_path):
    hang, letters = Hang(tmp_path, "task" if mode == "task" else "process"), list[Failure]()
    on = "process" if mode == "thread" else mode
    pipeline = Pipeline(range(5, 7), on_error="dead_letter").map(hang.fn, on=on, workers=2, deadline=5.0)
    assert pipeline.collect(dead_letters=letters) == [6]
    assert ["deadline=5 s" in str(letter.error) for letter in letters] == [True]


@pytest.mark.filterwarnings("ignore:a call of stage .* does not return:RuntimeWarning")
def test_abandoned_threads_are_counted_capped_and_told_of():
    def hang(x: int) -> None:
        RELEASE.wait(60)

    with (
        pytest.warns(RuntimeWarning, match="may still take effect"),
        pytest.raises(StallError, match="wedged") as caught,
    ):
        Pipeline(range(20), on_error="skip").map(hang, on="thread", workers=2, timeout=0.05, name="hang").collect()
    assert caught.value.stage == "hang"
    assert str(caught.value).count("RELEASE.wait(60)") == 3


def test_an_abandoned_thread_does_not_keep_the_interpreter_from_ending(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import threading, warnings
        from headway import Pipeline
        warnings.simplefilter("ignore")
        def hang(x):
            if x == 5:
                threading.Event().wait(600)
            return x
        print(len(Pipeline(range(20), on_error="skip").map(hang, on="thread", timeout=0.2).collect()))
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "19\n"


@pytest.mark.filterwarnings(ABANDONED)
def test_a_coroutine_that_swallows_its_cancellation_does_not_hold_up_the_run():
    release = asyncio.Event()

    async def stubborn(x: int) -> int:
        while x == 5 and not release.is_set():
            try:
                await release.wait()  # never set
            except asyncio.CancelledError:
                continue
        return x

    pipeline = Pipeline(range(20), on_error="skip").map(stubborn, timeout=0.2, grace=0.1)
    assert pipeline.collect() == [x for x in range(20) if x != 5]
