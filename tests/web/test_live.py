"""The page of a live run: what is told, what may be asked, and by whom."""

from __future__ import annotations

import itertools
import json
import sys
import time

import pytest

from headway import Pipeline, PlanError
from web.client import Client, warm
from web.conftest import HOSTILE, address

CONTROLS = [
    ("drain", {}),
    ("cancel", {}),
    ("scale", {"stage": "work", "workers": 2}),
    ("what-if", {}),
    ("study", {"stage": "work"}),
]


def test_a_live_run_is_listed_and_told_in_full(live):
    [line] = live.client.get("/api/runs").data["runs"]
    assert (line["name"], line["state"], line["live"], line["source"]) == ("<b>live</b>", "running", True, "live")
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
    told = live.client.get(live.path).data
    assert told["run"] == line
    assert told["limits"] == {"controls": True, "scalable": ["work", "tell"]}
    assert [stage["name"] for stage in told["plan"]["stages"]] == ["work", "tell"]
    assert told["snapshot"].keys() == live.run.snapshot().figures().keys()
    assert told["snapshot"]["items"]["dead"] == 2
    assert [stage["workers"] for stage in told["snapshot"]["stages"]] == [4, 1]
    assert "rows/s" in told["sentence"]


def test_events_tell_the_run_to_its_end_and_go_on_where_a_connection_dropped(live):
    with live.client.events(f"{live.path}/events") as events:
        assert events.reply.headers["content-type"].startswith("text/event-stream")
        seen = events.until("snapshot", warm)
        assert seen[-1][2]["memory_bytes"] > 1 << 20
        seen += events.until("timeline")
    last = seen[-1][0]
    live.held.open.set()
    live.run.wait()
    with pytest.raises(OSError):
        live.client.get("/api/runs")
    assert [number for number, *_ in seen] == list(range(1, last + 1))


def test_a_reader_that_comes_again_gets_what_came_after_the_last_it_has_seen(live):
    with live.client.events(f"{live.path}/events") as events:
        last = events.until("snapshot")[-1][0]
    with live.client.events(f"{live.path}/events", last) as events:
        live.held.open.set()
        seen = events.until("end")
    assert [number for number, *_ in seen] == list(range(last + 1, last + 1 + len(seen)))
    assert seen[-1][2]["state"] == "done"
    final = live.run.wait().to_dict()
    assert seen[-1][2]["snapshot"]["items"] == final["items"]
    assert final["items"]["written"] == 19_998


def test_a_number_that_was_never_given_is_as_none(live):
    for given in ("99999999", "-1", "x", "9" * 5000):
        answer = live.client.events(f"{live.path}/events", given)
        with answer as events:
            assert events.until("snapshot")[0][0] == 1


def test_spans_of_a_slot_have_no_gap_and_do_not_overlap(live):
    with live.client.events(f"{live.path}/events") as events:
        seen = events.until("snapshot", warm)
        seen += events.until("timeline")
    timelines = [data for _, name, data in seen if name == "timeline"]
    assert timelines[0]["from"] == 0
    for before, after in itertools.pairwise(timelines):
        assert before["to"] == after["from"]
    states = set()
    for timeline in timelines:
        for slot in timeline["slots"]:
            at = slot["spans"][0][0] if slot["spans"] else 0
            for start, end, state, first, last in slot["spans"]:
                assert timeline["from"] <= start == at <= end <= timeline["to"]
                assert (first is None) == (last is None)
                assert first is not None or state not in ("busy", "overhead")
                at = end
                states.add(state)
    assert {"busy", "starved"} <= states


def test_the_life_of_an_item_is_told(live):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
    found = live.client.get(f"{live.path}/items/7").data
    assert found["seq"] == 7
    assert [step["stage"] for step in found["steps"] if step["state"] == "busy"] == ["work", "tell"]
    assert [s["state"] for s in live.client.get(f"{live.path}/items/3").data["steps"]][-1] == "failed"
    assert live.client.get(f"{live.path}/items/999999").data["steps"] == []
    for wrong in ("x", "-1", "1.5", "9" * 5000):
        assert live.client.get(f"{live.path}/items/{wrong}").status == 404


def test_dead_letters_come_as_text_whatever_they_hold(live):
    with live.client.events(f"{live.path}/events") as events:
        letters = [events.until("dead")[-1][2], events.until("dead")[-1][2]]
    by_seq = {letter["seq"]: letter for letter in letters}
    assert by_seq[3] == {
        "seq": 3, "stage": "work", "attempts": 1, "error": "ValueError", "message": HOSTILE, "value": "3"
    }  # fmt: skip
    assert by_seq[4]["message"] == "half a pair: \\ud800"
    page = live.client.get(f"{live.path}/export")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script>alert" not in page.text
    assert "<img" not in page.text
    assert "<b>live" not in page.text
    assert "&lt;script&gt;alert" in page.text
    assert page.text.count("<script") == 1


def test_workers_are_scaled_and_the_prediction_comes_with_it(live):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
        answer = live.client.post(f"{live.path}/scale", {"stage": "work", "workers": 6})
        assert answer.status == 200, answer.text
        assert answer.data["predicted"].keys() == {"rate", "low", "high"}
        events.until("snapshot", lambda data: data["snapshot"]["stages"][0]["workers"] == 6)


def test_what_if_is_the_report_s_own_prediction(live):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
    answer = live.client.post(f"{live.path}/what-if", {"workers": {"work": 8}, "queue": 4, "window": 64})
    assert answer.status == 200, answer.text
    assert answer.data["low"] <= answer.data["rate"] <= answer.data["high"]
    assert answer.data["next_bottleneck"]
    assert any("work" in name for name in answer.data["ceilings"])


def test_a_study_measures_the_run_and_the_report_has_what_it_found(capfd):
    def slow(value: int) -> int:
        time.sleep(0.002)  # the time of a call, half of which is to go
        return value

    with Pipeline(range(100_000)).map(slow, name="slow").map(str, name="tell").to(len).open(ui=True) as run:
        client = Client(address(capfd))
        name = client.get("/api/runs").data["runs"][0]["id"]
        answer = client.post(f"/api/runs/{name}/study", {"stage": "slow", "seconds": 1.0})
        run.cancel()
    assert answer.status == 200, answer.text
    assert answer.data.keys() == {"stage", "speedup", "base", "rate", "low", "high", "gain"}
    assert (answer.data["stage"], answer.data["speedup"]) == ("slow", 0.5)
    assert answer.data["low"] <= answer.data["rate"] <= answer.data["high"]
    assert "with calls of slow 50% shorter about" in run.report.advice[-1]


def test_a_drain_finishes_what_was_read(live):
    with live.client.events(f"{live.path}/events") as events:
        assert live.client.post(f"{live.path}/drain").data == {"state": "draining"}
        live.held.open.set()
        end = events.until("end")[-1][2]
    assert end["state"] == "done"
    items = end["snapshot"]["items"]
    assert end["snapshot"]["state"] == "drained"
    assert items["read"] == items["written"] + items["dead"] < 20_000


def test_a_cancel_starts_nothing_more(live):
    with live.client.events(f"{live.path}/events") as events:
        assert live.client.post(f"{live.path}/cancel").data == {"state": "cancelled"}
        live.held.open.set()
        assert events.until("end")[-1][2]["state"] == "cancelled"


@pytest.mark.parametrize(("what", "body"), CONTROLS)
def test_requests_of_another_origin_change_nothing(live, what, body):
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": live.client.origin.replace("http", "https")},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        answer = live.client.post(f"{live.path}/{what}", body, **headers)
        assert answer.status == 403
        assert "error" in answer.data
    assert live.client.post(f"{live.path}/what-if", {}, Origin=live.client.origin).status in (200, 409)
    assert live.run.state == "running"
    assert live.run.snapshot().stages[0].workers == 4


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_page_is_not_taken_for_json(live, kind):
    assert live.client.post(f"{live.path}/cancel", b"{}", Content_Type=kind).status == 415
    assert live.run.state == "running"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1:1", ""])
def test_a_name_that_is_none_of_the_server_s_is_refused(live, host):
    answer = live.client.get("/api/runs", Host=host)
    assert answer.status == 400
    assert "runs" not in answer.data


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("scale", b"", 422),
        ("scale", b"[]", 422),
        ("scale", b"{", 422),
        ("scale", b"\xff", 422),
        ("scale", b"[" * 100_000, 422),
        ("scale", {"stage": "work"}, 422),
        ("scale", {"stage": "work", "workers": 0}, 422),
        ("scale", {"stage": "work", "workers": 257}, 422),
        ("scale", {"stage": "work", "workers": "2"}, 422),
        ("scale", {"stage": "work", "workers": True}, 422),
        ("scale", {"stage": "work", "workers": 2, "more": 1}, 422),
        ("scale", {"stage": "nowhere", "workers": 2}, 409),
        ("what-if", {"workers": {"work": 1.5}}, 422),
        ("what-if", {"workers": {"nowhere": 2}}, 409),
        ("what-if", {"window": 0}, 422),
        ("study", {"stage": "work", "speedup": 1.0}, 422),
        ("study", {"stage": "work", "seconds": 1e9}, 422),
        ("study", {"stage": "nowhere"}, 409),
        ("drain", {"timeout": 3}, 422),
        ("cancel", b" " * (1 << 20) + b"{}", 413),
    ],
)
def test_a_wrong_body_is_refused_with_its_reason(live, what, body, status):
    answer = live.client.post(f"{live.path}/{what}", body)
    assert answer.status == status
    assert answer.data["error"]
    assert live.run.state == "running"


def test_a_run_that_there_is_not_and_a_path_that_there_is_not(live):
    for path in (
        "/api/runs/nobody",
        "/api/runs/nobody/events",
        "/api/nothing",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
    ):
        answer = live.client.get(path)
        assert answer.status == 404
        assert answer.data["error"]
    assert live.client.get(f"{live.path}/drain").status == 405
    assert live.client.ask("DELETE", "/api/runs", b"").status == 405


def test_every_answer_forbids_what_the_page_does_not_need(live):
    for path in ("/", "/api/runs", "/api/nothing", live.path):
        headers = live.client.get(path).headers
        policy = headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_a_run_leaves_a_file_that_only_its_user_can_read_while_it_lives(live, runtime):
    [file] = runtime.iterdir()
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["id"] == live.id
    live.held.open.set()
    live.run.wait()
    assert list(runtime.iterdir()) == []


def test_away_from_loopback_everything_needs_the_token(capfd):
    pipeline = Pipeline(range(10)).map(str)
    with pipeline.open(ui="0.0.0.0:0") as run:
        url = address(capfd)
        token = url.partition("?token=")[2]
        client = Client(f"http://127.0.0.1:{url.rpartition(':')[2].partition('/')[0]}")
        assert len(token) >= 32
        for path in ("/", "/api/runs", "/static/page.js", "/api/schema", "/plotly.min.js"):
            for wrong in (None, "Bearer x", f"Bearer {token}x", f"Basic {token}"):
                assert client.get(path, Authorization=wrong).status == 401
            assert client.get(path, Cookie=f"headway-{client.port}=x").status == 401
        assert client.get("/?token=x").status == 401
        assert client.post("/api/simulate", {"stages": [{"name": "a"}]}).status == 401
        first = client.get(f"/?token={token}&run=1")
        assert (first.status, first.headers["location"]) == (303, "/?run=1")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert client.get("/api/runs", Cookie=cookie.partition(";")[0]).status == 200
        assert client.get("/api/runs", Authorization=f"Bearer {token}").status == 200
        assert client.get("/api/runs", Host="evil.example", Authorization=f"Bearer {token}").status == 400
        assert list(run) == [str(n) for n in range(10)]


@pytest.mark.parametrize("where", ["8000", "localhost", "localhost:x", ":80", "localhost:70000", 8000])
def test_a_place_that_is_none_is_refused_before_anything_begins(where):
    with pytest.raises(PlanError, match=r'ui must be True, False or "host:port"'):
        Pipeline(range(3)).run(ui=where)


def test_a_port_that_is_taken_is_refused_with_its_reason(live):
    with pytest.raises(PlanError, match="in use"):
        Pipeline(range(3)).run(ui=f"127.0.0.1:{live.client.port}")


@pytest.mark.parametrize("missing", ["uvicorn", "starlette", "msgspec"])
def test_without_the_extra_the_message_says_what_to_install(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    for pipeline in (Pipeline(range(3)), Pipeline(range(3)).with_mode("inline")):
        with pytest.raises(PlanError, match=rf"the page needs {missing}.*pip install 'headway\[ui\]'"):
            pipeline.run(ui=True)


def test_a_run_that_cannot_be_listed_has_its_page_all_the_same(runtime, capfd, caplog):
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    seen = []
    pipeline = Pipeline(range(1), name="alone")
    pipeline.map(lambda _: seen.append(Client(address(capfd)).get("/api/runs").data["runs"][0]["name"])).run(ui=True)
    assert seen == ["alone"]
    assert "cannot find this run" in caplog.text


def test_slots_come_and_go_with_the_workers(live):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
        assert live.client.post(f"{live.path}/scale", {"stage": "work", "workers": 2}).status == 200
        live.held.open.set()
        seen = events.until("end")
    last = [data for _, name, data in seen if name == "timeline"][-1]
    assert [slot["stage"] for slot in last["slots"]].count("work") <= 4
    first = next(data for _, name, data in seen if name == "timeline")
    assert {(slot["stage"], slot["slot"]) for slot in first["slots"]} >= {("tell", 0)}


async def _arun(pipeline):
    return await pipeline.arun(ui=True)


def test_a_run_on_the_caller_s_loop_has_a_page_too(capfd):
    import asyncio

    seen = []

    async def look(value):
        seen.append(await asyncio.to_thread(lambda: Client(address(capfd)).get("/api/runs").data["runs"]))
        return value

    report = asyncio.run(_arun(Pipeline(range(1), name="here").map(look)))
    assert report.items.written == 1
    assert [run["name"] for [run] in seen] == ["here"]
