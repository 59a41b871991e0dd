"""The page of an import: in rows, with its rejects, and steered."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from web.client import PATIENCE_S, Client

ROWS = 40_000
PAD = "x" * 300  # a commit has four ranges of a MiB
FUNCTION = """
import time
from pathlib import Path

def book(row):
    while not Path(row["gate"]).exists():
        time.sleep(0.01)  # in a worker, which only the file tells that it may go on
    return {"n": int(row["n"])}
"""


@pytest.fixture
def importing(tmp_path):
    """An import whose rows from 20,000 on wait for a file."""
    rows = (f"{'<b>x</b>' if n == 7 else n},{'.' if n < ROWS // 2 else 'gate'},{PAD}" for n in range(ROWS))
    (tmp_path / "rows.csv").write_text("n,gate,pad\n" + "\n".join(rows) + "\n")
    (tmp_path / "rules.py").write_text(FUNCTION)
    (tmp_path / "tables.toml").write_text('[tables.rows.columns]\nn = "int"\n')
    line = [
        *(sys.executable, "-m", "headway", "import", "rows.csv", "--to", "rows.sqlite", "--process", "rules.py:book"),
        *("--tables", "tables.toml", "--workers", "2", "--ui"),
    ]
    process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        told = []
        for line in process.stderr:
            told.append(line)
            if "page at " in line:
                break
        assert "page at " in told[-1], told
        address = told[-1].partition("page at ")[2].split()[0]
        yield process, Client(address), tmp_path
    finally:
        (tmp_path / "gate").touch()
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_an_import_is_shown_in_rows_with_its_rejects_and_drained_by_the_page(importing):
    process, client, folder = importing
    [run] = client.get("/api/runs").data["runs"]
    path = f"/api/runs/{run['id']}"
    with client.events(f"{path}/events") as events:
        letter = events.until("dead")[-1][2]
        assert (letter["seq"], letter["stage"]) == (7, "process")
        assert letter["message"].startswith("line 9: ")
        assert "<b>x</b>" in letter["value"]
        seen = events.until("snapshot", lambda data: data["snapshot"]["items"]["written"] > 1_000)
        assert [stage["name"] for stage in seen[-1][2]["snapshot"]["stages"]] == ["parse", "write"]
        assert client.post(f"{path}/drain").data == {"state": "draining"}
        (folder / "gate").touch()
        end = events.until("end")[-1][2]
    process.wait(PATIENCE_S)
    with sqlite3.connect(folder / "rows.sqlite") as base:
        (count,) = base.execute("SELECT count(*) FROM rows").fetchone()
        (rejects,) = base.execute("SELECT count(*) FROM _headway_rejects").fetchone()
    base.close()
    items = end["snapshot"]["items"]
    assert (items["written"], items["dead"]) == (count, rejects)
    assert items["read"] == count + 1


@pytest.mark.slow
def test_a_signal_ends_an_import_with_its_page(importing):
    process, client, folder = importing
    client.get("/api/runs")
    process.send_signal(signal.SIGINT)
    (folder / "gate").touch()
    assert process.wait(PATIENCE_S) == 130
    assert list((Path(os.environ["XDG_RUNTIME_DIR"]) / "headway").iterdir()) == []
