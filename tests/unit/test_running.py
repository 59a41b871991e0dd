"""Starting, stopping and ending a run: what its owner sees."""

from __future__ import annotations

import threading

import pytest

from headway import HeadwayError, Pipeline, RunError, TooManyFailures, running


def test_signal_handlers_stand_before_anything_is_started(monkeypatch):
    seen = []
    enter = running.SignalStops.__enter__

    def record(self):
        seen.append([t.name for t in threading.enumerate() if t.name.startswith("headway")])
        return enter(self)

    monkeypatch.setattr(running.SignalStops, "__enter__", record)
    Pipeline(range(3), name="signals").map(lambda x: x).run()
    assert seen == [[]]


def test_a_run_whose_wait_is_interrupted_leaves_nothing_behind(monkeypatch):
    join = running.Run._join

    def interrupt(self, timeout=None):
        if timeout is not None:
            raise KeyboardInterrupt
        join(self)

    monkeypatch.setattr(running.Run, "_join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(iter(int, 1)).map(lambda x: x).collect()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_run_stops_at_the_first_failure_above_the_allowed_number_even_within_a_block(workers):
    with pytest.raises(TooManyFailures, match="3 items failed, max_failures=2"):
        Pipeline(range(100)).map(lambda x: 1 / (x % 10), workers=workers, on_error="skip", max_failures=2).run()


def test_a_share_of_failures_is_judged_from_the_hundredth_item_on():
    def pipeline(every, rows):
        return Pipeline(range(rows)).map(lambda x: 1 // (x % every), on_error="skip", max_failures=0.1)

    assert pipeline(2, 90).run().items.dead == 45
    assert pipeline(11, 1000).run().items.dead == 91
    with pytest.raises(TooManyFailures, match=r"max_failures=0\.1"):
        pipeline(5, 1000).run()


def test_a_drain_goes_on_without_a_source_that_does_not_come_back():
    blocked, release = threading.Event(), threading.Event()

    def rows():
        yield 1
        blocked.set()
        release.wait()

    out = []
    run = Pipeline(rows).map(lambda x: x).to(out.append).start()
    assert blocked.wait(10)
    run.drain()
    try:
        with pytest.warns(RuntimeWarning, match="source is still in a read"):
            report = run.wait()
    finally:
        release.set()
    assert out == [1]
    assert report.state == "drained"
    assert report.complete


def test_stops_on_a_run_that_has_ended_do_nothing():
    run = Pipeline(range(3)).map(lambda x: x).start()
    report = run.wait()
    run.drain()
    run.cancel()
    run.abort()
    assert run.wait().to_dict()["items"] == report.to_dict()["items"]
    assert run.report.state == "done"


def test_one_item_has_no_steady_rate():
    report = Pipeline([1]).map(lambda x: x).run()
    assert report.steady.rate is None
    assert "too short for a steady rate" in str(report)


class Sink:
    """Fails in the method named."""

    def __init__(self, fails: str) -> None:
        self._fails = fails

    def _maybe(self, name: str) -> None:
        if self._fails == name:
            raise OSError(name)

    def open(self, resume):
        self._maybe("open")

    def write(self, items):
        self._maybe("write")

    def commit(self, state):
        self._maybe("commit")

    def close(self, error):
        self._maybe("close")


def _broken_source():
    yield 1
    raise OSError("source")


def _broken_setup():
    raise OSError("setup")


@pytest.mark.parametrize("mode", ["concurrent", "inline"])
@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(_broken_source).map(str),
        Pipeline(range(3)).map(lambda x, _: x, setup=_broken_setup),
        Pipeline(range(3)).map(lambda x: 1 / x),
        *(Pipeline(range(3)).to(Sink(name)) for name in ("open", "write", "commit", "close")),
    ],
    ids=["source", "setup", "item", "open", "write", "commit", "close"],
)
def test_a_run_that_raises_has_failed_in_its_report_too(pipeline, mode):
    with pytest.raises(RunError) as caught:
        pipeline.run(mode=mode)
    assert caught.value.report.state == "failed"


def test_a_run_that_has_been_started_is_not_started_once_more_by_a_with_block():
    run = Pipeline(range(10)).map(str).start()
    with (
        pytest.raises(HeadwayError, match=r"started already; a `with` block is for what `pipeline.open\(\)` gives"),
        run,
    ):
        pass
    assert run.wait().items.written == 10
