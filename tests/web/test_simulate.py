"""The visualizer's answers: the engine's own numbers."""

from __future__ import annotations

import pytest

from headway import Pipeline
from headway.web.bodies import MOST_ITEMS, Simulation, decoded
from headway.web.presets import presets
from headway.web.server import Server
from headway.web.shown import Refused
from headway.web.simulate import Abandoned, simulated
from headway.web.texts import encode
from web.client import Client

STAGES = [
    {"name": "read", "time": 0.002},
    {"name": "work", "time": 0.004, "workers": 3, "queue": 4},
    {"name": "write", "time": 0.003},
]


@pytest.fixture
def client():
    server = Server([], True)
    server.start()
    yield Client(server.url)
    server.stop()


def simulate(**settings):
    return simulated(decoded(encode({"stages": STAGES, **settings}), Simulation))


def declared(items=100, window=None, order="input"):
    pipeline = Pipeline(range(items), window=window).map(str, name="read").map(str, workers=3, queue=4, name="work")
    return pipeline.map(str, name="write").ordered(order)


@pytest.mark.parametrize("order", ["input", "none"])
@pytest.mark.parametrize("window", [None, 8])
def test_the_numbers_are_those_of_simulate(client, window, order):
    body = {"stages": STAGES, "items": 300, "window": window, "order": order, "seed": 7}
    answer = client.post("/api/simulate", body)
    assert answer.status == 200, answer.text
    service = {stage["name"]: stage["time"] for stage in STAGES}
    report = declared(300, window, order).simulate(service, items=300, seed=7)
    expected, found = report.to_dict(), answer.data["report"]
    for name in (
        "items",
        "elapsed",
        "fill",
        "drain",
        "steady",
        "latency",
        "rate",
        "stages",
        "queues",
        "reorder",
        "bottleneck",
    ):
        assert found[name] == expected[name], name
    calls = [call for call in report.calls if call[0] == "output"]
    assert answer.data["out"] == [[stop, row] for _, _, row, _, stop in calls]


def test_drawn_times_are_those_of_the_seed():
    service = {"read": 0.002, "work": lambda random, value: random.expovariate(1 / 0.004), "write": 0.003}
    stages = [stage | {"jitter": "exp"} if stage["name"] == "work" else stage for stage in STAGES]
    report = declared().simulate(service, items=100, seed=3)
    found = simulate(stages=stages, seed=3)
    assert found["report"]["elapsed"] == report.elapsed
    assert simulate(stages=stages, seed=4)["report"]["elapsed"] != report.elapsed


def test_the_timeline_has_every_call_once():
    found = simulate(items=40)
    end = found["timeline"]["to"]
    assert [(slot["stage"], slot["slot"]) for slot in found["timeline"]["slots"]].count(("work", 2)) == 1
    for stage in STAGES:
        rows = []
        for slot in found["timeline"]["slots"]:
            if slot["stage"] != stage["name"]:
                continue
            at = 0.0
            for start, stop, state, first, last in slot["spans"]:
                assert start == at
                assert first == last
                if state == "busy":
                    rows.append(first)
                    assert stop - start == pytest.approx(stage["time"])
                at = stop
            assert at == end
        assert sorted(rows) == list(range(40))


def test_a_bounded_queue_stays_within_its_bound_and_an_unbounded_one_does_not():
    stages = [{"name": "quick", "time": 0.001}, {"name": "slow", "time": 0.01, "queue": 4}]
    deepest = {
        unbounded: max(depth for _, stage, depth in simulate(stages=stages, items=200, unbounded=unbounded)["queues"] if stage == "slow")
        for unbounded in (False, True)
    }  # fmt: skip
    assert deepest[False] <= 4
    assert deepest[True] > 100


def test_an_item_that_fails_ends_the_run_or_is_set_aside():
    alone, supervised = (simulate(items=50, fail_at=20, supervised=wanted) for wanted in (False, True))
    assert alone["report"]["state"] == "failed"
    assert [row for _, row in alone["out"]] == list(range(20))
    assert alone["report"]["failures"][0]["message"] == "item 20 cannot be done"
    assert supervised["report"]["state"] == "done"
    assert supervised["dead"] == [20]
    assert [row for _, row in supervised["out"]] == [row for row in range(50) if row != 20]


def test_a_drain_finishes_what_was_read_and_a_cancel_does_not():
    drained, cancelled = (simulate(items=500, stop_at=0.1, stop=how)["report"] for how in ("drain", "cancel"))
    assert drained["state"] == "drained"
    assert drained["items"]["written"] == drained["items"]["read"] < 500
    assert cancelled["state"] == "cancelled"
    assert cancelled["items"]["written"] < cancelled["items"]["read"]
    assert cancelled["elapsed"] <= 0.1 + 0.004


def test_the_gate_holds_what_came_too_early():
    stages = [{"name": "fetch", "time": 0.01, "jitter": "heavy", "workers": 4}]
    found = simulate(stages=stages, items=60, seed=5)
    assert max(held for _, held, _ in found["gate"]) == found["report"]["reorder"][0]["peak_held"] > 0
    assert all((held == 0) == (awaited is None) for _, held, awaited in found["gate"])
    assert [row for _, row in found["out"]] == list(range(60))
    free = simulate(stages=stages, items=60, seed=5, order="none")
    assert sorted(row for _, row in free["out"]) == list(range(60)) != [row for _, row in free["out"]]


def test_a_straggler_costs_less_with_a_wide_window():
    stages = [{"name": "fetch", "time": 0.004, "workers": 4}]
    narrow, wide = (simulate(stages=stages, items=200, slow_at=40, window=w)["report"]["elapsed"] for w in (12, 256))
    assert narrow > 1.2 * wide


def test_many_calls_are_told_in_a_bounded_answer():
    found = simulate(items=MOST_ITEMS)
    assert all(len(slot["spans"]) <= 2_001 for slot in found["timeline"]["slots"])
    assert len(found["queues"]) <= 8 * 2_001
    assert [row for _, row in found["out"]] == list(range(MOST_ITEMS))


def test_a_simulation_that_nobody_waits_for_ends():
    wanted = decoded(encode({"stages": STAGES, "items": MOST_ITEMS}), Simulation)
    with pytest.raises(Abandoned):
        simulated(wanted, lambda: True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stages": []}, "length"),
        ({"stages": [{"name": ""}]}, "length"),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, "two stages have one name"),
        ({"stages": [{"name": "a"}] * 17}, "length"),
        ({"stages": [{"name": "a", "time": -1}]}, "0"),
        ({"stages": [{"name": "a", "workers": 0}]}, "1"),
        ({"stages": [{"name": "a", "jitter": "wild"}]}, "jitter"),
        ({"stages": [{"name": "a"}], "items": MOST_ITEMS + 1}, "10000"),
        ({"stages": [{"name": "a"}], "more": 1}, "more"),
        ({"stages": [{"name": f"s{n}"} for n in range(16)], "items": MOST_ITEMS}, "items times stages"),
        ({"items": 5}, "stages"),
    ],
)
def test_settings_that_cannot_be_are_refused(client, wrong, message):
    answer = client.post("/api/simulate", wrong)
    assert answer.status == 422
    assert message in answer.data["error"]


def test_a_number_beyond_all_numbers_is_refused(client):
    for text in (b'{"stages":[{"name":"a","time":1e999}]}', b'{"stages":[{"name":"a","time":NaN}]}'):
        assert client.post("/api/simulate", text).status == 422


def test_presets_can_all_be_run_and_differ_from_what_they_are_compared_with(client):
    found = client.get("/api/presets").data["presets"]
    assert [preset["name"] for preset in found] == [preset["name"] for preset in presets()]
    assert len(found) == 6
    with pytest.raises(Refused):
        decoded(b'{"stages": 1}', Simulation)
    for preset in found:
        answers = [client.post("/api/simulate", preset[part]) for part in ("settings", "compare")]
        assert [answer.status for answer in answers] == [200, 200]
        assert (
            answers[0].data["out"] != answers[1].data["out"] or answers[0].data["queues"] != answers[1].data["queues"]
        )
