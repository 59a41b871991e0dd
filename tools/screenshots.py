"""Pictures of every view of the page: screenshots.py [FOLDER]

A run is started that goes on for as long as it is looked at; Chromium is driven as in the browser tests.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from browser.chrome import NARROW, WIDE, chromium, opened
from headway import Pipeline
from headway.web.recorded import RecordedRun
from headway.web.server import Server

LOOKS = {"": (WIDE, False), "-dark": (WIDE, True), "-narrow": (NARROW, False)}


def rows() -> Iterator[dict[str, Any]]:
    """Rows without an end."""
    number = 0
    while True:
        yield {"account": f"DE{number % 97:04}", "amount": number % 1000 - 3}
        number += 1


def parse(row: dict[str, Any]) -> dict[str, Any]:
    """A quick stage."""
    time.sleep(0.0015)
    return row


def enrich(row: dict[str, Any]) -> dict[str, Any]:
    """The slow one, which refuses a few rows."""
    if row["amount"] < -2:
        raise ValueError(f"amount {row['amount']} is below what account {row['account']} may owe")
    time.sleep(random.expovariate(1 / 0.012))
    return row


def write(_row: dict[str, Any]) -> None:
    """The sink."""
    time.sleep(0.001)


def pipeline(source: Any = rows) -> Pipeline[Any]:
    """Three stages with a clear bottleneck."""
    declared = Pipeline(source, name="transactions", on_error="dead_letter")
    return declared.map(parse).map(enrich, workers=3)


def take(page: Any, url: str, path: Path, *, full: bool = True, before: Any = None) -> None:
    """One picture of `url`, once it has settled."""
    page.goto(url)
    page.wait_for_timeout(6000)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_timeout(2500)
    page.evaluate("scrollTo(0, 0)")
    if before is not None:
        before(page)
        page.wait_for_timeout(1200)
    page.screenshot(path=path, full_page=full)
    print(path)


def follow(page: Any) -> None:
    """Pick an item that is still in the picture."""
    page.get_by_role("button", name="Pause").click()
    for _ in range(5):
        page.get_by_role("button", name="Zoom in").click()
    read = int(page.locator("[data-fact=written] b").inner_text().replace(",", ""))
    page.get_by_label("Follow item").fill(str(read - 20))
    page.keyboard.press("Enter")


def preset(number: int, share: float) -> Any:
    """Choose a preset and move the play head."""

    def choose(page: Any) -> None:
        page.get_by_role("group", name="Presets").get_by_role("button").nth(number).click()
        page.wait_for_timeout(1500)
        head = page.get_by_role("slider", name="Moment")
        head.evaluate("(el, at) => { el.value = at; el.dispatchEvent(new Event('input')); }", round(share * 1000))

    return choose


def what_if(page: Any) -> None:
    """Apply two more workers and wait for what comes of it."""
    knob = page.get_by_role("slider", name="enrich")
    knob.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(2500)
    page.get_by_role("button", name="Apply").click()
    page.wait_for_timeout(9000)


def main(folder: Path) -> None:
    """Take them all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as left, chromium() as browser:
        trace, report = Path(left, "run.trace"), Path(left, "run.json")
        pipeline(itertools.islice(rows(), 1500)).to(write).run(trace=str(trace)).to_json(report)
        said = StringIO()
        with redirect_stderr(said):
            live = pipeline().to(write).start(ui=True, dead_letters=[].append)
        url = said.getvalue().partition("page at ")[2].split()[0]
        for name, (size, dark) in LOOKS.items():
            with opened(browser, size=size, dark=dark, calm=True) as page:
                take(page, url, folder / f"run{name}.png")
        with opened(browser, calm=True) as page:
            take(page, url, folder / "item.png", before=follow)
        with opened(browser, calm=True) as page:
            take(page, url, folder / "what-if.png", before=what_if)
        server, empty = Server([RecordedRun(report)], True), Server([], True)
        for one in (server, empty):
            one.start()
        for name, (size, dark) in LOOKS.items():
            with opened(browser, size=size, dark=dark, calm=True) as page:
                take(page, server.url, folder / f"report{name}.png")
                take(page, f"{server.url}#/try", folder / f"visualizer{name}.png", before=preset(2, 0.45))
        with opened(browser, calm=True) as page:
            for number, share in ((0, 0.2), (1, 0.5), (3, 0.5), (4, 0.8), (5, 1.0)):
                take(page, f"{server.url}#/try", folder / f"preset-{number + 1}.png", before=preset(number, share))
            take(page, empty.url, folder / "nothing.png", full=False)
            page.watched.expected.append("404")
            take(page, f"{empty.url}#/run/gone", folder / "gone.png", full=False)
        with opened(browser, calm=True) as page:
            page.watched.expected.append("ERR_")
            take(page, url, folder / "cancelled.png", before=lambda _: live.cancel())
        for one in (server, empty):
            one.stop()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))
