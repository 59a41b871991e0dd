"""The flight recorder and `headway why`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from headway import HeadwayError, Pipeline, PlanError, Retry
from headway.cli.main import main
from headway.watch.recorder import life


@pytest.fixture
def command(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(["why", *map(str, arguments)])
        captured = capsys.readouterr()
        return SimpleNamespace(status=exit_.value.code or 0, out=captured.out, err=captured.err)

    return call


@pytest.fixture
def recorded(tmp_path):
    tried = set()

    def call(value):
        if value == 7 and value not in tried:
            tried.add(value)
            raise ConnectionError("not yet")
        if value == 9:
            raise ValueError("nine is not liked")
        return value

    pipeline = Pipeline(range(30), on_error="skip").map(
        call, workers=2, retry=Retry(2, on=ConnectionError, backoff=0.0)
    )
    report = pipeline.to(lambda value: None, name="write").run(trace=tmp_path / "trace.json")
    report.to_json(tmp_path / "report.json")
    return tmp_path


def test_the_trace_has_every_call_of_every_item(recorded):
    events = json.loads((recorded / "trace.json").read_text())
    calls = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in calls)
    assert {event["name"] for event in calls} == {"call", "write"}
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"call 0", "write 0"} <= named
    for seq in range(30):
        stages = [call["stage"] for call in life(recorded / "trace.json", seq)]
        assert stages == {7: ["call", "call", "write"], 9: ["call"]}.get(seq, ["call", "write"])
    first, second, _ = life(recorded / "trace.json", 7)
    assert (first["failed"], second["attempt"]) == ([7], 2)


def test_why_tells_the_life_of_an_item(recorded, command):
    for path in (recorded / "report.json", recorded / "trace.json"):
        shown = command(path, 7)
        assert shown.status == 0
        assert "fails after" in shown.out
        assert "attempt 2" in shown.out
        assert "to write[0]" in shown.out
    assert "failed in call: ValueError: nine is not liked" in command(recorded / "report.json", 9).out
    assert json.loads(command(recorded / "report.json", 3, "--json").out)["calls"][0]["stage"] == "call"


def test_why_says_what_is_missing(recorded, command):
    assert "there is no row 99" in command(recorded / "report.json", 99).err
    (recorded / "trace.json").unlink()
    assert "is not there any more" in command(recorded / "report.json", 3).err
    Pipeline(range(3)).run().to_json(recorded / "bare.json")
    shown = command(recorded / "bare.json", 1)
    assert shown.status == 2
    assert "run with trace=" in shown.err


def test_a_trace_that_was_cut_off_can_be_read(recorded):
    text = (recorded / "trace.json").read_text()
    cut = recorded / "cut.json"
    cut.write_text(text[: text.rindex(",\n") + 1])
    assert life(cut, 0)
    cut.write_text("{}")
    with pytest.raises(HeadwayError, match="is not a trace"):
        life(cut, 0)


def test_a_trace_that_cannot_be_kept_is_refused_before_the_run(tmp_path):
    with pytest.raises(PlanError, match="cannot be written"):
        Pipeline(range(3)).run(trace=tmp_path / "no" / "trace.json")
    with pytest.raises(PlanError, match="inline"):
        Pipeline(range(3)).run(trace=tmp_path / "trace.json", mode="inline")
