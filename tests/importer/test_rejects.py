"""Rejects: shown, exported, and tried again from their raw text, on every target."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline, Report
from headway.cli.main import main
from headway.importer.job import ImportJob
from support.importing import query
from support.targets import TARGETS

RULES = """
from headway import DROP, Reject, rows
FAULTS = {FAULTS}
def f(row):
    if row.kind in FAULTS:
        raise Reject("bad_" + row.kind, row.text)
    if row.kind == "drop":
        return DROP
    if row.kind == "two":
        return rows(a=[(row.id, row.text), (str(1000 + int(row.id)), row.text)], b=(row.kind, row.id))
    return rows(a=(row.id, row.text), b=(row.kind, row.id))
"""
TABLES = """
[tables.a]
columns = { id = "int", text = "text" }
key = ["id"]
[tables.b]
columns = { kind = "text", id = "int" }
key = ["kind"]
mode = "upsert"
"""
LINES = [
    "id,kind,text",
    "1,good,x",
    '2,late,"a\nb"',
    "3,drop,y",
    "4,late,ä,too many",
    "5,two,z",
    "x,late,no number",
    "1,late,a key that stands",
    "8,never,w",
    "9,later,v",
    "10,last,",
]


def _run_inline(pipeline: Pipeline[Any], stopping: object) -> Report:
    return pipeline.run(mode="inline")


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def rules(*faults: str) -> None:
    """Write the row function; it is loaded anew under the same name."""
    Path("rules.py").write_text(RULES.replace("{FAULTS}", repr(faults)))


def imported(target: str, **options: Any) -> Any:
    Path("source.csv").write_bytes("\n".join(LINES).encode() + b"\n11,good,caf\xe9\n")
    Path("tables.toml").write_text(TABLES)
    rules("late", "never")
    given = {"process": "rules.py:f", "tables": "tables.toml", "job": "mine", "workers": 1} | options
    return ImportJob("source.csv", target, **given).run()


def stored(target: str) -> list[tuple[Any, ...]]:
    columns = "seq, attempt, line, stage, reason"
    return query(target, f"SELECT {columns} FROM _headway_rejects ORDER BY seq")


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_rows_that_pass_are_written_and_leave_the_table_and_the_others_stay_with_a_higher_attempt(
    command: Any, target: str
) -> None:
    result = imported(target)
    assert (result.read, result.written, result.rejected, result.filtered) == (11, 4, 6, 1)
    assert stored(target) == [
        (1, 1, 3, "process", "bad_late"),
        (3, 1, 6, "parse", "too_many_fields"),
        (5, 1, 8, "process", "bad_late"),
        (6, 1, 9, "process", "bad_late"),
        (7, 1, 10, "process", "bad_never"),
        (10, 1, 13, "parse", "bad_encoding"),
    ]
    Path("source.csv").unlink()  # retry never reads it
    rules("never")
    status, out, err = command("rejects", "retry", target, "--job", "mine")
    assert status == 0, err
    assert "job mine: tried 6 = written 1 + rejected 5 + skipped 0 + filtered 0" in out
    assert "the rows that were retried count as the latest" in err
    assert stored(target) == [
        (3, 2, 6, "parse", "too_many_fields"),
        (5, 2, 8, "convert", "bad_int"),
        (6, 2, 9, "write", "duplicate_key"),
        (7, 2, 10, "process", "bad_never"),
        (10, 2, 13, "parse", "bad_encoding"),
    ]
    assert (2, "a\nb") in query(target, "SELECT id, text FROM a")
    assert query(target, "SELECT id FROM b WHERE kind = 'late'") == [(2,)]
    assert counts(target) == {"read": 11, "written": 5, "rejected": 5, "skipped": 0, "filtered": 1}

    Path("rules.py").write_text(
        "from headway import DROP, rows\n"
        "def f(row):\n    return DROP if row.kind == 'never' else rows(a=(7, row.text))\n"
    )
    status, out, err = command("rejects", "retry", target, "--job", "mine", "--json")
    assert status == 0, err
    assert json.loads(out)["jobs"] == [
        {
            "job": "mine", "tried": 5, "written": 1, "filtered": 1, "skipped": 0, "rejected": 3,
            "reasons": {"too_many_fields": 1, "duplicate_key": 1, "bad_encoding": 1},
        }
    ]  # fmt: skip
    assert [(seq, attempt) for seq, attempt, *_ in stored(target)] == [(3, 3), (6, 3), (10, 3)]
    assert query(target, "SELECT text FROM a WHERE id = 7") == [("no number",)]
    assert counts(target) == {"read": 11, "written": 6, "rejected": 3, "skipped": 0, "filtered": 2}


def counts(target: str) -> Any:
    return json.loads(query(target, "SELECT counts FROM _headway_jobs")[0][0])


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_job_with_a_schema_and_no_function_is_retried_by_its_rules(command: Any, target: str) -> None:
    Path("t.csv").write_text("id,amount,day\n1,1.50,2024-01-01\n1,2.50,2024-01-02\n2,-1,2024-01-01\n", encoding="utf-8")
    schema = {"columns": {"amount": {"type": "decimal(9,2)", "min": 0}, "day": "date"}}
    ImportJob("t.csv", target, schema=schema, key="id", mode="fail", workers=1).run()
    assert [row[3:] for row in stored(target)] == [("write", "duplicate_key"), ("convert", "below_min")]
    query(target, "DELETE FROM t")
    status, out, err = command("rejects", "retry", target)
    assert status == 0, err
    assert "tried 2 = written 1 + rejected 1" in out
    assert query(target, "SELECT id, CAST(amount AS VARCHAR), CAST(day AS VARCHAR) FROM t") == [
        (1, "2.50", "2024-01-02")
    ]
    assert [row[:2] for row in stored(target)] == [(2, 2)]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_what_the_tables_constraints_refuse_is_found_row_by_row(command: Any, target: str) -> None:
    query(target, "CREATE TABLE u (id TEXT, kind TEXT, text TEXT CHECK (text <> 'a key that stands'))")
    Path("rules.py").write_text("def f(row):\n    return row if row.kind != 'late' else 1 / 0\n")
    Path("u.csv").write_text("\n".join(LINES), encoding="utf-8")
    ImportJob("u.csv", target, process="rules.py:f", job="checked", workers=1).run()
    Path("rules.py").write_text("def f(row):\n    return row\n")
    status, out, err = command("rejects", "retry", target, "--job", "checked")
    assert status == 0, err
    assert "tried 4 = written 2 + rejected 2" in out
    assert [row[4] for row in stored(target)] == ["too_many_fields", "constraint"]
    assert [row[0] for row in query(target, "SELECT id FROM u")][-2:] == ["2", "x"]


def test_a_function_that_cannot_be_found_again_is_to_be_named(command: Any) -> None:
    Path("t.csv").write_text("id\n1\n")
    ImportJob("t.csv", "t.db", process=lambda row: 1 / 0, workers=1).run()
    status, _, err = command("rejects", "retry", "t.db")
    assert status == 2
    assert "say with --process MODULE:FUNCTION what to use instead" in err


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_of_other_formats_are_read_again_from_what_was_noted_of_them(command: Any, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "jsonl":
        Path("s.jsonl").write_text('{"id": 1, "m": 1.50}\n{"id": 2, "m": 2.25}\n')
    else:
        pq.write_table(pa.table({"id": [1, 2], "m": [Decimal("1.50"), Decimal("2.25")]}), "s.parquet")
    tables = {"tables": {"t": {"columns": {"id": "int", "m": "decimal(9,2)"}}}}
    Path("rules.py").write_text("def f(row):\n    return (row.id, row.m) if row.id == 1 else 1 / 0\n")
    ImportJob(f"s.{kind}", "t.db", process="rules.py:f", tables=tables, workers=1).run()
    Path(f"s.{kind}").unlink()
    Path("rules.py").write_text("def f(row):\n    return (row.id, row.m * 2)\n")
    status, out, err = command("rejects", "retry", "t.db")
    assert status == 0, err
    assert "written 1 + rejected 0" in out
    assert query("t.db", "SELECT id, m FROM t") == [(1, "1.50"), (2, "4.50")]


def test_what_json_cannot_hold_of_a_parquet_file_is_not_taken_for_another_value(command: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "f": pa.array([0.5, float("nan"), float("-inf"), None, 1.5, 2.5, 3.5]),
        "b": pa.array([None, None, None, None, b"\xff", None, None]),
        "d": pa.array([None, None, None, None, None, timedelta(seconds=5), None]),
        "t": pa.array([0, 1, 2, 3, 4, 5, 10**18], pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), "s.parquet")
    ImportJob("s.parquet", "t.db", table="t", workers=1).run()
    shown = [
        (row["seq"], row["reason"], row["raw"][:9])
        for row in map(json.loads, command("rejects", "export", "t.db")[1].splitlines())
    ]
    assert shown == [
        (1, "bad_float", '{"f":nan,'), (2, "bad_float", '{"f":-inf'), (4, "bad_text", '{"f":1.5,'),
        (5, "bad_text", '{"f":2.5,'), (6, "bad_timestamp", '{"f":3.5,'),
    ]  # fmt: skip
    status, out, err = command("rejects", "retry", "t.db")
    assert status == 0, err
    assert "tried 5 = written 0 + rejected 5" in out
    assert query("t.db", "SELECT f FROM t") == [(0.5,), (None,)]


def test_a_list_that_is_no_json_is_a_reject_of_a_json_column_and_text_of_a_text_column(command: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = [[1.5, None], [float("nan")], None, [float("-inf"), 2.0]]
    table = pa.table({"id": pa.array(range(4)), "l": pa.array(lists), "m": pa.array([{"x": each} for each in lists])})
    pq.write_table(table, "s.parquet")
    ImportJob("s.parquet", "t.db", table="t", workers=1, column={"l": "json", "m": "text"}).run()
    rejects = [json.loads(line) for line in command("rejects", "export", "t.db")[1].splitlines()]
    assert [(row["seq"], row["reason"]) for row in rejects] == [(1, "bad_json"), (3, "bad_json")]
    assert json.loads(rejects[1]["raw"])["l"] == "[-Infinity, 2.0]"
    assert query("t.db", "SELECT id, l, m FROM t") == [(0, "[1.5,null]", '{"x":[1.5,null]}'), (2, None, '{"x":null}')]
    ImportJob("s.parquet", "t.db", table="u", workers=1, column={"l": "text", "m": "text"}).run()
    assert query("t.db", "SELECT l FROM u") == [("[1.5,null]",), ("[NaN]",), (None,), ("[-Infinity, 2.0]",)]
    assert "written 0 + rejected 2" in command("rejects", "retry", "t.db")[1]


def test_more_rejects_than_one_transaction_takes_are_each_tried_once(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.importer.retry.AT_ONCE", 3)
    Path("t.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(10)))
    Path("rules.py").write_text("def f(row):\n    1 / 0\n")
    ImportJob("t.csv", "t.db", process="rules.py:f", workers=1).run()
    Path("rules.py").write_text("def f(row):\n    return row if int(row.id) % 3 else 1 / 0\n")
    status, out, err = command("rejects", "retry", "t.db")
    assert status == 0, err
    assert "tried 10 = written 6 + rejected 4" in out
    assert [row[:2] for row in stored("t.db")] == [(0, 2), (3, 2), (6, 2), (9, 2)]


def test_a_retry_that_fails_in_the_database_leaves_all_as_it_was(command: Any) -> None:
    imported("t.db")
    before = stored("t.db"), query("t.db", "SELECT * FROM a"), counts("t.db")
    rules()
    connection = sqlite3.connect("t.db")
    connection.execute(
        "CREATE TRIGGER stop BEFORE UPDATE ON _headway_jobs BEGIN SELECT RAISE(ABORT, 'the last statement'); END"
    )
    connection.commit()
    connection.close()
    status, _, err = command("rejects", "retry", "t.db")
    assert status == 1
    assert "the last statement" in err
    assert (stored("t.db"), query("t.db", "SELECT * FROM a"), counts("t.db")) == before


LOOKUP = """
import headway
@headway.lookup(key="kind")
async def value(key):
    if key in {FAULTS}:
        raise OSError(key)
    return key.upper()
def f(row, *, value):
    return (row.id, value)
"""


def test_keys_are_looked_up_again(command: Any) -> None:
    Path("t.csv").write_text("id,kind\n1,a\n2,b\n3,b\n")
    tables = {"tables": {"t": {"columns": {"id": "int", "kind": "text"}}}}
    Path("rules.py").write_text(LOOKUP.replace("{FAULTS}", "['b']"))
    import headway

    headway.import_file("t.csv", "t.db", process="rules.py:f", tables=tables)
    assert [row[3:] for row in stored("t.db")] == [("lookup", "OSError")] * 2
    Path("rules.py").write_text(LOOKUP.replace("{FAULTS}", "[]"))
    status, _, err = command("rejects", "retry", "t.db")
    assert status == 0, err
    assert query("t.db", "SELECT id, kind FROM t") == [(1, "A"), (2, "B"), (3, "B")]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_rejects_are_shown_by_reason_with_the_first_of_them(command: Any, target: str) -> None:
    imported(target)
    status, out, _ = command("rejects", "show", target, "--limit", "2")
    assert status == 0
    where = Path("source.csv").resolve()
    assert out.splitlines() == [
        "job mine: 6 rejects",
        "  3 bad_late (process)",
        "  1 too_many_fields (parse)",
        "  1 bad_never (process)",
        "  1 bad_encoding (parse)",
        f"{where}, line 3, byte 22: bad_late",
        "    a\\nb",
        '    | 2,late,"a\\nb"',
        f"{where}, line 6, byte 44: too_many_fields",
        "    4 fields, expected 3",
        "    | 4,late,ä,too many",
        "and 4 more: headway rejects export, or --limit 6",
    ]
    found = json.loads(command("rejects", "show", target, "--json", "--job", "mine")[1])
    assert (found["jobs"][0]["rejects"], len(found["jobs"][0]["rows"])) == (6, 6)
    assert found["jobs"][0]["reasons"][0] == {"stage": "process", "reason": "bad_late", "rows": 3, "first": 1}


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_rejects_are_exported_as_the_import_writes_them(command: Any, target: str) -> None:
    imported(target, rejects="by-import.jsonl")
    status, out, err = command("rejects", "export", target)
    assert (status, err) == (0, "6 rejects written\n")
    assert out == Path("by-import.jsonl").read_text()
    assert command("rejects", "export", target, "--output", "out.jsonl")[0] == 0
    assert Path("out.jsonl").read_text() == out


def test_a_target_without_rejects_says_so(command: Any) -> None:
    Path("t.csv").write_text("id\n1\n")
    ImportJob("t.csv", "t.db", workers=1).run()
    assert command("rejects", "show", "t.db")[1] == "no rejects in t.db\n"
    assert command("rejects", "retry", "t.db")[1] == "no rejects in t.db\n"
    assert command("rejects", "export", "t.db")[:2] == (0, "")
    assert json.loads(command("rejects", "show", "t.db", "--json")[1]) == {"jobs": []}


WRONG = [
    (["show", "nowhere.db"], "there is no such database"),
    (["show", "t.xls"], "the ending says which database it is"),
    (["show", "t.db", "--job", "other"], "there is no job 'other' in t.db; its jobs: mine"),
    (["retry", "t.db", "--process", "gone.py:f"], "there is no such file"),
    (["retry", "t.db", "--process", "rules.py:g"], "it has f"),
    (["export", "t.db", "--output", "no/folder/x"], "No such file or directory"),
    (["export", "t.db", "--output", "t.db"], "--output t.db is the target"),
    (["export", "t.db", "--output", "linked"], "--output linked is the target"),
    (["retry"], "Missing argument 'TARGET'"),
    (["forget", "t.db"], "No such command"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_mistake_is_a_usage_error_that_says_what_to_do(command: Any, arguments: list[str], message: str) -> None:
    imported("t.db")
    Path("linked").hardlink_to("t.db")
    status, _, err = command("rejects", *arguments)
    assert status == 2, err
    assert message in err
    assert "Traceback" not in err
    assert len(stored("t.db")) == 6
    assert not Path("nowhere.db").exists()


@pytest.mark.parametrize("words", [["rejects"], ["rejects", "show"], ["rejects", "export"], ["rejects", "retry"]])
def test_help_has_an_example(command: Any, words: list[str]) -> None:
    status, out, _ = command(*words, "--help")
    assert status == 0
    assert "Example: headway rejects " in out
