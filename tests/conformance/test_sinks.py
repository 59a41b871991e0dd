"""Sinks that are functions and sinks that are objects, failing in each of their parts."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.faults import TEXTS, breathe, errors_of, make_error
from conformance.modes import MODES, error_text, run
from headway import Failure, Pipeline, PlanError, RunError, SinkError, StageError

LOCAL = ("inline", "task", "thread")


def writer(path: Any) -> Any:
    """A sink function that appends to a file, so that it can be read whichever process wrote it."""

    def write(value: Any) -> None:
        if value in ("ValueError", "SystemExit", "Unsendable"):
            raise make_error(value)
        with path.open("a") as file:
            file.write(f"{value}\n")

    return write


def async_writer(path: Any) -> Any:
    write = writer(path)

    async def write_async(value: Any) -> None:
        await breathe()
        write(value)

    return write_async


def written(path: Any) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.mark.parametrize("policy", ["skip", "keep", "dead_letter"])
@pytest.mark.parametrize("make", [writer, async_writer])
@pytest.mark.parametrize("mode", MODES)
def test_an_item_that_a_sink_function_refuses_is_dead_and_the_others_are_written_in_order(tmp_path, mode, make, policy):
    path = tmp_path / "out"
    rows = [1, "ValueError", 2, 3, "SystemExit", "Unsendable", 4]
    out = run(mode, lambda source, on: Pipeline(source, on_error=policy).to(make(path), on=on, name="write"), rows)
    assert out.error is None
    assert written(path) == ["1", "2", "3", "4"]
    assert out.counts("write") == (7, 4, 0, 3)
    assert out.items["written"] == 4
    assert out.items["dead"] == 3
    letters = [("write", seq, 1, rows[seq], TEXTS[rows[seq]], rows[seq]) for seq in (1, 4, 5)]
    assert out.records == (letters if policy == "dead_letter" else [])
    assert out.complete


@pytest.mark.parametrize("mode", MODES)
def test_a_sink_function_that_fails_under_raise_has_written_all_before_and_nothing_behind(tmp_path, mode):
    path = tmp_path / "out"
    rows = [*range(40), "ValueError", *range(41, 80)]
    out = run(mode, lambda source, on: Pipeline(source).to(writer(path), on=on, name="write"), rows)
    assert type(out.error) is StageError
    assert (out.error.stage, out.error.seq, out.error.value) == ("write", 40, "ValueError")
    assert written(path) == [str(n) for n in range(40)]
    assert out.items["written"] == 40
    assert out.complete


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_a_sink_refuses_takes_all_its_members(tmp_path, mode):
    path = tmp_path / "out"

    def write(values: list[int]) -> None:
        if 4 in values:
            raise ValueError("bad")
        with path.open("a") as file:
            file.write(f"{values}\n")

    def describe(source, on):
        return Pipeline(source, on_error="dead_letter").batch(3).to(write, on=on)

    out = run(mode, describe, range(8))
    assert written(path) == ["[0, 1, 2]", "[6, 7]"]
    assert out.counts("write") == (8, 5, 0, 3)
    assert out.items["written"] == 5
    assert out.items["dead"] == 3
    (letter,) = out.letters
    assert (letter.stage, letter.seq, letter.value) == ("write", 3, [3, 4, 5])


@pytest.mark.parametrize("mode", MODES)
def test_kept_failures_reach_the_sink_at_their_place_in_batches_too(tmp_path, mode):
    path = tmp_path / "out"

    def odd(value: int) -> int:
        if value % 2:
            raise ValueError("bad")
        return value

    def write(values: list[Any]) -> None:
        with path.open("a") as file:
            file.write(f"{[v.seq if isinstance(v, Failure) else v * 10 for v in values]}\n")

    def describe(source, on):
        return Pipeline(source, on_error="keep").map(odd, on=on, workers=2).batch(3).to(write, on=on)

    out = run(mode, describe, range(7))
    assert written(path) == ["[0, 1, 20]", "[3, 40, 5]", "[60]"]
    assert out.items["written"] == 4
    assert out.items["dead"] == 3
    assert out.complete


class Store:
    """A `Sink` that notes what is called, and fails where it is told to."""

    def __init__(self, fails: str = "", error: str = "ValueError", bad: tuple[int, ...] = ()) -> None:
        self.fails, self.error, self.bad = fails, error, bad
        self.calls: list[str] = []
        self.rows: list[Any] = []
        self.reason: BaseException | None = None

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise make_error(self.error)

    def open(self, resume: Any) -> None:
        assert resume is None
        self._do("open")

    def write(self, items: Any) -> None:
        if any(item in self.bad for item in items):
            raise make_error(self.error)
        self.rows.extend(items)

    def commit(self, state: Any) -> None:
        assert isinstance(state, dict)
        self._do("commit")

    def close(self, error: BaseException | None) -> None:
        self.reason = error
        self._do("close")


class AsyncStore(Store):
    async def open(self, resume: Any) -> None:
        await breathe()
        super().open(resume)

    async def write(self, items: Any) -> None:
        await breathe()
        super().write(items)

    async def commit(self, state: Any) -> None:
        await breathe()
        super().commit(state)

    async def close(self, error: BaseException | None) -> None:
        await breathe()
        super().close(error)


def into(store: Store, policy: str = "raise") -> Any:
    return lambda source, on: Pipeline(source, on_error=policy).to(store, on=on, name="store")


STORES = pytest.mark.parametrize("kind", [Store, AsyncStore])


@STORES
@pytest.mark.parametrize("mode", LOCAL)
def test_a_sink_is_opened_written_in_order_committed_and_closed_once(mode, kind):
    store = kind()
    out = run(mode, into(store), range(2500))
    assert out.error is None
    assert store.rows == list(range(2500))
    assert (store.calls[0], store.calls[-2:]) == ("open", ["commit", "close"])
    assert store.calls.count("open") == store.calls.count("close") == 1
    assert store.reason is None
    assert out.items["written"] == 2500


@STORES
@pytest.mark.parametrize("policy", ["skip", "keep", "dead_letter"])
@pytest.mark.parametrize("mode", LOCAL)
def test_a_write_of_several_items_that_fails_is_halved_down_to_the_items_that_fail(mode, kind, policy):
    store = kind(bad=(0, 7, 8, 300, 499))
    out = run(mode, into(store, policy), range(500))
    assert out.error is None
    assert store.rows == [n for n in range(500) if n not in store.bad]
    assert out.counts("store") == (500, 495, 0, 5)
    letters = [("store", n, 1, "ValueError", "bad", n) for n in store.bad]
    assert out.records == (letters if policy == "dead_letter" else [])
    assert store.calls == ["open", "commit", "close"]


@STORES
@pytest.mark.parametrize("mode", LOCAL)
def test_an_item_that_a_sink_refuses_under_raise_stops_the_run_and_what_is_before_is_committed(mode, kind):
    store = kind(bad=(300,))
    out = run(mode, into(store), range(500))
    assert type(out.error) is StageError
    assert (out.error.stage, out.error.seq, out.error.value) == ("store", 300, 300)
    assert store.rows == list(range(300))
    assert store.calls == ["open", "commit", "close"]
    assert isinstance(store.reason, StageError)
    assert out.items["written"] == 300


@STORES
@pytest.mark.parametrize("fails", ["open", "commit", "close"])
@pytest.mark.parametrize("mode", LOCAL)
def test_a_sink_that_cannot_be_opened_committed_or_closed_fails_the_run(mode, fails, kind):
    for error in errors_of(mode):
        store = kind(fails, error)
        out = run(mode, into(store), range(5))
        assert type(out.error) is SinkError, error
        assert error_text(out.error.__cause__) == (error, TEXTS[error])
        assert "'store'" in str(out.error)
        assert str(out.error).endswith(f"{error}: {TEXTS[error]}")
        assert store.calls == {
            "open": ["open"], "commit": ["open", "commit", "close"], "close": ["open", "commit", "close"],
        }[fails]  # fmt: skip
        assert store.rows == ([] if fails == "open" else [0, 1, 2, 3, 4])
        if fails == "commit":
            assert error_text(store.reason) == (error, TEXTS[error])


@pytest.mark.parametrize("mode", LOCAL)
def test_nothing_is_read_where_the_sink_cannot_be_opened(mode):
    read = []

    def rows():
        read.append(True)
        yield 1

    out = run(mode, into(Store("open")), rows)
    assert type(out.error) is SinkError
    assert read == []
    assert out.items["read"] == 0


@pytest.mark.parametrize("mode", LOCAL)
def test_a_failure_before_the_sink_is_given_to_its_close_and_what_is_before_is_committed(mode):
    store = Store()

    def stop(value: int) -> int:
        if value == 20:
            raise ValueError("bad")
        return value

    def describe(source, on):
        return Pipeline(source).map(stop, on=on, workers=3).to(store, on=on)

    out = run(mode, describe, range(50))
    assert type(out.error) is StageError
    assert store.rows == list(range(20))
    assert store.calls == ["open", "commit", "close"]
    assert type(store.reason) is StageError


@pytest.mark.parametrize("mode", LOCAL)
def test_a_sink_behind_a_batch_gets_each_batch_by_itself(mode):
    class Batches(Store):
        def write(self, items: Any) -> None:
            self.rows.append(list(items))

    store = Batches()
    out = run(mode, lambda source, on: Pipeline(source).batch(4).to(store, on=on), range(10))
    assert store.rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert out.items["written"] == 10


def test_a_sink_object_is_refused_in_a_process_and_with_several_workers():
    with pytest.raises(PlanError, match="stays in this process"):
        Pipeline([1]).to(Store(), on="process")
    with pytest.raises(PlanError, match="one worker"):
        Pipeline([1]).to(Store(), workers=2)


def test_something_that_is_neither_function_nor_sink_is_told_what_is_missing():
    class Half:
        def write(self, items: Any) -> None:
            """Write."""

    with pytest.raises(PlanError, match="lacks open, commit, close"):
        Pipeline([1]).to(Half())


@pytest.mark.parametrize("mode", LOCAL)
def test_dead_letters_go_to_a_list_a_function_a_sink_or_a_file_in_every_mode(tmp_path, mode):
    store, called, path = Store(), [], tmp_path / "letters.jsonl"
    kept: list[Any] = []
    pipeline = into(Store(bad=(2,)), "dead_letter")(range(5), mode if mode != "inline" else "thread")
    how = {"mode": "inline"} if mode == "inline" else {}
    for place in (kept, called.append, store, path):
        pipeline.run(dead_letters=place, **how)
    assert [f.value for f in kept] == [f.value for f in called] == [f.value for f in store.rows] == [2]
    assert store.calls == ["open", "commit", "close"]
    assert len(path.read_text().splitlines()) == 1
    assert [f.value for f in pipeline.run(**how).dead_letters] == [2]


@pytest.mark.parametrize("mode", LOCAL)
def test_a_dead_letter_that_cannot_be_kept_fails_the_run(mode):
    def refuse(failure: Failure) -> None:
        raise OSError("disk full")

    pipeline = into(Store(bad=(2,)), "dead_letter")(range(5), mode if mode != "inline" else "thread")
    how = {"mode": "inline"} if mode == "inline" else {}
    with pytest.raises(RunError, match="a dead letter could not be kept: OSError: disk full"):
        pipeline.run(dead_letters=refuse, **how)


def test_async_places_for_dead_letters_are_refused_before_anything_runs():
    async def take(failure: Failure) -> None:
        """Take it."""

    for place in (AsyncStore(), take):
        with pytest.raises(PlanError, match="not async ones"):
            Pipeline([1]).map(abs).run(dead_letters=place)
