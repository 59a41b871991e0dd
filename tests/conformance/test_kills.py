"""A worker process is killed where it is not in a call: while it starts, and while it ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline, RunError, StageError, WorkerDied


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_the_first_times(path: Path, times: int) -> Any:
    def setup() -> int:
        with path.open("a") as file:
            file.write("x")
        if path.stat().st_size <= times:
            die()
        return 1

    return setup


def test_a_worker_that_is_killed_while_it_starts_is_followed_by_another(tmp_path):
    setup = dies_the_first_times(tmp_path / "setups", 3)
    pipeline = Pipeline(range(50)).map(lambda value, one: value + one, on="process", workers=2, setup=setup)
    assert pipeline.collect() == list(range(1, 51))


def test_workers_that_are_all_killed_while_they_start_end_the_run_with_the_reason(tmp_path):
    setup = dies_the_first_times(tmp_path / "setups", 1000)
    with pytest.raises(RunError, match="not one item was finished") as caught:
        Pipeline(range(50)).map(lambda value, one: value + one, on="process", workers=2, setup=setup).run()
    assert isinstance(caught.value.__cause__, WorkerDied)
    assert caught.value.report.items.read == 0


def test_a_worker_that_is_killed_while_it_ends_and_has_nothing_to_close_costs_nothing():
    def work(value: int) -> int:
        if value == 5:
            atexit.register(die)
        return value

    report = Pipeline(range(20)).map(work, on="process", workers=2).run()
    assert (report.state, report.items.written) == ("done", 20)


@pytest.mark.skipif(sys.platform != "linux", reason="registers with the C library of Linux")
def test_a_library_that_aborts_as_its_process_is_taken_down_costs_nothing(tmp_path):
    """As one with threads of its own may; what was registered and what still runs comes to its end before."""
    noted = tmp_path / "noted"

    def note(what: str) -> None:
        with noted.open("a") as file:
            file.write(what)

    class Connection:
        def __enter__(self) -> None:
            library = ctypes.CDLL(None)
            getattr(library, "__cxa_atexit")(ctypes.cast(library.abort, ctypes.c_void_p), None, None)
            atexit.register(note, "registered ")
            self.released = threading.Event()
            threading.Thread(target=lambda: self.released.wait() and note("thread ")).start()

        def __exit__(self, *error: object) -> None:
            self.released.set()

    pipeline = Pipeline(range(20)).map(lambda value, _: value, on="process", workers=1, setup=Connection)
    assert pipeline.run().items.written == 20
    assert noted.read_text() == "thread registered "


def test_a_worker_that_is_killed_while_it_closes_its_set_up_is_told():
    class Connection:
        def __enter__(self) -> None:
            """Open."""

        def __exit__(self, *error: object) -> None:
            die()

    with pytest.raises(StageError, match=r"the clean-up of stage 'work' failed.*SIGKILL"):
        Pipeline(range(20)).map(lambda value, _: value, name="work", on="process", setup=Connection).run()
