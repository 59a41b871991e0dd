"""A live run: every panel shows what the snapshot says, and the controls do what they say."""

from __future__ import annotations

import re
import time

import pytest

from browser.conftest import AWAITED, HOSTILE
from headway import Pipeline
from web.conftest import address

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect


def fact(page, name):
    return page.locator(f"[data-fact={name}]")


def stage(page, name):
    return page.get_by_role("listitem", name=f"stage {name}", exact=True)


def queue(page, name):
    return page.get_by_role("listitem", name=f"queue in front of {name}", exact=True)


def test_every_panel_shows_the_numbers_of_the_snapshot(live, page):
    still = live.standing()
    page.goto(live.url)
    items, gate = still["items"], still["reorder"][0]
    expect(fact(page, "read")).to_have_text(f"{items['read']:,} read")
    expect(fact(page, "written")).to_have_text(f"{items['written']:,} written")
    expect(fact(page, "dead")).to_have_text("1 dead")
    for one in still["stages"]:
        expect(stage(page, one["name"])).to_contain_text(f"{one['workers']} × {one['on']}")
        if one["failed"]:
            expect(stage(page, one["name"])).to_contain_text(f"{one['failed']} failed")
    for one in still["queues"]:
        expect(queue(page, one["into"])).to_contain_text(f"{one['now']:,} of {one['capacity']:,}")
    awaited = gate["awaiting"]
    assert awaited <= AWAITED  # its block is awaited from the first item on
    expect(queue(page, "write")).to_contain_text(f"holds {gate['held']:,}")
    expect(queue(page, "write")).to_contain_text(re.compile(rf"awaits {awaited:,} for \d.*, in .*enrich"))
    expect(page.locator(".window")).to_contain_text(f"{gate['window_used']:,} of {gate['window']:,} rows")
    expect(page.locator("[data-chart=held] .num")).to_have_text(f"{gate['held']:,}")
    expect(page.locator("h1")).to_contain_text(re.compile(r"^[\d,.]+ rows/s"))
    expect(page.locator(".pill")).to_have_text("running")
    neck = still["bottleneck"]["stage"]
    if neck is not None:
        expect(stage(page, neck)).to_have_class(re.compile("neck"))


def test_values_and_errors_of_items_are_text(live, page):
    live.standing()
    page.goto(live.url)
    row = page.locator(".dead tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(HOSTILE)
    expect(row.locator("td").nth(0)).to_have_text("7")
    assert page.locator(".dead img, main i, .dead td b b").count() == 0
    expect(page).to_have_title("<i>ledger</i> · running · Headway")


@pytest.mark.slow
def test_a_slot_s_row_of_the_staircase_says_what_it_had(live, page):
    live.standing()
    page.goto(live.url)
    canvas = page.locator(".stairs canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile(r"^Timeline of 6 slots"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Show all").click()
    before = canvas.get_attribute("aria-label")
    page.get_by_role("button", name="Zoom in").click()
    assert canvas.get_attribute("aria-label") != before
    canvas.focus()
    page.keyboard.press("-")
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_attribute("aria-pressed", "false")


@pytest.mark.slow
def test_an_item_is_followed_through_all_stages(live, page):
    live.standing()
    page.goto(live.url)
    page.get_by_label("Follow item").fill("12")
    page.keyboard.press("Enter")
    life = page.locator(".life")
    expect(life.locator("h3")).to_have_text("Item 12")
    steps = live.client.get(f"{live.path}/items/12").data["steps"]
    told = [step["stage"] if step["slot"] is None else f"{step['stage']} {step['slot']}" for step in steps]
    expect(life.locator("tbody th")).to_have_text(told)
    assert {name.split()[0] for name in told} == {"parse", "back", "enrich", "write"}
    page.get_by_role("button", name="Stop following").click()
    expect(life).to_be_hidden()


@pytest.mark.slow
def test_an_item_that_was_never_read_says_so(live, page):
    live.standing()
    page.goto(live.url)
    page.get_by_label("Follow item").fill("2999")
    page.keyboard.press("Enter")
    expect(page.locator(".life")).to_contain_text("has not been read yet")


@pytest.mark.slow
def test_what_if_shows_the_server_s_prediction_and_apply_scales_the_run(live, page):
    live.standing()
    page.goto(live.url)
    knob = page.get_by_role("slider", name="enrich")
    expect(knob).to_have_value("3")
    with page.expect_response(
        lambda answer: answer.url.endswith("/what-if") and '"enrich":4' in (answer.request.post_data or "")
    ) as found:
        knob.focus()
        page.keyboard.press("ArrowRight")
    guess = found.value.json()
    shown = page.locator(".whatif .big").inner_text()
    assert float(shown.split()[0].replace(",", "")) == pytest.approx(guess["rate"], rel=0.01)
    expect(page.locator(".whatif .guess")).to_contain_text(guess["next_bottleneck"] or "")
    expect(page.locator(".whatif")).to_contain_text("3 → 4 workers")
    with page.expect_response("**/what-if"):
        page.get_by_role("button", name="Apply").click()
    expect(stage(page, "enrich")).to_contain_text("4 × thread")
    expect(page.locator(".versus")).to_contain_text("predicted")
    assert next(one for one in live.snapshot()["stages"] if one["name"] == "enrich")["workers"] == 4
    live.held.open.set()
    expect(page.locator(".pill")).to_have_text("done")
    assert live.written == [value for value in range(3_000) if value != 7]


@pytest.mark.slow
def test_a_study_is_asked_for_with_a_button_and_told_with_its_interval(page, capfd):
    def slow(value: int) -> int:
        time.sleep(0.004)  # the time of a call, half of which is to go
        return value

    with Pipeline(range(100_000)).map(slow, name="slow").to(str, name="end").open(ui=True) as run:
        page.goto(address(capfd))
        page.get_by_role("button", name="Measure slow at half its time").click()
        expect(page.locator(".whatif")).to_contain_text("Measuring for ten seconds")
        told = re.compile(
            r"With slow at half its time: [\d,.]+ rows/s \([\d,.]+ to [\d,.]+ rows/s\), now [\d,.]+ rows/s: .*measured"
        )
        expect(page.locator(".whatif")).to_contain_text(told, timeout=30_000)
        run.cancel()


@pytest.mark.slow
def test_a_drain_is_asked_for_twice_and_finishes_what_was_read(live, page):
    live.standing()
    page.goto(live.url)
    page.get_by_role("button", name="Drain", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert live.snapshot()["state"] == "running"
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator(".pill")).to_have_text("draining")
    expect(page.get_by_role("button", name="Drain", exact=True)).to_be_disabled()
    live.held.open.set()
    report = live.run.wait()
    expect(page.locator(".pill")).to_have_text("done")
    assert report.state == "drained"
    expect(fact(page, "written")).to_have_text(f"{report.items.written:,} written")
    assert live.written == [value for value in range(report.items.read) if value != 7]


@pytest.mark.slow
def test_a_cancel_ends_the_run_and_the_page_says_so(live, page):
    live.standing()
    page.goto(live.url)
    page.wait_for_function("() => window.Plotly")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    live.held.open.set()
    expect(page.locator(".pill")).to_have_text("cancelled")
    expect(page.locator("#link")).to_have_text("ended")
    for name in ("Drain", "Cancel"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    expect(page.get_by_role("slider", name="enrich")).to_be_disabled()
    expect(page.get_by_role("link", name="Export HTML")).to_be_hidden()
    page.get_by_label("Follow item").fill("12")  # what was seen can still be looked at
    page.keyboard.press("Enter")
    expect(page.locator(".life h3")).to_have_text("Item 12")
    expect(page.locator(".life tbody th")).not_to_have_count(0)
    page.locator("[data-chart=rate]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=rate] .annotation-text").first).to_have_text(re.compile("^fill, steady"))


@pytest.mark.slow
def test_all_six_curves_are_drawn_with_no_word_from_the_content_policy(live, page):
    live.standing()
    page.goto(live.url)
    page.locator("[data-chart=memory]").scroll_into_view_if_needed()
    for name in ("rate", "latency", "depth", "age", "held", "memory"):
        expect(page.locator(f"[data-chart={name}] .scatterlayer path.js-line").first).to_be_attached()
    policy = live.client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
