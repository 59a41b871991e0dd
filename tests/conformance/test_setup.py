"""What a stage sets up in each worker: made once, given to every call, taken down once, in every ending."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import pytest

from conformance.faults import TEXTS, breathe, errors_of, make_error
from conformance.modes import CONCURRENT, REAL, error_text, run
from headway import Pipeline, StageError
from headway.run import process

KINDS = ("function", "context", "async context", "coroutine")
LEAVES = ("context", "async context")


def make_setup(kind: str, path: Any, *, enter: str = "", leave: str = "") -> Any:
    """A set-up that notes in a file what is called, since it may be in another process."""

    def note(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def begin() -> dict[str, int]:
        note("+")
        if enter:
            raise make_error(enter)
        return {"calls": 0}

    def end() -> None:
        note("-")
        if leave:
            raise make_error(leave)

    class Context:
        def __enter__(self) -> dict[str, int]:
            return begin()

        def __exit__(self, *error: object) -> None:
            end()

    class AsyncContext:
        async def __aenter__(self) -> dict[str, int]:
            await breathe()
            return begin()

        async def __aexit__(self, *error: object) -> None:
            await breathe()
            end()

    async def coroutine() -> dict[str, int]:
        await breathe()
        return begin()

    return {"function": begin, "context": Context, "async context": AsyncContext, "coroutine": coroutine}[kind]


def use(value: Any, resource: dict[str, int]) -> Any:
    if value is None:
        raise ValueError("bad")
    resource["calls"] += 1
    return value * 10


async def use_async(value: Any, resource: dict[str, int]) -> Any:
    await breathe()
    return use(value, resource)


def describe(setup: Any, fn: Any = use, workers: int = 2, policy: str = "raise") -> Any:
    return lambda source, on: Pipeline(source, on_error=policy).map(fn, on=on, workers=workers, setup=setup, name="use")


@pytest.mark.parametrize("fn", [use, use_async])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", REAL)
def test_each_worker_is_set_up_once_and_taken_down_once(tmp_path, mode, kind, fn):
    path = tmp_path / "notes"
    out = run(mode, describe(make_setup(kind, path), fn), range(30))
    assert out.error is None
    assert out.outputs == [n * 10 for n in range(30)]
    notes = path.read_text()
    assert notes.count("+") == 2
    assert notes.count("-") == (2 if kind in LEAVES else 0)


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("mode", REAL)
def test_each_worker_is_taken_down_once_after_a_failure_and_after_leaving_early(tmp_path, mode, kind):
    path = tmp_path / "notes"
    out = run(mode, describe(make_setup(kind, path)), [1, 2, None, *range(50)])
    assert type(out.error) is StageError
    assert sorted(path.read_text()) == ["+", "+", "-", "-"]
    path.unlink()
    out = run(mode, describe(make_setup(kind, path)), range(10_000), leave=3)
    assert out.outputs == [0, 10, 20]
    assert sorted(path.read_text()) == ["+", "+", "-", "-"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_set_up_that_raises_fails_the_run_before_anything_is_read(tmp_path, mode, kind):
    for error in errors_of(mode):
        read = []

        def rows(read: Any = read) -> Any:
            read.append(True)
            yield 1

        out = run(mode, describe(make_setup(kind, tmp_path / "notes", enter=error)), rows)
        assert type(out.error) is StageError, error
        assert error_text(out.error.__cause__) == (error, TEXTS[error])
        assert str(out.error) == f"the set-up of stage 'use' failed: {error}: {TEXTS[error]}"
        assert out.error.stage == "use"
        assert read == []
        assert out.outputs == []


@pytest.mark.parametrize(("kind", "error"), [("function", "Unloadable"), ("async context", "SystemExit")])
def test_a_set_up_that_raises_in_a_process_fails_the_run_in_the_same_way(tmp_path, kind, error):
    out = run("process", describe(make_setup(kind, tmp_path / "notes", enter=error)), range(5))
    assert type(out.error) is StageError
    assert error_text(out.error.__cause__) == (error, TEXTS[error])
    assert str(out.error).startswith("the set-up of stage 'use' failed: ")
    assert out.items["read"] == 0


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_taking_down_that_raises_fails_the_run_after_everything_was_delivered(tmp_path, mode, kind):
    for error in errors_of(mode):
        out = run(mode, describe(make_setup(kind, tmp_path / "notes", leave=error), workers=1), range(5))
        assert out.outputs == [0, 10, 20, 30, 40]
        assert type(out.error) is StageError, error
        assert error_text(out.error.__cause__) == (error, TEXTS[error])
        assert str(out.error) == f"the clean-up of stage 'use' failed: {error}: {TEXTS[error]}"


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("mode", REAL)
def test_a_taking_down_that_raises_after_leaving_early_is_told(tmp_path, mode, kind):
    setup = make_setup(kind, tmp_path / "notes", leave="ValueError")
    with pytest.raises(StageError, match="the clean-up of stage 'use' failed: ValueError: bad"):
        raise run(mode, describe(setup), range(10_000), leave=3).error or AssertionError("nothing was raised")


def test_a_taking_down_that_raises_in_a_process_fails_the_run_in_the_same_way(tmp_path):
    out = run("process", describe(make_setup("context", tmp_path / "notes", leave="Fatal"), workers=1), range(5))
    assert out.outputs == [0, 10, 20, 30, 40]
    assert type(out.error) is StageError
    assert str(out.error) == "the clean-up of stage 'use' failed: Fatal: bad"


@pytest.mark.parametrize("mode", REAL)
def test_the_function_gets_the_same_resource_in_every_call_of_a_worker(mode):
    def count(value: int, resource: list[int]) -> int:
        resource.append(value)
        return len(resource)

    out = run(mode, lambda source, on: Pipeline(source).map(count, on=on, setup=list), range(20))
    assert out.outputs == list(range(1, 21))


@pytest.mark.parametrize("mode", REAL)
def test_a_resource_that_cannot_be_pickled_is_made_where_it_is_used(mode):
    def setup() -> Any:
        import threading

        return threading.Event()

    def locked(value: int, event: Any) -> int:
        event.set()
        return value

    out = run(mode, lambda source, on: Pipeline(source).map(locked, on=on, setup=setup), range(5))
    assert out.outputs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", REAL)
@pytest.mark.parametrize("shape", ["filter", "flat_map", "map_batches", "sink"])
def test_every_kind_of_stage_is_given_its_resource(tmp_path, mode, shape):
    path = tmp_path / "out"

    def describe(source, on):
        stages = Pipeline(source)
        if shape == "filter":
            return stages.filter(lambda value, odd: value % 2 == odd, on=on, setup=lambda: 1)
        if shape == "flat_map":
            return stages.flat_map(lambda value, times: [value] * times, on=on, setup=lambda: 2)
        if shape == "map_batches":
            return stages.map_batches(lambda values, more: [v + more for v in values], 2, on=on, setup=lambda: 1)

        def write(value, more):
            with path.open("a") as file:
                file.write(str(value + more))

        return stages.to(write, on=on, setup=lambda: 1)

    out = run(mode, describe, range(4))
    assert out.error is None
    expected = {"filter": [1, 3], "flat_map": [0, 0, 1, 1, 2, 2, 3, 3], "map_batches": [1, 2, 3, 4], "sink": []}
    assert out.outputs == expected[shape]
    if shape == "sink":
        assert path.read_text() == "1234"


@pytest.mark.parametrize("mode", CONCURRENT)
def test_a_context_manager_made_by_a_decorator_is_entered(mode):
    @contextlib.contextmanager
    def setup():
        yield 5

    @contextlib.asynccontextmanager
    async def setup_async():
        yield 7

    def add(value: int, more: int) -> int:
        return value + more

    for make, more in ((setup, 5), (setup_async, 7)):
        out = run(mode, lambda source, on, make=make: Pipeline(source).map(add, on=on, setup=make), range(3))
        assert out.outputs == [n + more for n in range(3)]


def test_a_module_that_does_not_finish_loading_in_a_process_fails_the_run(tmp_path, monkeypatch):
    (tmp_path / "never_loaded.py").write_text(
        "import sys, time\n"
        "if 'headway.run.child' in sys.modules:\n"
        "    time.sleep(100)  # the hang that is tried\n"
        "def double(value): return 2 * value\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(process, "LOADING_S", 0.5)
    double = importlib.import_module("never_loaded").double
    with pytest.raises(StageError, match=r"had not loaded the stage's function after 0.5 s"):
        Pipeline(range(3)).map(double, on="process", setup_timeout=0.4, grace=0.1).collect()
