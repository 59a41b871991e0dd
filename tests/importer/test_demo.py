"""The demo imports its file, and its check finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli.demo import _check
from headway.cli.demo_data import write_bookings
from headway.cli.main import main
from support.importing import query

TAMPERED = [
    ("UPDATE ledger SET note = 'other' WHERE entry = 7", "the ledger's rows are not those of the file"),
    ("DELETE FROM ledger WHERE entry = 7", "the ledger has"),
    ("UPDATE balances SET balance = balance + 0.01 WHERE account = (SELECT min(account) FROM balances)", "balance of account"),
    ("UPDATE _headway_rejects SET byte = byte + 1 WHERE seq = (SELECT max(seq) FROM _headway_rejects)", "reject of row"),
]  # fmt: skip


def test_the_demo_generates_imports_checks_and_notices_every_kind_of_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made"
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--rows", "5000", "--dir", str(folder)])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    assert "every one is right" in out
    assert str(folder / "bank.duckdb") in out
    *_, answers = write_bookings(tmp_path / "again.csv", 5000)
    assert (tmp_path / "again.csv").read_bytes() == (folder / "bookings.csv").read_bytes()
    bank = folder / "bank.duckdb"
    assert list(_check(bank, answers)) == []
    for sql, message in TAMPERED:
        query(bank, sql)
        assert any(message in what for what in _check(bank, answers)), sql
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--rows", "5000", "--dir", str(folder)])
    assert ended.value.code == 2
    assert "is there already" in capsys.readouterr().err
