"""R03: pull lazily; endless input works; one-shot runs."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from acceptance.scenario import MODES, QUEUE, WINDOW, Tally, iterate, one_stage
from headway import HeadwayError, Pipeline

PAUSE = threading.Event()
"""Never set: the consumer waits on it for as long as the scenario says."""


class Endless:
    """Counts, and notes how far ahead of the consumer each number was pulled."""

    def __init__(self) -> None:
        self.pulled = self.delivered = self.ahead = 0

    def __iter__(self) -> Any:
        for n in itertools.count():
            self.pulled += 1
            self.ahead = max(self.ahead, self.pulled - self.delivered)
            yield n

    def look(self, value: int) -> bool:
        assert value == self.delivered
        self.delivered += 1
        PAUSE.wait(0.1)
        return self.delivered < 5


@pytest.mark.parametrize("mode", MODES)
def test_an_endless_source_is_never_read_further_ahead_than_the_window(mode):
    source = Endless()
    iterate(one_stage(source, lambda value: value, mode), mode, source.look)
    assert source.delivered == 5
    assert source.ahead <= WINDOW + 1


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_out_of_order_only_queues_and_workers_are_filled_ahead(mode):
    source = Endless()
    iterate(one_stage(source, lambda value: value, mode, workers=1), mode, source.look)
    assert source.delivered == 5
    # The stage's queue and the consumer's, which has the same capacity; one worker and the consumer's hand; one.
    assert source.ahead <= 2 * QUEUE + 1 + 1 + 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("mode", MODES)
def test_the_first_output_comes_while_the_source_waits_for_its_second_row(mode):
    go = threading.Event()

    def rows() -> Any:
        yield 1
        assert go.wait(50)
        yield 2

    outputs = []

    def look(value: int) -> None:
        outputs.append(value)
        go.set()

    iterate(one_stage(rows, lambda value: value, mode), mode, look)
    assert outputs == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_iterating_a_finished_run_says_that_it_was_iterated_and_each_item_ran_once(tmp_path, mode):
    calls = Tally(tmp_path / "calls")

    def count(value: int) -> int:
        calls.bump()
        return value

    outputs: list[int] = []
    run = iterate(one_stage(range(100), count, mode), mode, outputs.append)
    assert outputs == list(range(100))
    assert calls.count == 100
    with pytest.raises(HeadwayError, match="iterate"):
        iter(run) if mode != "task" else aiter(run)
    assert calls.count == 100


@pytest.mark.parametrize("mode", MODES)
def test_an_iterator_that_was_used_up_is_refused(mode):
    pipeline = one_stage(iter(range(10)), lambda value: value, mode)
    assert pipeline.collect() == list(range(10))
    with pytest.raises(HeadwayError, match="used up by the first run"):
        pipeline.collect()


def test_a_list_and_a_factory_can_be_run_again():
    for source in ([1, 2], lambda: iter([1, 2])):
        pipeline = Pipeline(source).map(lambda value: value)
        assert pipeline.collect() == pipeline.collect() == [1, 2]
