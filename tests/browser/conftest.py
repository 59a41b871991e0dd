"""Chromium, a live run that stands still where the test wants it, and finished runs from files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from browser.chrome import chromium, opened
from headway import HeadwayError, Pipeline, Report
from headway.web.recorded import RecordedRun
from headway.web.server import Server
from web.client import PATIENCE_S, Client
from web.conftest import address

HOSTILE = '<img src=x onerror="document.title=1"><b>bad</b> row'
AWAITED = 300


@pytest.fixture(scope="package", name="browser")
def one_browser() -> Iterator[Any]:
    """Chromium, for all tests here."""
    with chromium() as browser:
        yield browser


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime folder of the test's own."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page as wide as a screen; it may not complain, nor ask beyond this machine."""
    with opened(browser) as page:
        yield page


class Held:
    """Item `AWAITED` waits until the test lets it go on, and so does all that order makes wait for it."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, value: int) -> int:
        if value == 7:
            raise ValueError(HOSTILE)
        if value == AWAITED:
            assert self.open.wait(PATIENCE_S)
        return value


class Live(SimpleNamespace):
    """A run with its page: `run`, `held`, `client`, `url`, `path` of its interface, `written` (what the sink took)."""

    def snapshot(self) -> dict[str, Any]:
        return self.client.get(self.path).data["snapshot"]

    def standing(self) -> dict[str, Any]:
        """Its snapshot once it can go no further: the window is used up behind the awaited item."""
        seen: list[Any] = [None]

        def stands(data: dict[str, Any]) -> bool:
            """The window is full, and was so with the same rows at the look before: on the way it may be full, too."""
            gate, items = data["snapshot"]["reorder"][0], data["snapshot"]["items"]
            seen.append(items)
            return gate["window_used"] >= gate["window"] and seen[-2] == items

        with self.client.events(f"{self.path}/events") as events:
            events.until("snapshot", stands)
        return self.snapshot()


@pytest.fixture
def live(capfd: pytest.CaptureFixture[str]) -> Iterator[Live]:
    """Three stages; what comes after item 300 is held at the gate before the sink."""
    held, written = Held(), []
    pipeline = Pipeline(range(3_000), name="<i>ledger</i>", on_error="dead_letter", window=256)
    pipeline = pipeline.map(str, name="parse").map(int, name="back").map(held, workers=3, name="enrich")
    run = pipeline.to(written.append, name="write").start(ui=True)
    url = address(capfd)
    client = Client(url)
    name = client.get("/api/runs").data["runs"][0]["id"]
    try:
        yield Live(run=run, held=held, client=client, url=url, path=f"/api/runs/{name}", written=written)
    finally:
        held.open.set()
        with contextlib.suppress(HeadwayError):
            run.wait()


@pytest.fixture
def finished(tmp_path: Path) -> SimpleNamespace:
    """A run that is over, as the files that it left: `report` and `trace`."""
    trace, path = tmp_path / "run.trace", tmp_path / "run.json"

    def enrich(value: int) -> int:
        if value == 7:
            raise ValueError(HOSTILE)
        return value

    pipeline = Pipeline(range(2_000), name="<i>ledger</i>", on_error="dead_letter")
    report = (
        pipeline.map(str, name="parse")
        .map(lambda text: enrich(int(text)), workers=2, name="enrich")
        .to([].append, name="write")
    )
    made: Report = report.run(trace=str(trace))
    made.to_json(path)
    return SimpleNamespace(report=path, trace=trace, data=made.to_dict())


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve files of finished runs; gives the address."""
    servers: list[Server] = []

    def start(*paths: Path) -> str:
        server = Server([RecordedRun(path) for path in paths], True)
        servers.append(server)
        server.start()
        return server.url

    yield start
    for server in servers:
        server.stop()
