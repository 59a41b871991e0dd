"""R11: retries: which failures, how often, how long, and what waits meanwhile."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import MODES, one_stage
from headway import DROP, Failure, ItemTimeout, Pipeline, Retry, RetryAfter, SinkError, StageError, current_item

RETRY = Retry(3, on=ConnectionError, backoff=0.01)


def flaky(folder: Path) -> Any:
    """Item 3 succeeds at its third attempt, item 4 raises something else; each call notes its attempt."""

    def call(value: int) -> Any:
        attempt = current_item().attempt
        with (folder / "calls").open("a") as file:
            file.write(f"{value}:{attempt}\n")
        if value == 3 and attempt < 3:
            raise ConnectionError("not yet")
        if value == 4:
            raise ValueError("never")
        return value, attempt

    return call


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


@pytest.mark.parametrize("mode", MODES)
def test_only_the_named_exception_is_tried_again_and_attempts_are_told(tmp_path, mode):
    letters: list[Failure] = []
    pipeline = one_stage(range(10), flaky(tmp_path), mode, retry=RETRY, on_error="dead_letter", name="call")
    run = pipeline.start(dead_letters=letters)
    report = run.wait()
    outputs = one_stage(range(10), flaky(tmp_path), mode, retry=RETRY, on_error="skip").collect()
    assert outputs == [(n, 3 if n == 3 else 1) for n in range(10) if n != 4]
    made = calls(tmp_path)
    assert [made.count(f"3:{attempt}") for attempt in (1, 2, 3, 4)] == [2, 2, 2, 0]
    assert [made.count(f"4:{attempt}") for attempt in (1, 2)] == [2, 0]
    (letter,) = letters
    assert (letter.seq, letter.attempts, type(letter.error)) == (4, 1, ValueError)
    (stage,) = report.stages
    assert (stage["in"], stage.out, stage.failed, stage.retries) == (10, 9, 1, 2)
    assert report.complete


@pytest.mark.parametrize("mode", MODES)
def test_when_all_attempts_fail_the_error_says_how_many_there_were(mode):
    def never(value: int) -> Any:
        raise ConnectionError(f"attempt {current_item().attempt}")

    with pytest.raises(StageError) as caught:
        one_stage([7], never, mode, retry=RETRY).run()
    assert caught.value.attempts == 3
    assert str(caught.value.__cause__) == "attempt 3"
    assert "attempt 3" in str(caught.value)
    assert caught.value.report.stages[0].retries == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["input", "none"])
def test_an_item_that_waits_for_its_next_attempt_does_not_occupy_the_only_worker(mode, order, tmp_path):
    """The back-off is longer than the whole rest takes; without order the others do not even wait to leave."""

    def call(value: int) -> int:
        with (tmp_path / "calls").open("a") as file:
            file.write(f"{value}\n")
        if value == 0 and current_item().attempt == 1:
            raise ConnectionError
        return value

    retry = Retry(2, on=ConnectionError, backoff=0.5, jitter=False)
    outputs = Pipeline(range(20), window=64).map(call, on=mode, workers=1, retry=retry).ordered(order).collect()
    assert calls(tmp_path) == [*map(str, range(20)), "0"]
    assert outputs == ([*range(1, 20), 0] if order == "none" else list(range(20)))


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_stage_that_needs_input_order_waits_with_its_item(mode):
    seen: list[int] = []

    def call(value: int) -> int:
        seen.append(value)
        if value == 2 and current_item().attempt == 1:
            raise ConnectionError
        return value

    retry = Retry(2, on=ConnectionError, backoff=0.02)
    assert Pipeline(range(6)).map(call, on=mode, needs="input", retry=retry).collect() == list(range(6))
    assert seen == [0, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_holds_the_lane_of_its_key(tmp_path, mode):
    def call(row: Any) -> Any:
        with (tmp_path / f"{row[0]}").open("a") as file:
            file.write(f"{row[1]}\n")
        if row == (0, 4) and current_item().attempt == 1:
            raise ConnectionError
        return row

    rows = [(n % 2, n) for n in range(20)]
    retry = Retry(2, on=ConnectionError, backoff=0.05)
    outputs = Pipeline(rows).map(call, on=mode, workers=3, key=lambda row: row[0], retry=retry).ordered("key").collect()
    assert [n for key, n in outputs if key == 0] == list(range(0, 20, 2))
    assert (tmp_path / "0").read_text().split() == ["0", "2", "4", *map(str, range(4, 20, 2))]


@pytest.mark.parametrize("mode", MODES)
def test_the_deadline_counts_all_attempts_and_their_pauses(mode):
    """The next attempt would come after the deadline: it is not waited for."""

    def never(value: int) -> Any:
        raise ConnectionError

    retry = Retry(10, on=ConnectionError, backoff=60, jitter=False)
    with pytest.raises(StageError) as caught:
        one_stage([1], never, mode, retry=retry, deadline=30.0).run()
    assert caught.value.attempts == 1
    assert type(caught.value.__cause__) in (ConnectionError, ItemTimeout)


def test_pauses_grow_by_the_factor_are_bounded_and_jitter_takes_at_most_half():
    retry = Retry(9, backoff=0.1, factor=2.0, max_backoff=1.0)
    for share in (0.0, 0.5, 1.0):
        pauses = [retry.pause_s(attempt, lambda share=share: share) for attempt in range(1, 7)]
        assert pauses == [pytest.approx(p * (0.5 + share / 2)) for p in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)]
    plain = Retry(9, backoff=0.1, jitter=False)
    assert [plain.pause_s(attempt, lambda: 0.0) for attempt in (1, 2, 3)] == [pytest.approx(p) for p in (0.1, 0.2, 0.4)]


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_budget_ends_retries_that_would_be_too_many(mode):
    made = itertools.count()

    def never(value: int) -> Any:
        next(made)
        raise ConnectionError

    retry = Retry(3, on=ConnectionError, backoff=0, budget=0.0)
    report = one_stage(range(200), never, mode, retry=retry, on_error="skip").run()
    assert report.items.dead == 200
    # The first hundred are always made; workers may have had some in hand when these were counted.
    assert 100 <= report.stages[0].retries <= 100 + 8


@pytest.mark.parametrize("mode", MODES)
def test_retry_after_pauses_the_whole_stage_and_is_no_attempt(tmp_path, mode):
    def call(value: int) -> int:
        with (tmp_path / "calls").open("a") as file:
            file.write(f"{value}:{current_item().attempt}\n")
        if value == 5 and calls(tmp_path).count("5:1") == 1:
            raise RetryAfter(0.2)
        return value

    report = Pipeline(range(30)).map(call, on=mode, workers=1, queue=4).run()
    assert report.items.written == 30
    made = calls(tmp_path)
    # Nothing was called between the two calls for item 5: the stage stood.
    assert made == [f"{n}:1" for n in (*range(6), *range(5, 30))]
    assert report.stages[0].retries == 0
    assert report.stages[0].paused > 0


@pytest.mark.parametrize("mode", MODES)
def test_an_item_that_pauses_for_too_long_in_all_fails(mode):
    def call(value: int) -> int:
        if value == 1:
            raise RetryAfter(0.04)
        return value

    pipeline = one_stage(range(3), call, mode, retry=Retry(1, max_pause=0.1), on_error="dead_letter")
    report = pipeline.run()
    assert report.items.written == 2
    (letter,) = report.dead_letters
    assert (letter.seq, letter.attempts, type(letter.error)) == (1, 1, RetryAfter)


@pytest.mark.parametrize("mode", MODES)
def test_retries_filters_and_expansions_settle_each_item_once(tmp_path, mode):
    def parts(value: int) -> list[int]:
        if value % 5 == 0 and current_item().attempt < 3:
            raise ConnectionError
        return [value] * (value % 3)

    def odd(value: int) -> Any:
        if value % 7 == 0 and current_item().attempt < 2:
            raise ConnectionError
        return value if value % 2 else DROP

    pipeline = (
        Pipeline(range(60))
        .flat_map(parts, on=mode, workers=3, retry=RETRY, atomic=True)
        .map(odd, on=mode, workers=3, retry=RETRY)
    )
    assert pipeline.collect() == [n for n in range(60) for _ in range(n % 3) if n % 2]


# ---- the sink


class Store:
    """A sink whose first `refusals` writes are refused after `partial` items of them were looked at."""

    def __init__(
        self, refusals: int, error: type[Exception] = ConnectionError, bad: frozenset[int] = frozenset()
    ) -> None:
        self.left, self.error, self.bad = refusals, error, bad
        self.rows: list[int] = []
        self.tried: list[tuple[int, ...]] = []
        self.closed: list[BaseException | None] = []

    def open(self, resume: Any) -> None:
        """Nothing is to be opened."""

    def write(self, items: Any) -> None:
        self.tried.append(tuple(items))
        if len(items) > 1 and self.left:
            self.left -= 1
            raise self.error("busy")
        if self.bad & set(items):
            raise ValueError("bad row")
        self.rows += items

    def commit(self, state: Any) -> None:
        """Nothing is to be committed."""

    def close(self, error: BaseException | None) -> None:
        self.closed.append(error)


SINK_MODES = ("task", "thread")


@pytest.mark.parametrize("mode", SINK_MODES)
def test_a_write_that_meets_a_transient_error_is_made_again_whole_and_in_order(mode):
    store = Store(2)
    report = Pipeline(range(50), window=64).to(store, on=mode, retry=RETRY, name="store").run()
    assert store.rows == list(range(50))
    assert report.items.written == 50
    assert report.stages[-1].retries == 2
    assert report.complete
    assert store.closed == [None]
    # Nothing was written between a write that was refused and the same items again.
    first = next(tried for tried in store.tried if len(tried) > 1)
    at = store.tried.index(first)
    assert [each[: len(first)] for each in store.tried[at : at + 3]] == [first] * 3


@pytest.mark.parametrize("mode", SINK_MODES)
def test_a_batch_is_written_again_whole_too(mode):
    store = Store(3)
    refused: list[list[int]] = []

    def write(batch: list[int]) -> None:
        if store.left:
            store.left -= 1
            refused.append(batch)
            raise ConnectionError
        store.rows += batch

    report = Pipeline(range(95)).batch(10).to(write, on=mode, retry=Retry(4, on=ConnectionError, backoff=0.01)).run()
    assert store.rows == list(range(95))
    assert refused == [list(range(10))] * 3
    assert (report.items.written, report.stages[-1].retries) == (95, 3)


@pytest.mark.parametrize("mode", SINK_MODES)
def test_one_bad_row_costs_one_row_also_where_writes_are_retried(mode):
    store = Store(1, bad=frozenset({13, 40}))
    letters: list[Failure] = []
    pipeline = Pipeline(range(50), on_error="dead_letter").to(store, on=mode, retry=RETRY)
    report = pipeline.run(dead_letters=letters)
    assert store.rows == [n for n in range(50) if n not in (13, 40)]
    assert sorted(letter.seq for letter in letters) == [13, 40]
    assert (report.items.written, report.items.dead) == (48, 2)


@pytest.mark.parametrize("mode", SINK_MODES)
def test_when_the_attempts_are_used_up_nothing_is_lost_silently(mode):
    class Down(Store):
        def write(self, items: Any) -> None:
            if self.rows and self.left:
                raise ConnectionError("down")
            self.rows += items

    store = Down(1)
    with pytest.raises((StageError, SinkError)) as caught:
        Pipeline(slow_rows(30)).to(store, on=mode, retry=Retry(2, on=ConnectionError, backoff=0.01), name="store").run()
    items = caught.value.report.items
    assert store.rows == list(range(items.written))
    assert items.read == items.written + items.dead + items.unread
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(store.closed) == 1


def slow_rows(count: int) -> Any:
    """Rows that come one by one, so that there is more than one write."""

    def rows() -> Any:
        pause = threading.Event()
        for n in range(count):
            yield n
            pause.wait(0.001)

    return rows
