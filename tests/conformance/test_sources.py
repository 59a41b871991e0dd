"""How a source may fail, end and be left, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.faults import TEXTS, errors_of, make_error
from conformance.modes import CONCURRENT, MODES, REAL, error_text, run
from headway import HeadwayError, Pipeline, SourceError, StageError


def ten(value: Any) -> Any:
    return value * 10


def describe(source: Any, on: str) -> Pipeline[Any]:
    return Pipeline(source).map(ten, on=on, workers=2, name="ten")


class Rows:
    """An iterator that raises where it is told to. A generator could not raise StopIteration."""

    def __init__(self, count: int, error: str, *, open_fails: bool = False) -> None:
        self.left, self.error, self.open_fails = count, error, open_fails

    def __iter__(self) -> Rows:
        if self.open_fails:
            raise make_error(self.error)
        return self

    def __next__(self) -> int:
        if not self.left:
            raise make_error(self.error)
        self.left -= 1
        return 1


class AsyncRows(Rows):
    __iter__ = None  # type: ignore[assignment]

    def __aiter__(self) -> AsyncRows:
        if self.open_fails:
            raise make_error(self.error)
        return self

    async def __anext__(self) -> int:
        return self.__next__()


class Reads:
    """A `Source`."""

    def __init__(self, count: int, error: str) -> None:
        self.left, self.error, self.closed = count, error, 0

    def read(self, n: int) -> list[int]:
        if not self.left:
            raise make_error(self.error)
        n = min(n, self.left)
        self.left -= n
        return [1] * n

    def close(self) -> None:
        self.closed += 1


def check(out: Any, rows: int, error: str) -> None:
    assert out.outputs == [10] * rows
    assert type(out.error) is SourceError
    assert out.error.position == rows
    assert error_text(out.error.__cause__) == (error, TEXTS[error])
    assert out.items["read"] == out.items["written"] == rows
    assert out.complete


@pytest.mark.parametrize("rows", [0, 1, 50])
@pytest.mark.parametrize("mode", [m for m in MODES if m != "process"])
def test_what_was_read_before_the_source_failed_is_delivered_and_then_it_is_raised(mode, rows):
    for error in errors_of(mode):
        if error != "StopIteration":  # from an iterator this is the end
            check(run(mode, describe, Rows(rows, error)), rows, error)


@pytest.mark.parametrize("rows", [0, 50])
def test_the_source_of_a_process_stage_fails_in_the_same_way(rows):
    check(run("process", describe, Rows(rows, "Unloadable")), rows, "Unloadable")


@pytest.mark.parametrize("mode", [m for m in MODES if m != "process"])
def test_a_source_that_cannot_be_opened_fails_after_no_rows(mode):
    for error in errors_of(mode):
        check(run(mode, describe, Rows(3, error, open_fails=True)), 0, error)


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_factory_that_raises_is_a_source_that_fails_after_no_rows(mode):
    for error in errors_of("inline"):  # a factory is called on the caller's thread: there Ctrl-C is the caller's

        def make(error: str = error) -> Any:
            raise make_error(error)

        check(run(mode, describe, make), 0, error)


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_factory_that_gives_no_source_is_told_what_a_source_is(mode):
    out = run(mode, describe, lambda: 5)
    assert type(out.error) is SourceError
    assert "a source must be an iterable" in str(out.error)
    assert "not int" in str(out.error)


@pytest.mark.parametrize("rows", [0, 1, 50])
@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_an_async_source_fails_in_the_same_way(mode, rows):
    for error in errors_of(mode):
        if error != "StopAsyncIteration":
            check(run(mode, describe, AsyncRows(rows, error)), rows, error)
        check(run(mode, describe, AsyncRows(rows, error, open_fails=True)), 0, error)


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_source_that_is_read_in_pieces_fails_in_the_same_way_and_is_closed_once(mode):
    for error in errors_of(mode):
        source = Reads(50, error)
        check(run(mode, describe, source), 50, error)
        assert source.closed == 1


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_an_async_generator_function_is_a_source_that_can_be_run_again(mode):
    async def rows():
        yield 1
        yield 2

    pipeline = lambda source, on: Pipeline(rows).map(ten, on=on)
    for _ in range(2):
        assert run(mode, pipeline, rows).outputs == [10, 20]


@pytest.mark.parametrize("mode", REAL)
def test_a_generator_is_closed_once_after_the_end(mode):
    closed = []

    def rows():
        try:
            yield from range(20)
        finally:
            closed.append(True)

    assert run(mode, describe, rows()).outputs == [n * 10 for n in range(20)]
    assert closed == [True]


@pytest.mark.parametrize("taken", [0, 1, 7])
@pytest.mark.parametrize("mode", REAL)
def test_leaving_early_closes_the_source_once_and_reads_no_more(mode, taken):
    closed, read = [], []

    def rows():
        try:
            for n in range(100_000):
                read.append(n)
                yield n
        finally:
            closed.append(True)

    out = run(mode, describe, rows(), leave=taken)
    assert out.outputs == [n * 10 for n in range(taken)]
    assert closed == ([True] if read else [])
    assert len(read) < 100_000
    if mode != "inline":  # a plain iterator has no report
        assert out.complete
        assert out.state == "cancelled"


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_leaving_early_closes_an_async_source(mode):
    closed = []

    async def rows():
        try:
            for n in range(100_000):
                yield n
        finally:
            closed.append(True)

    assert run(mode, describe, rows, leave=3).outputs == [0, 10, 20]
    assert closed == [True]


@pytest.mark.parametrize("mode", REAL)
def test_a_failing_stage_closes_the_source(mode):
    closed = []

    def rows():
        try:
            yield from [1, 2, None, 4]
        finally:
            closed.append(True)

    out = run(mode, describe, rows())
    assert type(out.error) is StageError
    assert out.error.seq == 2
    assert closed == [True]


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
@pytest.mark.parametrize("kind", ["generator", "async generator", "source"])
def test_a_source_that_fails_while_it_is_closed_fails_the_run(mode, kind):
    def rows():
        yield 1
        try:
            yield 2
        finally:
            raise ValueError("bad")

    async def async_rows():
        for row in (1, 2):
            yield row
        raise ValueError("bad")

    class Broken(Reads):
        def read(self, n: int) -> list[int]:
            return super().read(n) if self.left else []

        def close(self) -> None:
            raise ValueError("bad")

    source = {"generator": rows, "async generator": async_rows, "source": Broken(2, "ValueError")}[kind]
    out = run(mode, describe, source)
    assert len(out.outputs) == 2
    assert type(out.error) is SourceError
    assert str(out.error.__cause__) == "bad"


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_a_source_that_cannot_be_closed_after_leaving_early_is_told(mode):
    def rows():
        try:
            yield from range(10_000)
        finally:
            raise ValueError("bad")

    out = run(mode, describe, rows, leave=3)
    assert out.outputs == [0, 10, 20]
    assert type(out.error) is SourceError
    assert str(out.error.__cause__) == "bad"


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_an_item_that_fails_ahead_of_a_consumer_that_leaves_is_not_its_concern(mode):
    out = run(mode, describe, [1, 2, 3, None, 5], leave=1)
    assert (out.outputs, out.error) == ([10], None)


@pytest.mark.parametrize("mode", ["inline", "task", "thread"])
def test_an_iterator_is_used_up_by_the_first_run_and_the_next_says_so(mode):
    pipeline = Pipeline(iter(range(5))).map(ten)
    how = {"mode": "inline"} if mode == "inline" else {}
    assert pipeline.collect(**how) == [0, 10, 20, 30, 40]
    with pytest.raises(HeadwayError, match="used up by the first run"):
        pipeline.collect(**how)


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_source_ends_at_once(mode):
    out = run(mode, describe, [])
    assert (out.outputs, out.error, out.complete) == ([], None, True)
    assert out.counts("ten") == (0, 0, 0, 0)


@pytest.mark.parametrize("mode", CONCURRENT)
def test_a_failing_source_and_a_failing_item_behind_it_are_both_told(mode):
    def rows():
        yield from [1, None, 3]
        raise ValueError("bad")

    out = run(mode, lambda source, on: Pipeline(source, on_error="keep").map(ten, on=on), rows)
    assert [type(v).__name__ for v in out.outputs] == ["int", "Failure", "int"]
    assert type(out.error) is SourceError
    assert out.error.position == 3
