"""A dry run tells what would be done, and touches no target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway import import_file
from headway.cli.main import main
from headway.importer.preview import PLAIN_WOULD_DO, _estimate
from headway.importer.rowstep import RowJob
from headway.io.columns import Int
from headway.io.table import Column, Table


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("id,amount,note\n1,1.50,x\n2,2.25,\n3,7,y\n")

    def run(*arguments: object) -> tuple[int, str, str]:
        before = sorted(path.name for path in Path().iterdir() if path.name != "__pycache__")
        with pytest.raises(SystemExit) as ended:
            main(["import", *map(str, arguments), "--dry-run"])
        assert sorted(path.name for path in Path().iterdir() if path.name != "__pycache__") == before, (
            "a dry run made a file"
        )
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_it_shows_tables_columns_first_rows_plan_and_time(command: Any) -> None:
    status, out, err = command("a.csv", "--to", "a.duckdb", "--key", "id", "--job", "mine", "--workers", "3")
    assert status == 0, err
    *lines, last = out.splitlines()
    assert last.startswith("about 3 rows, about ")
    assert "one plain process would do as well" in last
    assert lines == [
        "dry run: a.csv -> a.duckdb; job mine; nothing was written",
        "",
        "table a(id int, amount decimal(18,2), note text); key id; mode fail, keep first",
        "",
        "columns, inferred from the first 3 rows (a file with this is a --schema):",
        "    [columns]",
        '    "id" = "int"',
        '    "amount" = "decimal(18,2)"',
        '    "note" = "text"',
        "",
        "first rows:",
        "    a: id=1, amount=1.50, note=x",
        "    a: id=2, amount=2.25, note=",
        "    a: id=3, amount=7, note=y",
        "",
        "plan:",
        "    parse: 3 x process",
        "    write: 1 x thread",
        "",
    ]


def test_the_schema_that_it_shows_is_read_by_schema(command: Any) -> None:
    schema = '[columns]\nid = {type = "int", required = true, min = 1}\nnote = {pattern = "[a-z]\\"*", nulls = ["-"]}\n'
    Path("given.toml").write_text(schema)
    shown = json.loads(command("a.csv", "--to", "a.db", "--schema", "given.toml", "--json")[1])
    Path("shown.toml").write_text(shown["schema"])
    again = json.loads(command("a.csv", "--to", "a.db", "--schema", "shown.toml", "--json")[1])
    assert list(map(said, again["columns"])) == list(map(said, shown["columns"]))
    assert again["schema"] == shown["schema"]


def said(column: dict[str, Any]) -> dict[str, Any]:
    """What a schema file says of a column."""
    return {name: value for name, value in column.items() if name not in ("form", "seen", "settled")}


def test_the_row_function_is_tried_on_the_first_rows(command: Any) -> None:
    Path("rules.py").write_text(
        "from headway import rows, DROP\ndef f(row):\n    print('said')\n    if row.id == '2':\n        return DROP\n"
        "    return rows(t={'n': int(row.id) * 10}) if row.id == '1' else 1 / 0\n"
    )
    Path("t.toml").write_text('[tables.t]\ncolumns = {n = "int"}\n')
    status, out, err = command("a.csv", "--to", "a.db", "--process", "rules.py:f", "--tables", "t.toml", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["rows"] == [{"record": 0, "tables": {"t": [{"n": 10}]}}]
    assert found["rejects"] == [
        {"record": 2, "stage": "process", "reason": "ZeroDivisionError", "message": "division by zero"}
    ]
    assert [stage["name"] for stage in found["plan"]["stages"]] == ["parse", "write"]
    assert found["estimate"]["rows"] == 3
    assert found["inferred_from"] == 0


def test_keys_of_the_rows_that_are_shown_are_looked_up(command: Any) -> None:
    Path("rules.py").write_text(
        "import headway\n@headway.lookup(key='id')\nasync def double(key):\n    return int(key) * 2\n"
        "def f(row, *, double):\n    return {'id': double}\n"
    )
    Path("t.toml").write_text('[tables.t]\ncolumns = {id = "int"}\n')
    status, out, err = command("a.csv", "--to", "a.db", "--process", "rules.py:f", "--tables", "t.toml")
    assert status == 0, err
    assert "    t: id=2\n    t: id=4\n    t: id=6\n" in out
    assert "    lookup: 8 x task\n" in out
    assert "about 3 rows; how long they take cannot be told before" in out


def test_it_ends_with_a_usage_error_as_the_import_would(command: Any) -> None:
    Path("rules.py").write_text("def setup():\n    return {}['list']\ndef f(row, state):\n    return row\n")
    status, _, err = command("a.csv", "--to", "a.db", "--process", "rules.py:f")
    assert (status, "setup() raised KeyError: 'list' (" in err) == (2, True), err
    status, _, err = command("a.csv", "--to", "a.db", "--key", "z")
    assert (status, "key column 'z' is not one of id, amount, note" in err) == (2, True), err


def test_a_target_that_is_there_is_not_opened(command: Any) -> None:
    Path("a.db").write_bytes(b"no database at all")
    assert command("a.csv", "--to", "a.db")[0] == 0
    assert Path("a.db").read_bytes() == b"no database at all"


def test_the_library_gives_the_same(command: Any) -> None:
    result = import_file("a.csv", "a.db", dry_run=True)
    assert result.preview is not None
    assert result.preview.estimate.rows == 3
    assert (result.read, Path("a.db").exists()) == (0, False)


@pytest.mark.parametrize(("rows", "each", "would_do"), [(1_000, 1e-5, True), (10_000_000, 1e-5, False)])
def test_one_plain_process_would_do_where_others_hardly_help(
    rows: int, each: float, would_do: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    job = RowJob(("id",), (Table("t", (Column("id", Int()),)),), "t", None, None, "sqlite")
    found = _estimate(rows, each, job, workers=2)
    assert found.seconds is not None
    assert found.plain_seconds is not None
    assert found.plain_would_do == would_do == (found.plain_seconds <= PLAIN_WOULD_DO * found.seconds)
