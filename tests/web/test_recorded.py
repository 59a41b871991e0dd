"""Finished runs, and one page for all live ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from headway import HeadwayError, Pipeline
from headway.cli.main import main
from headway.web.recorded import RecordedRun
from headway.web.runtime import Entry, enter, entries
from headway.web.server import Server
from web.client import PATIENCE_S, Client, warm

CALLED = ("busy", "failed")


@pytest.fixture
def recorded(tmp_path):
    def call(value):
        if value == 7:
            raise ValueError("<i>seven</i>")
        return value

    pipeline = Pipeline(range(200), name="old", on_error="skip").map(call, workers=2, name="call")
    report = pipeline.to(lambda value: None, name="write").run(trace=tmp_path / "trace.json")
    report.to_json(tmp_path / "report.json")
    return tmp_path


@pytest.fixture
def serve():
    servers = []

    def start(*files, everywhere=False):
        server = Server([RecordedRun(file) for file in files], True, everywhere=everywhere)
        servers.append(server)
        server.start()
        return Client(server.url)

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("file", ["report.json", "trace.json"])
def test_a_finished_run_is_told_as_a_live_one_is(recorded, serve, file):
    client = serve(recorded / file)
    [line] = client.get("/api/runs").data["runs"]
    assert (line["id"], line["name"], line["state"], line["live"]) == (file, "old", "done", False)
    assert line["source"] == file.partition(".")[0]
    told = client.get(f"/api/runs/{file}").data
    assert told["limits"] == {"controls": False, "scalable": []}
    assert told["snapshot"]["items"]["read"] == 200
    assert [stage["name"] for stage in told["plan"]["stages"]] == ["call", "write"]
    assert [edge["to"] for edge in told["plan"]["edges"]] == ["call", "write"]
    for stage in told["snapshot"]["stages"]:
        assert 0 < stage["busy"] + stage["overhead"] <= 1
    with client.events(f"/api/runs/{file}/events") as events:
        seen = list(events)
    assert [name for _, name, _ in seen] == ["snapshot", "timeline", "end"]
    assert seen[2][2]["state"] == "done"
    assert client.get(f"/api/runs/{file}/events", Last_Event_ID="3").status == 204
    spans = [span for slot in seen[1][2]["slots"] if slot["stage"] == "call" for span in slot["spans"]]
    assert {"starved", "busy"} <= {span[2] for span in spans}
    assert {span[3] for span in spans if span[2] == "busy"} <= set(range(200))
    steps = client.get(f"/api/runs/{file}/items/9").data["steps"]
    assert [step["stage"] for step in steps if step["state"] in CALLED] == ["call", "write"]
    page = client.get(f"/api/runs/{file}/export").text
    assert "<svg" in page
    assert "<i>seven" not in page
    for control in ("drain", "cancel"):
        assert client.post(f"/api/runs/{file}/{control}").status == 409


def test_predictions_of_a_finished_run_are_those_of_its_report(recorded, serve):
    client = serve(recorded / "report.json")
    answer = client.post("/api/runs/report.json/what-if", {"workers": {"call": 4}})
    assert answer.status == 200
    assert answer.data["rate"] > 0
    assert serve(recorded / "trace.json").post("/api/runs/trace.json/what-if", {}).status == 409


def test_a_report_whose_trace_is_gone_is_told_without_it(recorded, serve):
    (recorded / "trace.json").unlink()
    client = serve(recorded / "report.json")
    with client.events("/api/runs/report.json/events") as events:
        assert [name for _, name, _ in events] == ["snapshot", "end"]
    answer = client.get("/api/runs/report.json/items/1")
    assert answer.status == 404
    assert "trace=" in answer.data["error"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"ph": "X"}]', "[", "\x00", '[{"ph": "X", "name": 1, "args": []}]']
)
def test_a_file_that_is_neither_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(HeadwayError, match=r"x\.json"):
        RecordedRun(tmp_path / "x.json")


def test_a_trace_that_was_cut_off_is_opened(recorded, serve):
    text = (recorded / "trace.json").read_text()
    (recorded / "cut.json").write_text(text[: text.rindex(",\n")])
    assert RecordedRun(recorded / "cut.json").detail()["snapshot"]["items"]["read"] > 100


def test_one_page_shows_and_steers_all_live_runs(live, serve):
    client = serve(everywhere=True)
    [line] = client.get("/api/runs").data["runs"]
    assert (line["id"], line["live"]) == (live.id, True)
    with client.events(f"{live.path}/events") as events:
        last = events.until("snapshot", warm)[-1][0]
    assert client.get(live.path).data["run"]["name"] == "<b>live</b>"
    assert client.get(f"{live.path}/items/7").data["steps"]
    assert client.get(f"{live.path}/export").headers["content-type"].startswith("text/html")
    assert client.post(f"{live.path}/scale", {"stage": "nowhere", "workers": 2}).status == 409
    assert client.post(f"{live.path}/cancel", {}, Origin="http://evil.example").status == 403
    with client.events(f"{live.path}/events", last) as events:
        assert client.post(f"{live.path}/scale", {"stage": "work", "workers": 5}).status == 200
        events.until("snapshot", lambda data: data["snapshot"]["stages"][0]["workers"] == 5)
        assert client.post(f"{live.path}/drain").data == {"state": "draining"}
        live.held.open.set()
        seen = events.until("end")
    assert seen[0][0] > 0
    assert seen[-1][2]["state"] == "done"
    live.run.wait()
    assert client.get("/api/runs").data["runs"] == []
    assert client.get(live.path).status == 404


def test_what_a_killed_process_left_is_cleared_away(runtime):
    gone = threading.get_native_id()
    while True:  # a process number that nobody has
        gone += 1
        try:
            os.kill(gone, 0)
        except ProcessLookupError:
            break
        except PermissionError:
            continue
    path = enter(Entry("x", "dead", gone, "127.0.0.1", 1, None, 0.0))
    (runtime / "other.json").write_text("[]")
    assert entries() == []
    assert not path.exists()


def test_a_run_whose_server_does_not_answer_is_left_out(serve):
    enter(Entry("x", "mute", os.getpid(), "127.0.0.1", 1, None, 0.0))
    client = serve(everywhere=True)
    assert client.get("/api/runs").data == {"runs": []}
    answer = client.get("/api/runs/x")
    assert answer.status == 409
    assert "does not answer" in answer.data["error"]


def test_a_runtime_folder_that_others_can_read_is_refused(runtime):
    runtime.mkdir()
    runtime.chmod(0o755)
    with pytest.raises(HeadwayError, match="only you can read"):
        entries()


def test_the_command_says_what_is_wrong_with_a_file(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SystemExit) as exit_:
        main(["ui", str(tmp_path / "x.json")])
    assert exit_.value.code == 1
    assert "is not a report" in capsys.readouterr().err


def test_the_command_serves_until_ctrl_c(recorded):
    line = [sys.executable, "-m", "headway", "ui", "report.json", "trace.json"]
    with subprocess.Popen(line, cwd=recorded, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            client = Client(process.stdout.readline().partition("page at ")[2].split()[0])
            assert [run["id"] for run in client.get("/api/runs").data["runs"]] == ["report.json", "trace.json"]
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert told == "ended\n"


def test_the_described_interface_has_every_path_that_is_served(serve):
    client = serve()
    schema = client.get("/api/schema").data
    assert schema["openapi"].startswith("3.1")
    assert len(schema["paths"]) == 13
    for path, methods in schema["paths"].items():
        for method in methods:
            answer = client.ask(method.upper(), path.format(id="nobody", seq=1), {} if method == "post" else None)
            assert str(answer.status) in methods[method]["responses"], (path, answer.status)
    assert json.dumps(schema)
