"""Finished runs: from the server, and from the reader's own disk."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect

from browser.test_run import fact, stage
from web.client import Client


def test_a_report_opens_with_its_numbers(finished, serve, page):
    page.goto(serve(finished.report))
    data = finished.data
    client = Client(page.url)
    told = client.get(f"/api/runs/{finished.report.name}").data["sentence"]
    expect(page.locator("h1")).to_have_text(told)
    expect(fact(page, "written")).to_have_text(f"{data['items']['written']:,} written")
    expect(fact(page, "read")).to_have_text("2,000 read")
    for one in data["stages"]:
        assert f"{one['workers']} × {one['on']}" in stage(page, one["name"]).inner_text()
        shares = stage(page, one["name"]).get_by_role("img").get_attribute("aria-label")
        for state in ("busy", "blocked", "starved", "overhead"):
            if one[state] >= 0.01:
                assert re.search(rf"{state} {round(one[state] * 100)}%", shares), (one["name"], shares)
    expect(page.locator(".stairs canvas")).to_be_visible()  # the report names its trace, which is there
    expect(page.locator(".facts")).to_contain_text("done")
    for name in ("Drain", "Cancel"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()


@pytest.mark.slow
def test_a_trace_opens_as_a_staircase(finished, serve, page):
    page.goto(serve(finished.trace))
    expect(page.locator(".stairs canvas")).to_have_attribute("aria-label", re.compile("^Timeline of 4 slots"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["report", "trace"])
def test_a_file_of_the_reader_s_own_opens_in_the_page_alone(finished, serve, page, kind):
    page.goto(serve())
    asked = len(page.watched.asked)
    page.locator("#file").set_input_files(getattr(finished, kind))
    if kind == "report":
        expect(fact(page, "written")).to_have_text("1,999 written")
        expect(page.locator(".dead tbody tr")).to_have_count(1)
    else:
        expect(page.locator("h1")).to_contain_text("of 3 stages")
        expect(page.locator(".stairs canvas")).to_have_attribute("aria-label", re.compile("^Timeline of 4 slots"))
    assert not [url for url in page.watched.asked[asked:] if "/api/" in url and not url.endswith("/api/runs")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [("no json", "is not JSON"), ('{"a": 1}', "is neither a report nor a trace"), ("[]", "holds no calls of a run")],
)
def test_a_file_that_is_neither_is_refused_with_what_would_do(serve, page, tmp_path, text, told):
    path = tmp_path / "other.json"
    path.write_text(text)
    page.goto(serve())
    page.locator("#file").set_input_files(path)
    expect(page.locator("main")).to_contain_text(told)


@pytest.mark.slow
def test_the_trace_of_a_run_that_was_killed_opens(finished, serve, page, tmp_path):
    cut = tmp_path / "cut.trace"
    cut.write_text(finished.trace.read_text().rstrip().removesuffix("]").rstrip())
    page.goto(serve())
    page.locator("#file").set_input_files(cut)
    expect(page.locator("h1")).to_contain_text("of 3 stages")


@pytest.mark.slow
def test_an_export_is_one_file_that_opens_by_itself(finished, serve, page, tmp_path):
    page.goto(serve(finished.report))
    with page.expect_download() as found:
        page.get_by_role("link", name="Export HTML").click()
    path = tmp_path / "exported.html"
    found.value.save_as(path)
    asked = len(page.watched.asked)
    page.goto(path.as_uri())
    expect(page.locator("h1")).to_have_text("<i>ledger</i>")
    assert [url for url in page.watched.asked[asked:] if not url.startswith(("file:", "data:"))] == []
    page.watched.asked.clear()
    kept = json.loads(page.locator("script#headway").text_content())
    assert kept["report"]["items"] == finished.data["items"]
