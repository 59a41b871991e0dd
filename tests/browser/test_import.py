"""A live import in a process of its own: its page drains it, and `headway ui` shows it too."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing

import duckdb
import pytest

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect

from browser.chrome import opened
from browser.test_run import fact
from headway.web.server import Server
from web.client import Client

ROWS, HELD = 100_000, 10_000
NOTE = "x" * 400
FUNCTION = """
import socket

def book(row, held=[]):
    if int(row.id) == {held}:
        socket.create_connection(("127.0.0.1", {port})).recv(1)  # until the test lets it go on
    if int(row.id) == 5:
        raise ValueError("<b>no</b>")
    return {{"id": int(row.id), "amount": int(row.amount)}}
"""


@pytest.fixture
def importing(tmp_path):
    """An import that waits at row 10,000: its process, its page, its target, and what lets it go on."""
    (tmp_path / "rows.csv").write_text("id,amount,note\n" + "".join(f"{n},{n % 90},{NOTE}\n" for n in range(ROWS)))
    with closing(socket.create_server(("127.0.0.1", 0))) as gate:
        (tmp_path / "rows.py").write_text(FUNCTION.format(held=HELD, port=gate.getsockname()[1]))
        command = [
            sys.executable,
            "-m",
            "headway",
            "import",
            "rows.csv",
            "--to",
            "bank.duckdb",
            "--process",
            "rows.py:book",
            "--ui",
            "--workers",
            "1",
        ]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            said = ""
            while "page at " not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            url = re.search(r"page at (\S+)", said).group(1)
            waiting, _ = gate.accept()
            with closing(waiting):
                yield process, url, tmp_path / "bank.duckdb", waiting
            process.kill() if process.poll() is None else None
            process.communicate()


@pytest.mark.slow
def test_a_drain_from_the_page_ends_an_import_with_all_that_was_read(importing, page):
    process, url, target, waiting = importing
    page.goto(url)
    expect(page.locator(".pill")).to_have_text("running")
    expect(page.locator(".stage")).not_to_have_count(0)
    with Client(url).events(f"/api/runs/{Client(url).get('/api/runs').data['runs'][0]['id']}/events") as events:
        queued = lambda data: data["snapshot"]["queues"][0]["now"] > 0
        parse = events.until("snapshot", queued)[-1][2]["snapshot"]["queues"][0]
    assert parse["now"] > 100  # rows, as its capacity is, and not ranges of rows
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator(".pill")).to_have_text("draining")
    waiting.sendall(b".")
    expect(page.locator(".pill")).to_have_text("done")
    read = int(fact(page, "read").inner_text().split()[0].replace(",", ""))
    out, _ = process.communicate()
    assert process.returncode == 1, out  # the input had not ended
    with duckdb.connect(str(target), read_only=True) as database:
        (rows,) = database.execute("select count(*) from rows").fetchone()
        (rejects,) = database.execute("select count(*) from _headway_rejects").fetchone()
    assert HELD < read < ROWS
    assert (rows + rejects, rejects) == (read, 1)


@pytest.mark.slow
def test_the_page_of_the_machine_lists_and_shows_it(importing, browser):
    process, _, _, waiting = importing
    server = Server([], True, everywhere=True)
    server.start()
    try:
        with opened(browser) as page:
            page.watched.expected.append("/what-if")  # the run may end while it is asked
            page.goto(server.url)
            expect(page.locator(".pill")).to_have_text("running")
            expect(page.locator("#link")).to_have_text("live")
            waiting.sendall(b".")
            expect(page.locator(".pill")).to_have_text("done")
            expect(fact(page, "read")).to_have_text(f"{ROWS:,} read")
            expect(fact(page, "dead")).to_have_text("1 dead")
    finally:
        server.stop()
    assert process.wait() == 0
