"""The parent dies without a word: its children are gone, whatever they were doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.workers import reached

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system's own signal on a parent's death")

SCRIPT = """
import ctypes, os, signal, sys, time
from headway import Pipeline

def work(value):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.argv[1:] == ["spin"] or value["how"] == "spin":
        os.write(1, b"%d\\n" % os.getpid())
        while True: pass
    os.write(1, b"%d\\n" % os.getpid())
    (ctypes.PyDLL if value["how"] == "hold" else ctypes.CDLL)(None).usleep(1_000_000_000)  # hangs in C until it is killed

Pipeline([{"how": sys.argv[1]}] * 2).map(work, on="process", workers=2).run()
"""


def gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.parametrize("how", ["spin", "hold", "call"])
def test_children_end_with_a_killed_parent_while_a_call_runs(how):
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT, how], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        try:
            pids = [int(parent.stdout.readline()) for _ in range(2)]
            assert not any(map(gone, pids))
        finally:
            os.kill(parent.pid, signal.SIGKILL)
    for pid in pids:
        assert reached(lambda pid=pid: gone(pid))
