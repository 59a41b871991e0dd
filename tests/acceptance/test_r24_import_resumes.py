"""R24: an import that is killed goes on with the same command, and ends as the sequential run would have."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from support.importing import query
from support.killing import Killing, run
from support.targets import TARGETS, in_file_order

ROWS = 20_000
RANGE_BYTES = 32 << 10
LARGEST_COMMIT = 4 * RANGE_BYTES // 30  # no row is shorter than 30 bytes
KILLS = 3


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_killed_import_loses_at_most_a_commit_and_doubles_nothing(target: str, tmp_path: Path) -> None:
    lines = [f"{n},account {n % 100:05d},{n * 7}.25" for n in range(100_000, 100_000 + ROWS)]
    source = tmp_path / "a.csv"
    source.write_text("id,account,amount\n" + "\n".join(lines) + "\n")
    command = ["import", "a.csv", "--to", target, "--json", "--workers", "2"]
    moments, kills, before = random.Random(24), 0, 0
    while kills < KILLS:
        done = run(command, tmp_path, Killing(at=moments.randrange(40, 60), seed=kills), range_bytes=RANGE_BYTES)
        assert done.killed, done.err
        kills += 1
        position = query(target, "SELECT position FROM _headway_jobs")[0][0]
        committed = json.loads(position)["seq"] if position else 0
        assert query(target, "SELECT count(*) FROM a") == [(committed,)], "data and progress are committed together"
        commits = sum(moment == "behind commit" for moment in done.moments) - 1  # one takes the job over
        assert before <= committed <= before + (commits + 1) * LARGEST_COMMIT
        before = committed
    last = run(command, tmp_path, Killing(), range_bytes=RANGE_BYTES)
    assert last.status == 0, last.err
    assert (json.loads(last.out)["resumed_at"] or 0) == before
    order = in_file_order(target, "id")
    found = query(target, f"SELECT id, account, CAST(amount AS VARCHAR) FROM a ORDER BY {order}")
    assert [f"{n},{account},{amount}" for n, account, amount in found] == lines

    again = run(command, tmp_path, Killing(), range_bytes=RANGE_BYTES)
    assert again.status == 0
    assert "is finished already" in again.err
    assert query(target, "SELECT count(*) FROM a") == [(ROWS,)]

    source.write_text(source.read_text().replace("account 00001", "account 99999", 1))
    changed = run(command, tmp_path, Killing(), range_bytes=RANGE_BYTES)
    assert changed.status == 1
    assert "changed" in changed.err
    assert query(target, "SELECT count(*) FROM a") == [(ROWS,)]
