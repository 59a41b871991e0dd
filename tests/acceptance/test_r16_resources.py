"""R16: a resource for each worker, or one for all of a stage: opened once, used by every call, closed once, in every ending."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Self

import pytest

from acceptance.scenario import MODES, WORKERS, iterate, one_stage
from headway import StageError, shared

ENDINGS = ("the end", "failure", "break")


class Connection:
    """Cannot be pickled; a context manager of both kinds, which notes in a file what happens to it."""

    def __init__(self, path: Any) -> None:
        self._path, self._lock, self.calls = path, threading.Lock(), 0
        self._note("made")

    def _note(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{text} {os.getpid()} {id(self)}\n")

    def use(self) -> tuple[int, int]:
        with self._lock:
            self.calls += 1
            return os.getpid(), id(self)

    def __enter__(self) -> Self:
        self._note("opened")
        return self

    def __exit__(self, *error: object) -> None:
        self._note("closed")


class AsyncConnection(Connection):
    __enter__ = __exit__ = None  # type: ignore[assignment]

    async def __aenter__(self) -> Self:
        self._note("opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        self._note("closed")


KINDS = [("task", Connection), ("task", AsyncConnection), ("thread", Connection), ("thread", AsyncConnection)]
KINDS += [("process", Connection), pytest.param("process", AsyncConnection, marks=pytest.mark.slow)]  # type: ignore[list-item]


def uses(value: int, connection: Connection) -> Any:
    if value == -1:
        raise ValueError("bad")
    return connection.use()


async def uses_async(value: int, connection: Connection) -> Any:
    return uses(value, connection)


def function_of(mode: str) -> Any:
    return uses_async if mode == "task" else uses


def notes(path: Any, what: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()[1:]) for line in path.read_text().splitlines() if line.startswith(what)]


def run(mode: str, setup: Any, ending: str) -> list[Any]:
    """The outputs; by failure there are none that count."""
    source = [*range(60), -1, *range(60)] if ending == "failure" else range(120)
    outputs: list[Any] = []

    def look(value: Any) -> bool:
        outputs.append(value)
        return ending != "break" or len(outputs) < 20

    pipeline = one_stage(source, function_of(mode), mode, setup=setup)
    if ending == "failure":
        with pytest.raises(StageError, match="bad"):
            iterate(pipeline, mode, look)
    else:
        iterate(pipeline, mode, look)
        assert len(outputs) == (20 if ending == "break" else 120)
    return outputs


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("mode", "kind"), KINDS)
def test_each_worker_has_a_resource_of_its_own(tmp_path, mode, kind, ending):
    path = tmp_path / "notes"
    outputs = run(mode, lambda: kind(path), ending)
    for what in ("made", "opened", "closed"):
        assert len(notes(path, what)) == WORKERS
        assert set(notes(path, what)) == set(notes(path, "made"))
    assert {(str(pid), str(object_)) for pid, object_ in outputs} <= set(notes(path, "made"))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("mode", "kind"), KINDS)
def test_a_shared_resource_is_one_for_each_stage_and_process(tmp_path, mode, kind, ending):
    path = tmp_path / "notes"
    outputs = run(mode, shared(lambda: kind(path)), ending)
    count = WORKERS if mode == "process" else 1
    for what in ("made", "opened", "closed"):
        assert len(notes(path, what)) == count
        assert set(notes(path, what)) == set(notes(path, "made"))
    assert {(str(pid), str(object_)) for pid, object_ in outputs} <= set(notes(path, "made"))


@pytest.mark.parametrize("mode", MODES)
def test_two_stages_and_two_runs_do_not_share(tmp_path, mode):
    path = tmp_path / "notes"
    common = shared(lambda: Connection(path))
    fn = function_of(mode)
    pipeline = one_stage(range(8), fn, mode, setup=common, workers=1).map(fn, on=mode, setup=common)
    for run_ in (1, 2):
        assert len(pipeline.collect()) == 8
        assert len(notes(path, "closed")) == 2 * run_


@pytest.mark.parametrize("mode", MODES)
def test_a_shared_resource_that_cannot_be_opened_fails_the_run_once_before_anything_is_read(mode):
    def refuse() -> None:
        raise OSError("no route")

    read: list[bool] = []

    def rows() -> Any:
        read.append(True)
        yield 1

    with pytest.raises(StageError, match=r"^the set-up of stage 'uses(_async)?' failed: OSError: no route$"):
        one_stage(rows, function_of(mode), mode, setup=shared(refuse)).collect()
    assert read == []


@pytest.mark.parametrize("mode", ["task", "process"])
def test_a_set_up_that_takes_too_long_fails_the_run_naming_the_stage_once(mode):
    async def forever() -> None:
        import asyncio

        await asyncio.Event().wait()

    with pytest.raises(StageError, match=r"the set-up of stage 'uses(_async)?' failed: .*setup_timeout=0\.2 s"):
        one_stage([1], function_of(mode), mode, setup=forever, setup_timeout=0.2).collect()


def test_a_set_up_that_takes_too_long_in_a_thread_fails_the_run_and_leaves_the_thread():
    over = threading.Event()
    try:
        with (
            pytest.warns(RuntimeWarning, match="left behind"),
            pytest.raises(StageError, match=r"setup_timeout=0\.2 s"),
        ):
            one_stage([1], uses, "thread", setup=over.wait, setup_timeout=0.2).collect()
    finally:
        over.set()


def test_a_set_up_that_holds_its_process_is_killed_with_it():
    with pytest.raises(StageError, match=r"setup_timeout=0\.2 s"):
        one_stage(
            [1],
            uses,
            "process",
            setup=lambda: time.sleep(1000),  # hangs until it is killed: no event reaches a child
            setup_timeout=0.2,  # hangs: its limit is what is tried
        ).collect()  # hangs until it is killed
