"""The memory of an import does not grow with its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.demo_data import write_bookings
from support.census import LINUX
from support.memory import peak_memory
from support.targets import Targets

IMPORT = """
import sys
from headway import import_file
from headway.cli.demo_rules import TABLES
report = import_file(sys.argv[1], sys.argv[2], process="headway.cli.demo_rules:book", tables=TABLES, job="memory")
print(report.tables["ledger"])
"""
ROWS = 250_000
MOST_MB = 400
FLAT_MB = 30


def peak_mb(folder: Path, rows: int, target: str) -> float:
    """Import so many rows and give the peak of all processes; every row is there."""
    *_, answers = write_bookings(folder / "bookings.csv", rows)
    command = [sys.executable, "-c", IMPORT, str(folder / "bookings.csv"), target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running, peak_memory(running.pid) as peak:
        out, _ = running.communicate(timeout=600)
    assert int(out) == answers.good
    return max(peak)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not LINUX, reason="what a process takes is read from /proc")
def test_four_times_the_rows_need_no_more_memory(tmp_path: Path, targets: Targets) -> None:
    """Into PostgreSQL: the others fill a cache of their own first, for a million rows and more."""
    name = "postgresql"
    small = peak_mb(tmp_path, ROWS, targets.fresh(name, tmp_path))
    (tmp_path / "larger").mkdir()
    large = peak_mb(tmp_path, 4 * ROWS, targets.fresh(name, tmp_path / "larger"))
    assert large <= MOST_MB
    assert large - small <= FLAT_MB
