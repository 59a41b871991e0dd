"""The visualizer plays what the engine computed, for one setting and for two beside each other."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect


def seek(page, share):
    """Move the play head to that share of the time."""
    page.get_by_role("slider", name="Moment").evaluate(
        "(el, at) => { el.value = at; el.dispatchEvent(new Event('input')); }", round(share * 1000)
    )


def tiles(page, lane, side="A"):
    return [
        int(text)
        for text in page.get_by_label(f"Setting {side}", exact=True).locator(f".lane.{lane} .tile").all_inner_texts()
    ]


def choose(page, title):
    """Choose a preset and give what the engine computed for it, by number of settings."""
    expect(page.locator(".side .scene")).to_have_count(2)
    asked = []
    listen = lambda request: asked.append(request) if request.url.endswith("/api/simulate") else None
    page.on("request", listen)
    page.get_by_role("button", name=title).click()
    expect(page.get_by_role("button", name=title)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".side .scene")).to_have_count(2)
    page.remove_listener("request", listen)
    return [request.response().json() for request in asked]


def test_items_end_in_the_order_that_the_engine_gave_them(serve, browser):
    from browser.chrome import opened

    with opened(browser, calm=True) as page:
        page.goto(serve() + "#/try")
        computed = choose(page, "The silent reorder")
        seek(page, 1)
        for side, result in zip("AB", computed, strict=True):
            assert tiles(page, "out", side) == [seq for _, seq in sorted(map(tuple, result["out"]))]
        assert tiles(page, "out", "B") == list(range(len(computed[1]["out"])))
        expect(page.get_by_label("Setting A").locator(".lane.out")).to_contain_text("too late")
        expect(page.get_by_label("Setting B").locator(".lane.out")).to_contain_text("in order")


@pytest.mark.slow
def test_the_gate_shows_what_it_holds_and_awaits_at_every_change(serve, browser):
    from browser.chrome import opened

    with opened(browser, calm=True) as page:
        page.goto(serve() + "#/try")
        _, result = choose(page, "The silent reorder")
        end = result["timeline"]["to"]
        seen = 0
        for (at, held, awaited), (until, *_) in zip(result["gate"], result["gate"][1:], strict=False):
            if until - at < end / 400:
                continue
            seek(page, (at + until) / 2 / end)
            assert len(tiles(page, "gate", "B")) == held
            if held:
                expect(page.get_by_label("Setting B").locator(".lane.gate")).to_contain_text(f"awaits {awaited}")
                seen += 1
        assert seen > 2


@pytest.mark.slow
def test_every_preset_plays_and_steps(serve, browser):
    from browser.chrome import opened

    with opened(browser, calm=True) as page:
        page.goto(serve() + "#/try")
        presets = page.get_by_role("group", name="Presets").get_by_role("button")
        expect(presets).to_have_count(6)
        for number in range(6):
            computed = choose(page, presets.nth(number).inner_text())
            clock = page.locator(".clock").inner_text()
            page.get_by_role("button", name="One step on").click()
            page.get_by_role("button", name="One step on").click()
            assert page.locator(".clock").inner_text() != clock
            seek(page, 1)
            for side, result in zip("AB", computed, strict=True):
                note = page.get_by_label(f"Setting {side}", exact=True).locator(".lane.out .name span").inner_text()
                assert note.split()[0] == f"{len(result['out']):,}"
                items = result["report"]["items"]
                left = page.get_by_label(f"Setting {side}", exact=True).locator(".lane.left .name span").text_content()
                assert int(left or 0) == items["read"] - items["written"] - items["dead"]
                source = page.get_by_label(f"Setting {side}", exact=True).locator(".lane.source .name span")
                expect(source).to_have_text(re.compile(f"^{items['read']} of"))


@pytest.mark.slow
def test_settings_are_changed_by_hand_and_refused_with_a_reason(serve, page):
    page.watched.expected.append("422")
    page.goto(serve() + "#/try")
    page.get_by_role("button", name="Compare off").click()
    expect(page.locator(".side .scene")).to_have_count(1)
    with page.expect_response("**/api/simulate") as found:
        page.get_by_label("workers of stage 4").fill("2")
    sent = found.value.request.post_data_json
    assert sent["stages"][3]["workers"] == 2
    with page.expect_response("**/api/simulate"):
        page.get_by_role("button", name="Add a stage").click()
    expect(page.get_by_label("name of stage 5")).to_have_value("stage5")
    expect(page.locator(".scene .lane.stage")).to_have_count(5)
    page.get_by_label("items", exact=True).fill("20000")  # beyond its limit: not sent
    expect(page.get_by_label("items", exact=True)).to_have_js_property("validity.valid", False)
    with page.expect_response("**/api/simulate"):
        page.get_by_role("button", name="Remove stage stage5").click()
    expect(page.locator(".scene .lane.stage")).to_have_count(4)


@pytest.mark.slow
def test_the_first_view_moves_only_when_asked(serve, page):
    page.goto(serve() + "#/try")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator(".side").first.locator(".lane.out .tile").first).to_be_attached()
    page.get_by_role("button", name="Pause", exact=True).click()
    stopped = page.locator(".clock").inner_text()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator(".clock").inner_text() == stopped
