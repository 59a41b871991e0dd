"""A connection that drops, a run that is not there, and nothing to show."""

from __future__ import annotations

import re

import pytest

from browser.proxy import Proxy

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect


@pytest.mark.slow
def test_a_dropped_connection_recovers_and_goes_on_after_what_was_seen(live, page):
    live.standing()
    page.watched.expected += [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
    ]
    with Proxy(live.client.port) as proxy:
        page.goto(proxy.url)
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator(".window")).to_contain_text("256 of 256 rows")
        page.wait_for_function("() => window.Plotly")  # or what is cut is its file
        proxy.cut()
        expect(page.locator("#link")).to_have_text("Connection lost, trying again")
        expect(page.locator("[data-fact=written]")).to_be_visible()  # what is known stays
        proxy.heads.clear()
        proxy.mend()
        expect(page.locator("#link")).to_have_text("live")
        live.held.open.set()
        expect(page.locator(".pill")).to_have_text("done")
        again = [head for head in proxy.heads if b"/events" in head]
        assert again
        assert re.search(rb"last-event-id: \d+", again[0], re.IGNORECASE)
        expect(page.locator("[data-fact=written]")).to_have_text("2,999 written")
        page.goto("about:blank")


@pytest.mark.slow
def test_a_run_that_is_not_there_says_so(finished, serve, page):
    page.watched.expected.append("404")
    page.goto(serve(finished.report) + "#/run/gone")
    expect(page.get_by_role("alert")).to_contain_text("there is no run 'gone'")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_without_a_run_the_page_says_how_to_start_one(serve, page):
    page.goto(serve())
    expect(page.get_by_role("heading", level=1)).to_have_text("No run yet")
    expect(page.locator("main")).to_contain_text("headway import rows.csv --to bank.duckdb --ui")
    page.get_by_role("link", name="watch how a pipeline moves").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The four-stage staircase")
