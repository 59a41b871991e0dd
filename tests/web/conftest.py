"""A live run with its page, whose items go on when the test says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway import HeadwayError, Pipeline
from web.client import Client, Held

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of the test's own."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "headway"


def address(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.partition("page at ")[2].split()[0]


@pytest.fixture
def live(capfd: pytest.CaptureFixture[str]) -> Iterator[SimpleNamespace]:
    """`work` takes 300 items, two of which fail with a hostile text, and holds the others."""
    held = Held({3: HOSTILE, 4: "half a pair: \ud800"})
    pipeline = Pipeline(range(20_000), name="<b>live</b>", on_error="dead_letter")
    run = pipeline.map(held, workers=4, name="work").map(str, name="tell").start(ui=True)
    client = Client(address(capfd))
    name = client.get("/api/runs").data["runs"][0]["id"]
    try:
        yield SimpleNamespace(run=run, held=held, client=client, path=f"/api/runs/{name}", id=name)
    finally:
        held.open.set()
        with contextlib.suppress(HeadwayError):
            run.wait()
