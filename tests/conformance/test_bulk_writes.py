"""Sinks that write many at once: a bad row costs a row, a transient error costs nothing, whatever the size of the batch."""

from __future__ import annotations

import pytest

from headway import Pipeline, Retry, RetryAfter, StageError

BAD = {17, 18, 56}


class Table:
    """Takes all rows of a write or none. `trouble`: what the first writes raise, in turn."""

    def __init__(self, bad=(), trouble=()):
        self.rows, self.bad, self.trouble, self.calls, self.committed = [], set(bad), list(trouble), 0, None

    def open(self, resume):
        pass

    def write(self, items):
        self.calls += 1
        if self.trouble and self.rows:
            raise self.trouble.pop(0)
        for item in items:
            if item in self.bad:
                raise ValueError(f"row {item}")
        self.rows += items

    def commit(self, state):
        self.committed = len(self.rows)

    def close(self, error):
        pass


class AsyncTable(Table):
    async def write(self, items):
        Table.write(self, items)


@pytest.mark.parametrize("kind", [Table, AsyncTable])
@pytest.mark.parametrize("batch", [None, 1, 7, 100])
def test_one_bad_row_costs_one_row(kind, batch):
    table = kind(BAD)
    source = Pipeline(range(100), on_error="dead_letter")
    report = (source.batch(batch) if batch else source).to(table).run()
    assert table.rows == [n for n in range(100) if n not in BAD]
    assert sorted(failure.value for failure in report.dead_letters) == sorted(BAD)
    assert sorted(failure.seq for failure in report.dead_letters) == sorted(BAD)
    assert (report.items.written, report.items.dead, report.complete) == (97, 3, True)


@pytest.mark.parametrize("batch", [None, 10])
def test_a_transient_error_is_waited_out_and_nothing_is_written_twice(batch):
    table = Table(BAD, [ConnectionError("restarting"), ConnectionError("restarting")])
    source = Pipeline(range(100), on_error="skip").map(lambda n: n, workers=3)
    report = (
        (source.batch(batch) if batch else source).to(table, retry=Retry(3, on=ConnectionError, backoff=0.001)).run()
    )
    assert table.rows == [n for n in range(100) if n not in BAD]
    assert report.complete
    if table.trouble == []:
        assert report.stages[-1].retries == 2


@pytest.mark.parametrize("batch", [None, 10])
def test_a_sink_may_ask_for_a_pause(batch):
    table = Table((), [RetryAfter(0.01)])
    source = Pipeline(range(100))
    report = (source.batch(batch) if batch else source).to(table).run()
    assert table.rows == list(range(100))
    assert report.stages[-1].retries == 0


def test_a_sink_that_asks_for_too_much_fails():
    table = Table((), [RetryAfter(50.0)])
    with pytest.raises(StageError, match="again in 50"):
        Pipeline(range(5000)).to(table, retry=Retry(2, max_pause=1.0)).run()


def test_where_a_failure_ends_the_run_a_batch_is_written_whole_or_not_at_all():
    table = Table(BAD)
    with pytest.raises(StageError, match="row 17"):
        Pipeline(range(100)).batch(10).to(table).run()
    assert table.rows == list(range(10))
