"""SIGKILL at every step of a commit and at random moments: the same command again ends as if nothing had happened.

`make kill`. More than a hundred kills per target, one at every moment of the writer, and 32 at random ones. Each is
followed by the same command, whose end state is compared with that of an undisturbed run, and by a
third one, which changes nothing.
"""

from __future__ import annotations

import json
import random
import time
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headway import import_file
from headway.io import ranges
from headway.io.target import Address
from support.importing import query
from support.killing import RANGE_BYTES, Killing, run
from support.targets import TARGETS, Targets, in_file_order

ROWS = 2000
RULES = """
from headway import Reject, rows
def post(row):
    if row.n.endswith("77"):
        raise Reject("unlucky", row.n)
    return rows(
        ledger=(int(row.id), row.account, row.amount),
        balances=(row.account, row.balance),
        log=(f"{row.account} {row.amount}",),
    )
"""
TABLES = """
[tables.ledger]
columns = {id = "int", account = "text", amount = "decimal(18,2)"}
key = ["id"]
[tables.balances]
columns = {account = "text", balance = "decimal(18,2)"}
key = ["account"]
mode = "upsert"
[tables.log]
columns = {line = "text"}
"""
SELECTS = {
    "ledger": "SELECT id, account, CAST(amount AS VARCHAR) FROM ledger ORDER BY id",
    "balances": "SELECT account, CAST(balance AS VARCHAR) FROM balances ORDER BY account",
    "log": "SELECT line FROM log ORDER BY line",
    "rejects": "SELECT job, attempt, seq, file, line, byte, length, stage, reason, message, raw, raw_bytes"
    " FROM _headway_rejects ORDER BY seq, attempt",
    "jobs": "SELECT job, position, counts, finished_at IS NOT NULL FROM _headway_jobs",
}


class Case(NamedTuple):
    """A file to import, what an undisturbed run makes of it, and in which moments and seconds."""

    folder: Path
    name: str
    targets: Targets
    right: dict[str, list[Any]]
    moments: list[str]
    seconds: float

    def fresh(self, number: int) -> list[str]:
        folder = self.folder / f"{number}"
        folder.mkdir()
        return command(self.targets.fresh(self.name, folder))


def command(target: str) -> list[str]:
    return [
        "import",
        "a.csv",
        "--to",
        target,
        "--process",
        "rules.py:post",
        "--tables",
        "tables.toml",
        "--workers",
        "1",
    ]


def write_source(folder: Path) -> None:
    """Three accounts in turns, a duplicated id in most commits, a reject in every hundred rows."""
    balances, lines = {"a": 0, "b": 0, "c": 0}, ["n,id,account,amount,balance"]
    ids = 0
    for n in range(ROWS):
        account = "abc"[n % 3]
        ids += 2
        known = ids - 400 if n % 97 == 96 and ids > 400 else ids
        if known == ids and not f"{n}".endswith("77"):
            balances[account] += n
        lines.append(f"{n},{known},{account},{n}.00,{balances[account]}.00")
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    (folder / "rules.py").write_text(RULES)
    (folder / "tables.toml").write_text(TABLES)


def state(target: str) -> dict[str, list[Any]]:
    found = {name: query(target, sql) for name, sql in SELECTS.items()}
    found["order"] = query(target, f"SELECT id FROM ledger ORDER BY {in_file_order(target, 'id')}")
    return found


def committed(target: str) -> int:
    """The source rows behind the last commit."""
    try:
        found = query(target, "SELECT position FROM _headway_jobs")
    except Exception:  # the tables were not there yet
        return 0
    return int(json.loads(found[0][0])["seq"]) if found and found[0][0] else 0


@pytest.fixture(scope="module", params=TARGETS)
def case(request: pytest.FixtureRequest, targets: Targets, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("kills")
    write_source(folder)
    target = targets.fresh(request.param, folder)
    started = time.monotonic()
    done = run(command(target), folder, Killing())
    seconds = time.monotonic() - started
    assert done.status == 0, done.err
    return Case(folder, request.param, targets, state(target), done.moments, seconds)


def killed_and_finished(case: Case, arguments: list[str], *, say_so: bool) -> None:
    """The same command after a kill: it goes on from the last commit and ends as an undisturbed run."""
    target = arguments[arguments.index("--to") + 1]
    before = committed(target)
    second = run([*arguments, "--json"], case.folder, Killing())
    assert second.status == 0, second.err
    told = json.loads(second.out)
    assert (told["resumed_at"] or 0) == before, "it goes on behind the last commit"
    assert told["read"] == told["written"] + told["rejected"] + told["skipped"] + told["filtered"] == ROWS
    assert state(target) == case.right
    if say_so:
        third = run([*arguments, "--json"], case.folder, Killing())
        assert third.status == 0, third.err
        assert "is finished already" in third.err
        assert "Nothing was done" in third.err
    else:
        process, tables = f"{case.folder / 'rules.py'}:post", case.folder / "tables.toml"
        assert import_file(case.folder / "a.csv", target, process=process, tables=tables).already_finished
    assert state(target) == case.right


def commits(moments: list[str]) -> int:
    """How many transactions with rows a run had surely committed."""
    return sum(moment == "behind commit" for moment in moments)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_kill_at_every_step_of_a_commit_costs_nothing(case: Case) -> None:
    kills = 0
    for at in count(1):
        arguments = case.fresh(at)
        target = arguments[arguments.index("--to") + 1]
        first = run(arguments, case.folder, Killing(at=at, seed=at))
        if not first.killed:  # there are no more moments; a slow run commits more often and has some more
            assert first.status == 0, first.err
            break
        kills, moment = kills + 1, first.moments[-1]
        # No row is shorter than 15 bytes.
        rows_a_commit = Address.parse(target).ranges_a_commit * RANGE_BYTES // 15
        begun = commits(first.moments) - 1  # the first commit takes the job over
        if begun > 0:
            assert committed(target) > 0, moment
        assert committed(target) <= (begun + 1) * rows_a_commit
        killed_and_finished(case, arguments, say_so=False)
    assert kills >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_moments_lose_and_double_nothing(case: Case, seed: int) -> None:
    moment, kills, number = random.Random(f"{case.name}{seed}"), 0, 0
    while number < 10 or kills < 8:  # some moments are behind the end of the run
        arguments = case.fresh(10_000 * (seed + 1) + number)
        number += 1
        target = arguments[arguments.index("--to") + 1]
        while True:  # killed again and again, until it is through
            before = committed(target) if kills else 0
            if moment.random() < 0.5:
                killing = Killing(at=moment.randrange(1, len(case.moments)), seed=moment.randrange(1 << 30))
            else:
                killing = Killing(after_s=moment.uniform(0.1, case.seconds))
            done = run(arguments, case.folder, killing)
            assert done.killed or done.status == 0, done.err
            if not done.killed:
                break
            kills += 1
            assert committed(target) >= before
            if moment.random() < 0.3:
                break
        killed_and_finished(case, arguments, say_so=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_kill_while_whole_row_groups_of_duckdb_are_written_costs_nothing(tmp_path: Path) -> None:
    rows = 800_000
    (tmp_path / "b.csv").write_text("n,note\n" + "".join(f"{n},row number {n} of many\n" for n in range(rows)))

    def fresh(number: int) -> list[str]:
        (tmp_path / f"{number}").mkdir()
        return [
            "import",
            "b.csv",
            "--to",
            f"{tmp_path / f'{number}'}/b.duckdb",
            "--column",
            "n=int",
            "--column",
            "note=text",
        ]

    started = time.monotonic()
    undisturbed = run(fresh(0), tmp_path, Killing(), range_bytes=ranges.RANGE_BYTES)
    seconds, moment = time.monotonic() - started, random.Random(7)
    assert undisturbed.status == 0, undisturbed.err
    kills = 0
    for number in range(1, 25):
        arguments = fresh(number)
        target = arguments[arguments.index("--to") + 1]
        killings = (
            Killing(at=moment.randrange(1, len(undisturbed.moments)), seed=number),
            Killing(after_s=moment.uniform(0.3, seconds)),
        )
        done = run(arguments, tmp_path, killings[number % 2], range_bytes=ranges.RANGE_BYTES)
        assert done.killed or done.status == 0, done.err
        kills += done.killed
        before = committed(target)
        assert before >= max(0, commits(done.moments) - 1) * 122_880 or not done.killed
        last = run([*arguments, "--json"], tmp_path, Killing(), range_bytes=ranges.RANGE_BYTES)
        assert last.status == 0, last.err
        assert (json.loads(last.out)["resumed_at"] or 0) == before
        found = query(target, "SELECT count(*), count(DISTINCT n), min(n), max(n), bool_and(rowid = n) FROM b")
        assert found == [(rows, rows, 0, rows - 1, True)]
    assert kills >= 15
