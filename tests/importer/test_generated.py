"""The big job on generated transactions: ledger, balances and rejects are exactly the generator's answers.

The 20,000 rows are part of the fast suite; `-m slow` does 200,000.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway import import_file
from headway.watch.verdict import judge
from support.importing import query
from support.targets import TARGETS, in_file_order

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT.parent / "shared" / "data" / "generate.py"
EXAMPLES = ROOT / "examples"
if not GENERATOR.is_file():
    pytest.skip("needs the generator beside the repository (../shared)", allow_module_level=True)


def generated(folder: Path, rows: int, *more: str) -> Path:
    command = [sys.executable, str(GENERATOR), str(folder), "--rows", str(rows), "--bad", "0.005", "--quiet", *more]
    subprocess.run(command, check=True)
    return folder / "transactions.csv"


def expected_ledger(path: Path, bad: set[int]) -> list[tuple[Any, ...]]:
    """The good rows as typed values, by Python's csv."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        records = csv.reader(file)
        next(records)
        return [
            (int(r[0]), r[1], r[2].replace("T", " ").rstrip("Z"), r[3], r[4], r[5], r[6])
            for number, r in enumerate(records, 1)
            if number not in bad
        ]


def check(path: Path, target: str) -> None:
    folder = path.parent
    truth = json.loads((folder / "truth.json").read_text())
    expected = [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]
    rejects = query(
        target, "SELECT seq + 1, line, byte, reason, raw, raw_bytes, length FROM _headway_rejects ORDER BY seq"
    )
    names = {"duplicate_key": "duplicate_id"}
    assert [(row, line, byte, names.get(reason, reason)) for row, line, byte, reason, *_ in rejects] == [
        (r["row"], r["line"], r["byte"], r["reason"]) for r in expected
    ]
    data = path.read_bytes()
    for _, _, byte, _, raw, raw_bytes, length in rejects:
        record = data[byte : byte + length]
        assert (raw_bytes or raw.encode()) == record
        assert data[byte + length : byte + length + 1] in (b"\n", b"\r")

    ledger = query(target, "SELECT id, account, CAST(ts AS VARCHAR), CAST(amount AS VARCHAR), currency,"
                           " CAST(balance AS VARCHAR), description FROM ledger ORDER BY " + in_file_order(target, "id"))  # fmt: skip
    good = expected_ledger(path, {r["row"] for r in expected})
    assert len(good) == truth["good"]
    assert ledger == good, "every row, in file order"

    with (folder / "balances.csv").open(newline="") as file:
        right = {row["account"]: Decimal(row["balance"]) for row in csv.DictReader(file)}
    found = query(target, "SELECT account, CAST(balance AS VARCHAR) FROM balances")
    assert {account: Decimal(balance) for account, balance in found} == right
    assert len(found) == truth["accounts_touched"]


def imported(path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTOMERS", str(path.with_name("customers.csv")))
    result = import_file(
        path,
        target,
        process=f"{EXAMPLES / 'transactions.py'}:post",
        tables=EXAMPLES / "transactions.toml",
        workers=2,
    )
    truth = json.loads(path.with_name("truth.json").read_text())
    assert (result.read, result.written, result.rejected) == (truth["rows"], truth["good"], truth["rejects"])
    assert result.read == result.written + result.rejected + result.skipped + result.filtered
    assert result.tables == {"ledger": truth["good"], "balances": truth["accounts_touched"]}
    assert result.upserts == {"balances": truth["good"]}
    assert result.report.items.read == truth["rows"]
    assert result.report.items.written == truth["good"]
    assert result.report.complete


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize("how", [(), ("--crlf", "--bom"), ("--rich", "0.9", "--accounts", "50")])
def test_twenty_thousand_rows_end_as_the_generator_says(
    target: str, how: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = generated(tmp_path, 20_000, *how)
    imported(path, target, monkeypatch)
    check(path, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_two_hundred_thousand_rows_end_as_the_generator_says(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = generated(tmp_path, 200_000)
    imported(path, target, monkeypatch)
    check(path, target)


def test_the_report_of_an_import_names_its_bottleneck_in_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("n,text\n" + "".join(f"{n},{'x' * 40}\n" for n in range(60_000)))
    report = import_file(path, tmp_path / "bank.duckdb", workers=1).report
    neck, stages = report.bottleneck, {stage["name"]: stage for stage in report.to_dict()["stages"]}
    judged = judge(list(stages.values()), report.source, report.reorder, report.figures()["model"], report.rate)
    assert (neck["stage"], neck["ceiling"], neck["because"]) == (judged["stage"], judged["ceiling"], judged["because"])
    assert all(stage["service"]["mean"] < 0.001 for stage in stages.values())  # a row's, not a range's
    assert neck["ceiling"] > 1000
