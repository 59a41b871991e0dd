"""`headway top`: in a terminal, and without one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from headway.cli.main import main
from web.client import PATIENCE_S, warm


@pytest.fixture
def command(capfd):
    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(list(arguments))
        captured = capfd.readouterr()
        return SimpleNamespace(status=exit_.value.code or 0, out=captured.out, err=captured.err)

    return call


def settle(live):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)


def test_top_tells_every_live_run_in_a_line(live, command):
    settle(live)
    answer = command("top", "--once")
    assert answer.status == 0, answer.err
    [line] = answer.out.splitlines()
    assert line.startswith("<b>live</b>: running, ")
    for part in ("2 rejects", "work busy ", "blocked ", "starved ", "queue "):
        assert part in line
    assert command("top", "--once", live.id).out.startswith("<b>live</b>")
    [told] = json.loads(command("top", "--json").out)
    assert told["run"]["id"] == live.id
    assert told["snapshot"]["items"]["dead"] == 2
    assert command("top", "--once", str(os.getpid())).out.startswith("<b>live</b>")


def test_top_says_what_there_is_where_a_run_is_not_found(live, command):
    answer = command("top", "nobody")
    assert answer.status == 2
    assert "there is no live run 'nobody'; there are <b>live</b>" in answer.err


def test_top_says_how_a_run_is_seen_where_there_is_none(command):
    answer = command("top")
    assert answer.status == 1
    assert "--ui" in answer.err


def read_until(terminal, wanted):
    """What a terminal has shown, once it has shown `wanted`."""
    seen, until = b"", time.monotonic() + PATIENCE_S
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
        assert ready, seen.decode(errors="replace")
        seen += os.read(terminal, 1 << 16)
    return seen.decode(errors="replace")


def test_top_in_a_terminal_draws_the_stages_until_the_run_has_ended(live):
    settle(live)
    ours, theirs = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    line = [sys.executable, "-m", "headway", "top", "--every", "0.1"]
    with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, b"starved")
            assert "time of its slots" in shown
            assert "work" in shown
            assert "#" in shown
            assert "held back" in shown
            live.held.open.set()
            read_until(ours, b"no run is live any more")
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            os.close(ours)
