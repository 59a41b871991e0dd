"""R25: CSV as it really comes, into every database: spelled in many ways, with bad rows and conflicting keys."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from support.importing import query
from support.targets import TARGETS

LONG = "m" * 1_000_000
ROWS = [
    ("1", "plain"),
    ("2", 'said "hi"; a, b\tc'),
    ("3", "first\nsecond\r\nthird"),
    ("4", "naïve façade"),
    ("5", LONG),
]
SPELLED = [
    # encoding, what the command is told of it, packed, delimiter, header
    ("utf-8", None, False, ",", True),
    ("utf-8-sig", None, True, ";", True),
    ("latin-1", "latin-1", False, "\t", False),
    ("utf-16", None, True, "\t", True),
    ("utf-16-le", "utf-16-le", False, ",", False),
    ("latin-1", "latin-1", True, ";", True),
]
BAD = [
    (b"10,short", "too_few_fields"),
    (b"11,2.5,too,long", "too_many_fields"),
    (b"x,2.5,not a number", "bad_int"),
    (b"12,1.005,a digit too many", "bad_decimal"),
    (b"13,2.5,\xff\xfe", "bad_encoding"),
]
NUL = b"14,2.5,a\x00b"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, dict[str, Any], str]:
        with pytest.raises(SystemExit) as ended:
            main(["import", *map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else {}, err

    return run


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize(("encoding", "told", "packed", "delimiter", "header"), SPELLED)
def test_the_same_rows_however_they_are_spelled(
    command: Any, target: str, encoding: str, told: str | None, packed: bool, delimiter: str, header: bool
) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(([("id", "note")] if header else []) + ROWS)
    data = text.getvalue().encode(encoding)
    name = "a.csv.gz" if packed else "a.csv"
    Path(name).write_bytes(gzip.compress(data) if packed else data)
    options = ["--encoding", told] if told else []
    options += [] if header else ["--no-header"]
    options += ["--delimiter", delimiter] if delimiter != "," else []
    status, report, err = command(name, "--to", target, "--table", "notes", "--column", "*=text", *options)
    assert status == 0, err
    assert (report["read"], report["written"], report["rejected"]) == (5, 5, 0)
    assert query(target, "SELECT * FROM notes ORDER BY 1") == ROWS


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_bad_rows_are_set_aside_with_their_place_and_text_and_their_neighbours_are_there(
    command: Any, target: str
) -> None:
    lines, bad, good = [b"id,amount,note"], [], []
    for number, (line, reason) in enumerate([*BAD, (NUL, "bad_text")] * 3):
        lines.append(b'%d,1.25,"two\nlines"' % (100 + number))
        good.append(100 + number)
        if line != NUL or "://" in target:  # only PostgreSQL cannot store a NUL
            bad.append((len(lines) + number + 2, sum(map(len, lines)) + len(lines), reason, line))
        elif number < len(BAD) + 1:
            good.append(14)
            line = NUL
        else:
            line = b"%d,2.5,a\x00b" % (1000 + number)
            good.append(1000 + number)
        lines.append(line)
    Path("a.csv").write_bytes(b"\n".join(lines) + b"\n")
    status, report, err = command(
        "a.csv", "--to", target, "--column", "id=int", "--column", "amount=decimal(10,2)", "--column", "note=text",
        "--key", "id", "--rejects", "bad.jsonl",
    )  # fmt: skip
    assert status == 0, err
    assert report["read"] == report["written"] + report["rejected"] + report["skipped"] + report["filtered"] == 36
    assert report["rejected"] == len(bad)
    assert report["seconds"] > 0
    assert report["rate"] > 0
    assert [n for (n,) in query(target, "SELECT id FROM a ORDER BY id")] == sorted(good)
    found = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert [(row["line"], row["byte"], row["reason"]) for row in found] == [entry[:3] for entry in bad]
    data = Path("a.csv").read_bytes()
    for row, (_, byte, _, line) in zip(found, bad, strict=True):
        assert data[byte : byte + row["length"]] == line
        assert row["raw"] == line.decode("utf-8", "backslashreplace") or row["raw_bytes"] is not None
    limited, _, err = command("a.csv", "--to", target, "--job", "limited", "--table", "b", "--max-rejects", "4")
    assert limited == 3, err


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_conflicts_go_as_they_are_told_to_and_are_counted(command: Any, target: str) -> None:
    Path("old.csv").write_text("id,note\n1,old\n2,old\n")
    Path("new.csv").write_text("id,note\n2,new\n3,new\n3,later\n4,\n")
    note = ["--column", "id=int", "--column", "note=text", "--key", "id"]
    ends = {  # rows; written, rejected, skipped
        "fail": ([(1, "old"), (2, "old"), (3, "new"), (4, "")], (2, 2, 0)),
        "ignore": ([(1, "old"), (2, "old"), (3, "new"), (4, "")], (2, 0, 2)),
        "upsert": ([(1, "old"), (2, "new"), (3, "later"), (4, "")], (4, 0, 0)),
        "replace": ([(2, "new"), (3, "new"), (4, "")], (3, 1, 0)),
    }
    for mode, (rows, counts) in ends.items():
        into = ["--to", target, "--table", f"t_{mode}", *note]
        assert command("old.csv", *into, "--job", f"old {mode}")[0] == 0
        ended, report, err = command("new.csv", *into, "--job", f"new {mode}", "--mode", mode)
        assert ended == 0, (mode, err)
        assert query(target, f"SELECT id, note FROM t_{mode} ORDER BY id") == rows
        assert report["read"] == 4
        assert (report["written"], report["rejected"], report["skipped"]) == counts, mode
    # what another rule refuses is no conflict of the key: "ignore" hides none of it
    Path("bad.csv").write_text("id,note\n2,again\nx,no number\n")
    _, report, _ = command("bad.csv", "--to", target, "--table", "t_ignore", *note, "--mode", "ignore")
    assert (report["skipped"], report["rejected"]) == (1, 1)


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_the_last_row_of_a_key_wins_with_four_workers(command: Any, target: str) -> None:
    draw, last = random.Random(25), dict[int, int]()
    with Path("a.csv").open("w") as file:
        file.write("account,balance\n")
        for number in range(150_000):
            account = int(draw.paretovariate(0.5)) % 5000
            last[account] = number
            file.write(f"{account},{number}\n")
    status, report, err = command(
        "a.csv", "--to", target, "--table", "balances", "--column", "account=int", "--column", "balance=int",
        "--key", "account", "--mode", "upsert", "--workers", "4",
    )  # fmt: skip
    assert status == 0, err
    assert report["written"] == 150_000
    assert dict(query(target, "SELECT account, balance FROM balances")) == last
