"""The command as a user meets it: messages, statuses, counts, and what stands in the target afterwards."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from support.importing import query
from support.targets import TARGETS, in_file_order

Run = tuple[int, str, str]


@pytest.fixture
def headway(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Run:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def write(path: str, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    Path(path).write_bytes(data)
    return Path(path)


@pytest.mark.parametrize(
    "target", ["bank.duckdb", "bank.db", "bank.sqlite", "duckdb:///bank.duckdb", "sqlite:///bank.db"]
)
def test_a_file_becomes_a_table_named_after_it_with_types_that_fit_its_values(headway: Any, target: str) -> None:
    write("people.csv", 'id,na"me,ID,\n1,Ann,x,y\n\n2,"Bob, jr",,\n3,short\n')
    status, out, err = headway("import", "people.csv", "--to", target)
    assert status == 0, err
    assert "read 4 = written 2 + rejected 1 + skipped 1 + filtered 0" in out
    assert "warning: 25.0% of the rows were rejected" in err
    opened = Path(target.rpartition("///")[2])
    assert query(opened, 'SELECT id, "na""me", "ID_2", column_4 FROM people') == [
        (1, "Ann", "x", "y"), (2, "Bob, jr", "", ""),
    ]  # fmt: skip
    assert query(opened, "SELECT seq, line, byte, length, stage, reason, raw, raw_bytes FROM _headway_rejects") == [
        (2, 5, 38, 7, "parse", "too_few_fields", "3,short", None)
    ]


def test_json_has_exactly_the_promised_shape(headway: Any) -> None:
    write("a.csv", "x\n1\n2\n")
    status, out, _ = headway("import", "a.csv", "--to", "a.db", "--json", "--quiet")
    found = json.loads(out)
    assert status == 0
    assert list(found) == [
        "read", "written", "rejected", "skipped", "filtered", "resumed_at", "seconds", "rate", "tables", "report",
    ]  # fmt: skip
    assert (found["read"], found["written"], found["tables"], found["resumed_at"]) == (2, 2, {"a": 2}, None)
    assert found["report"]["items"]["read"] == 2
    assert [stage["name"] for stage in found["report"]["stages"]] == ["parse", "write"]


def test_rejects_are_written_to_a_file_with_the_columns_of_the_table(headway: Any) -> None:
    write("a.csv", b"x,y\n1,caf\xe9\n2\n3,4\n")
    assert headway("import", "a.csv", "--to", "a.db", "--rejects", "bad.jsonl", "--job", "mine")[0] == 0
    first, second = map(json.loads, Path("bad.jsonl").read_text().splitlines())
    assert list(first) == [
        "job", "attempt", "seq", "file", "line", "byte", "length", "stage", "reason", "message", "raw", "raw_bytes",
    ]  # fmt: skip
    assert (first["job"], first["attempt"], first["file"]) == ("mine", 1, str(Path("a.csv").resolve()))
    assert (first["reason"], first["raw"], first["raw_bytes"]) == ("bad_encoding", "1,caf\\xe9", "MSxjYWbp")
    assert (second["seq"], second["line"], second["byte"], second["reason"]) == (1, 3, 11, "too_few_fields")


def test_a_finished_job_changes_nothing_and_says_so_and_a_changed_file_is_refused(headway: Any) -> None:
    write("a.csv", "x\n1\n2\n")
    assert headway("import", "a.csv", "--to", "a.db")[0] == 0
    status, out, _ = headway("import", "a.csv", "--to", "a.db")
    assert status == 0
    assert "is finished already: 2 rows read, 2 written. Nothing was done." in out
    assert query(Path("a.db"), "SELECT x FROM a") == [(1,), (2,)]
    write("a.csv", "x\n1\n3\n4\n")
    status, _, err = headway("import", "a.csv", "--to", "a.db")
    assert status == 1
    assert "the file has changed since" in err
    assert "--job NAME" in err
    assert query(Path("a.db"), "SELECT x FROM a") == [(1,), (2,)]
    assert headway("import", "a.csv", "--to", "a.db", "--job", "again")[0] == 0
    assert query(Path("a.db"), "SELECT count(*) FROM a") == [(5,)]


DIFFERENT = [
    (["--delimiter", ";"], [], "with --delimiter ; (now ,)"),
    (["--encoding", "latin-1"], [], "with --encoding iso8859-1 (now utf-8)"),
    (["--no-header"], [], "with --no-header"),
    ([], ["--no-header"], "without --no-header"),
    ([], ["--process", "rules.py:f"], "without --process (now "),
    (["--process", "rules.py:f"], ["--process", "rules.py:g"], "rules.py:g)"),
    ([], ["--table", "other", "--job", "mine"], "with --table a (now other)"),
    ([], ["--key", "x"], "without --key (now x); with --mode append (now fail); without --keep (now first)"),
    (["--key", "x", "--mode", "upsert"], ["--key", "x"], "with --mode upsert (now fail)"),
    (["--tables", "one.toml"], ["--tables", "two.toml"], "with other tables (a differ)"),
    (["--column", "x=int"], ["--column", "x=text"], "with another --schema or --column (x differ)"),
    ([], ["--column", "x=text"], "without --schema"),
    (["--tables", "one.toml"], ["--table", "a"], "with --tables"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "message"), DIFFERENT)
def test_a_command_with_other_options_than_the_job_was_done_with_is_refused_and_says_how_to_go_on(
    headway: Any, before: list[str], after: list[str], message: str
) -> None:
    write("rules.py", "def f(row):\n    return row\ng = f\n")
    write("one.toml", '[tables.a]\ncolumns = {x = "text"}\n')
    write("two.toml", '[tables.a]\ncolumns = {x = "int"}\n')
    write("a.csv", "x,y\n1,2\n")
    status, _, err = headway("import", "a.csv", "--to", "a.db", "--job", "mine", *before)
    assert status == 0, err
    stood = query(Path("a.db"), "SELECT * FROM a")
    status, out, err = headway("import", "a.csv", "--to", "a.db", "--job", "mine", *after)
    assert status == 1, out
    assert message in err
    assert "--job NAME" in err
    assert query(Path("a.db"), "SELECT * FROM a") == stood


def test_a_mended_row_function_and_other_spellings_of_the_same_options_are_no_difference(headway: Any) -> None:
    write("a.csv", "x,y\n1,2\n3,4\n")
    write("rules.py", "def f(row):\n    return row if row.x == '1' else 1 / 0\n")
    first = ["import", "a.csv", "--to", "a.db", "--key", "x", "--process", "rules.py:f", "--max-rejects", "0"]
    assert headway(*first)[0] == 3
    write("rules.py", "def f(row):\n    return row.asdict()\n")
    again = ["import", "./a.csv", "--to", "sqlite:///a.db", "--key", "x", "--mode", "fail", "--process", "./rules.py:f"]
    status, _, err = headway(*again, "--delimiter", ",", "--encoding", "UTF8", "--workers", "1")
    assert status == 0, err
    assert query(Path("a.db"), "SELECT x FROM a") == [("1",), ("3",)]


def test_options_may_be_corrected_freely_while_nothing_was_committed(headway: Any) -> None:
    write("a.csv", "x\n1\n")
    write("rules.py", "def setup():\n    raise OSError('no list')\ndef f(row, state):\n    return row\n")
    assert headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f")[0] == 1
    assert headway("import", "a.csv", "--to", "a.db")[0] == 0
    assert headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f")[0] == 1
    assert query(Path("a.db"), "SELECT x FROM a") == [("1",)]


@pytest.mark.parametrize(
    ("limit", "status", "rows"), [("1", 3, 2), ("2", 0, 3), ("40%", 0, 3), ("39%", 3, 3), ("0", 3, 1)]
)
def test_the_run_stops_at_one_reject_too_many_with_what_lies_before(
    headway: Any, limit: str, status: int, rows: int
) -> None:
    write("a.csv", "x,y\n1,1\n2\n3,3\n4\n5,5\n")
    found, _, err = headway("import", "a.csv", "--to", "a.db", "--max-rejects", limit)
    assert found == status, err
    assert query(Path("a.db"), "SELECT count(*) FROM a") == [(rows,)]
    if status == 3 and "%" not in limit:
        assert "stopped at line" in err
        assert "higher --max-rejects" in err
        assert headway("import", "a.csv", "--to", "a.db", "--max-rejects", "9")[0] == 0
        assert query(Path("a.db"), "SELECT x FROM a") == [(1,), (3,), (5,)]


WRONG = [
    (["nowhere.csv", "--to", "a.db"], "there is no such file"),
    (["a.csv", "--to", "a.xls"], "the ending says which database it is"),
    (["a.csv", "--to", "postgresql:///y?host=/no/folder"], "target postgresql:///y: "),
    (["a.csv", "--to", "mysql:///x"], "there is no mysql://"),
    (["a.csv", "--to", "no/folder/a.db"], "there is no folder"),
    (["a.csv"], "--to"),
    (["a.csv", "--to", "a.db", "--key", "z"], "key column 'z' is not one of x, y"),
    (["a.csv", "--to", "a.db", "--mode", "upsert"], "needs --key"),
    (["a.csv", "--to", "a.db", "--key", "x", "--mode", "upsert", "--keep", "first"], "nearest is --mode fail --keep first"),
    (["a.csv", "--to", "a.db", "--key", "x", "--mode", "ignore", "--keep", "last"], "nearest is --mode upsert --keep last"),
    (["a.csv", "--to", "a.db", "--keep", "last"], "nearest is --mode upsert --keep last with --key"),
    (["a.csv", "--to", "a.db", "--key", "x", "--mode", "merge"], "there are append, fail, ignore, replace, upsert"),
    (["a.csv", "--to", "a.db", "--key", "x", "--keep", "best"], "there are first and last"),
    (["a.csv", "--to", "a.db", "--workers", "0"], "from 1, or auto"),
    (["a.csv", "--to", "a.db", "--max-rejects", "many"], "0.5%"),
    (["a.csv", "--to", "a.db", "--max-rejects", "200%"], "0.5%"),
    (["a.csv", "--to", "a.db", "--delimiter", "ab"], "one character"),
    (["a.csv", "--to", "a.db", "--encoding", "klingon"], "is not known"),
    (["a.csv", "--to", "a.db", "--process", "rules"], "MODULE:FUNCTION"),
    (["a.csv", "--to", "a.db", "--process", "no_such_module:f"], "there is no module 'no_such_module'"),
    (["a.csv", "--to", "a.db", "--process", "gone.py:f"], "there is no such file"),
    (["a.csv", "--to", "a.db", "--process", "rules.py:g"], "it has f, two"),
    (["a.csv", "--to", "a.db", "--process", "rules.py:two"], "and the module has no setup()"),
    (["a.csv", "--to", "a.db", "--process", "broken.py:f"], "cannot be imported"),
    (["a.csv", "--to", "a.db", "--process", "leaves.py:f"], "leaves.py called sys.exit('no') while it was imported"),
    (["a.csv", "--to", "a.db", "--tables", "gone.toml"], "gone.toml"),
    (["a.csv", "--to", "a.db", "--tables", "bad.toml"], "type 'money' is not known; there are int"),
    (["a.csv", "--to", "a.db", "--tables", "two.toml"], "need a row function"),
    (["a.csv", "--to", "a.db", "--tables", "two.toml", "--key", "x"], "stand in the file given by --tables"),
    (["a.csv", "--to", "a.db", "--rejects", "no/folder/r.jsonl"], "there is no folder"),
    (["a.csv", "--to", "a.db", "--rejects", "a.csv"], "--rejects a.csv is the source"),
    (["a.csv", "--to", "a.db", "--rejects", "a.db"], "--rejects a.db is the target"),
    (["a.csv", "--to", "a.db", "--rejects", "."], "--rejects . is no file"),
    (["a.csv", "--to", "a.db", "--rejects", "/dev/null"], "--rejects /dev/null is no file"),
    (["a.csv", "b.csv", "--to", "a.db"], "say with --table"),
    (["a.csv", "a.csv", "--to", "a.db", "--table", "t"], "named twice"),
    (["-", "--to", "a.db"], "say with --table"),
    (["*.txt", "--to", "a.db", "--table", "t"], "no file matches"),
    (["nowhere://x/a.csv", "--to", "a.db"], "nowhere://x/a.csv: ValueError: Protocol not known"),
    (["a.csv", "b.jsonl", "--to", "a.db", "--table", "t"], "one format at a time"),
    (["a.csv", "--to", "a.db", "--format", "jsonl", "--quote", "'"], "mean nothing in jsonl"),
    (["a.csv", "--to", "a.db", "--format", "xml"], "--format xml is not known"),
    (["a.csv", "--to", "a.db", "--schema", "s.toml"], "--schema s.toml: No such file"),
    (["a.csv", "--to", "a.db", "--column", "x"], "write NAME=TYPE"),
    (["a.csv", "--to", "a.db", "--column", "x=money"], "type 'money' is not known; there are int"),
    (["a.csv", "--to", "a.db", "--column", "z=int"], "column 'z' is not in the source, which has x, y"),
    (["a.csv", "--to", "a.db", "--ui", "--dry-run"], "--dry-run makes none"),
    (["empty.csv", "--to", "a.db"], "empty.csv is empty: there is no header"),
    (["a.csv", "--to", "a.db", "--mode", "replace", "--keep", "foo"], "--keep foo: there are first and last"),
    (["a.csv", "--to", "a.db", "--keep", "foo"], "--keep foo: there are first and last"),
    (["text.zip", "--to", "a.db"], "text.zip is a zip file"),
    (["folder", "--to", "a.db"], "is a folder; name its files: "),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_mistake_is_a_usage_error_that_says_what_to_do_and_touches_nothing(
    headway: Any, arguments: list[str], message: str
) -> None:
    write("a.csv", "x,y\n1,2\n")
    write("b.csv", "x,y\n1,2\n")
    write("empty.csv", "")
    write("text.zip", b"PK\x03\x04")
    Path("folder").mkdir()
    write("rules.py", "def f(row):\n    return row\ndef two(row, more):\n    return row\n")
    write("broken.py", "import no_such_thing\n")
    write("leaves.py", "import sys\nsys.exit('no')\n")
    write("bad.toml", '[tables.t]\ncolumns = {x = "money"}\n')
    write("two.toml", '[tables.t]\ncolumns = {x = "int"}\n[tables.u]\ncolumns = {x = "int"}\n')
    status, _, err = headway("import", *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err
    assert not Path("a.db").exists()


def test_help_shows_every_option_and_an_example(headway: Any) -> None:
    status, out, _ = headway("import", "--help")
    assert status == 0
    assert "Example: headway import transactions.csv --to bank.duckdb" in out
    for option in ("--key", "--mode", "--process", "--tables", "--max-rejects", "--rejects", "--job", "--json"):
        assert option in out


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_table_that_is_there_keeps_its_columns_and_types(headway: Any, target: str) -> None:
    write("a.csv", "y,x\none,1\ntwo,z\nthree,3\n")
    query(target, "CREATE TABLE a (x INTEGER NOT NULL, y VARCHAR, z INTEGER DEFAULT 7)")
    status, out, err = headway("import", "a.csv", "--to", target)
    assert status == 0, err
    assert "bad_int 1" in out
    assert query(target, "SELECT x, y, z FROM a") == [(1, "one", 7), (3, "three", 7)]
    write("a.csv", "y,w\none,1\n")
    status, _, err = headway("import", "a.csv", "--to", target, "--job", "second")
    assert status == 2
    assert "table a has no column 'w' as the file does; it has x, y, z" in err


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_key_of_a_table_that_is_there_must_be_unique_in_it(headway: Any, target: str) -> None:
    write("a.csv", "x,y\n1,2\n1,3\n")
    query(target, "CREATE TABLE a (x INTEGER, y INTEGER)")
    status, _, err = headway("import", "a.csv", "--to", target, "--key", "x")
    assert status == 2
    assert "create a unique index on (x) first" in err
    query(target, "CREATE UNIQUE INDEX only_one ON a (x)")
    assert headway("import", "a.csv", "--to", target, "--key", "x")[0] == 0
    assert query(target, "SELECT x, y FROM a") == [(1, 2)]
    assert query(target, "SELECT seq, stage, reason FROM _headway_rejects") == [(1, "write", "duplicate_key")]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_the_tables_own_constraints_reject_and_ignore_hides_none_of_them(headway: Any, target: str) -> None:
    query(
        target,
        "CREATE TABLE a (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL, n INTEGER UNIQUE, CHECK (n < 100))",
    )
    write("a.csv", "id,name,n\n1,a,1\n2,b,1\n3,c,500\n1,d,9\n5,e,5\n")
    status, _, err = headway("import", "a.csv", "--to", target, "--key", "id", "--mode", "ignore")
    assert status == 0, err
    assert query(target, "SELECT id, name, n FROM a ORDER BY id") == [(1, "a", 1), (5, "e", 5)]
    rejects = query(target, "SELECT seq, reason FROM _headway_rejects ORDER BY seq")
    assert rejects == [(1, "constraint"), (2, "constraint")]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize("text", ["x,y\n1,new\n", "\n\nx,y\n1,new\n", "x,y\n"])
def test_replace_empties_the_table_whatever_the_file_begins_with(headway: Any, target: str, text: str) -> None:
    write("first.csv", "x,y\n1,old\n2,old\n")
    assert headway("import", "first.csv", "--to", target, "--table", "t", "--key", "x")[0] == 0
    write("second.csv", text)
    assert headway("import", "second.csv", "--to", target, "--table", "t", "--key", "x", "--mode", "replace")[0] == 0
    assert query(target, "SELECT x, y FROM t") == ([(1, "new")] if "new" in text else [])


def test_no_header_delimiter_and_encoding(headway: Any) -> None:
    write("a.txt", "1;Zoë\n2;x\n".encode("latin-1"))
    status, _, err = headway(
        "import", "a.txt", "--to", "a.db", "--no-header", "--delimiter", ";", "--encoding", "latin-1"
    )
    assert status == 0, err
    assert query(Path("a.db"), "SELECT column_1, column_2 FROM a") == [(1, "Zoë"), (2, "x")]
    write("b.tsv", "p\tq\n1\t2\n")
    assert headway("import", "b.tsv", "--to", "a.db")[0] == 0
    assert query(Path("a.db"), "SELECT p, q FROM b") == [(1, 2)]


def test_progress_is_plain_lines_where_there_is_no_terminal_and_nothing_when_quiet(headway: Any) -> None:
    write("a.csv", "x\n" + "1\n" * 1000)
    _, _, err = headway("import", "a.csv", "--to", "a.db", "--verbose", "--job", "shown")
    assert "a.csv -> a.db (sqlite): a; job shown" in err
    assert "100%  2,002 bytes  1,000 rows" in err
    status, out, err = headway("import", "a.csv", "--to", "b.db", "--quiet")
    assert (status, out, err) == (0, "", "")


def test_a_setup_that_fails_is_a_failed_run_without_a_traceback(headway: Any) -> None:
    write("a.csv", "x\n1\n")
    write("rules.py", "def setup():\n    raise OSError('no customers.csv')\ndef f(row, customers):\n    return row\n")
    status, _, err = headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f")
    assert status == 1
    assert "no customers.csv" in err
    assert "Traceback" not in err


def test_what_a_row_function_prints_does_not_mix_with_the_json(headway: Any) -> None:
    write("a.csv", "x\n1\n2\n")
    write("rules.py", "def f(row):\n    print('row', row.x)\n    return row\n")
    child = subprocess.run(
        [sys.executable, "-m", "headway", "import", "a.csv", "--to", "a.db", "--process", "rules.py:f", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(child.stdout)["written"] == 2
    assert "row 1" in child.stderr


def test_a_row_that_ends_its_process_fails_the_run_and_its_lines_are_named(headway: Any) -> None:
    write("a.csv", "x\n1\n2\n")
    write("rules.py", "import os\ndef f(row):\n    os._exit(7) if row.x == '2' else None\n    return row\n")
    status, _, err = headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f", "--workers", "1")
    assert status == 1
    assert "a.csv, in lines 2 to 3: poison: 2 workers died of this item; the last time the worker process" in err
    assert "Range" not in err
    assert "exit code 7" in err
    assert "Traceback" not in err


def test_a_row_function_that_raises_keyboard_interrupt_fails_the_run_and_its_lines_are_named(headway: Any) -> None:
    write("a.csv", "x\n1\n2\n")
    write("rules.py", "def f(row):\n    raise KeyboardInterrupt\n")
    status, _, err = headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f")
    assert status == 1
    assert "a.csv, in lines 2 to 3: raised KeyboardInterrupt\n" in err
    assert "Range" not in err


def test_the_summary_gives_each_reason_with_its_first_line_and_message(headway: Any) -> None:
    write("a.csv", b"x,y\n0,z\n1\n2,caf\xe9\n3,a\n4,a\n")
    write(
        "rules.py",
        "def f(row):\n    if row.y == 'a':\n        raise RuntimeError(f'no account\\n{row.x}')\n    return row\n",
    )
    status, out, err = headway("import", "a.csv", "--to", "a.db", "--process", "rules.py:f")
    assert status == 0, err
    assert out.splitlines()[-4:] == [
        "rejects, in table _headway_rejects of a.db:",
        "  RuntimeError 2, first at line 5: no account\\n3",
        "  bad_encoding 1, first at line 4: byte \\xe9 is not utf-8; is the file in another --encoding, such as cp1252?",
        "  too_few_fields 1, first at line 3: 1 fields, expected 2",
    ]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_rows_and_writes_are_told_apart_where_rows_are_overwritten(headway: Any, target: str) -> None:
    write("a.csv", "x,y\n1,1\n2,2\n1,3\n")
    write("b.csv", "x,y\n2,4\n3,5\n")
    upsert = ["--to", target, "--table", "t", "--key", "x", "--mode", "upsert"]
    status, out, err = headway("import", "a.csv", *upsert)
    assert status == 0, err
    assert "tables: t 2 (3 upserts)" in out
    assert json.loads(headway("import", "b.csv", *upsert, "--json")[1])["tables"] == {"t": 1}
    replace = ["--to", target, "--table", "t", "--key", "x", "--mode", "replace", "--keep", "last"]
    _, out, _ = headway("import", "a.csv", *replace, "--job", "replace")
    assert "tables: t 2 (3 upserts)" in out
    assert query(target, "SELECT count(*) FROM t") == [(2,)]


def test_a_database_that_another_program_writes_to_is_an_error_that_says_so(headway: Any) -> None:
    write("a.csv", "x\n1\n")
    connection = sqlite3.connect("a.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        status, _, err = headway("import", "a.csv", "--to", "a.db")
    finally:
        connection.close()
    assert status == 1
    assert "another program is writing to it" in err


@pytest.mark.parametrize("option", ["--max-rejects", "--key", "--table", "--to"])
def test_an_option_that_is_empty_is_a_usage_error(headway: Any, option: str) -> None:
    write("a.csv", "x\n1\n")
    given = {"--to": "a.db", option: ""}
    status, _, err = headway("import", "a.csv", *(word for pair in given.items() for word in pair))
    assert status == 2
    assert f"{option} is empty" in err
    assert not Path("a.db").exists()


def test_a_constraint_that_is_looked_at_when_a_transaction_ends_ends_the_run_and_is_told(headway: Any) -> None:
    query("a.db", "CREATE TABLE p (id INTEGER PRIMARY KEY)")
    query("a.db", "CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p DEFERRABLE INITIALLY DEFERRED)")
    write("c.csv", "id,p\n1,7\n")
    status, _, err = headway("import", "c.csv", "--to", "a.db", "--key", "id")
    assert status == 1
    assert "headway: the database refuses a commit as a whole: FOREIGN KEY constraint failed" in err
    assert query("a.db", "SELECT count(*) FROM c") == [(0,)]
    query("a.db", "INSERT INTO p VALUES (7)")
    assert headway("import", "c.csv", "--to", "a.db", "--key", "id")[0] == 0
    assert query("a.db", "SELECT * FROM c") == [(1, 7)]


def test_a_duckdb_file_that_another_process_has_open_is_an_error_that_says_so(headway: Any) -> None:
    write("a.csv", "x\n1\n")
    holder = "import duckdb; c = duckdb.connect('a.duckdb'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        status, _, err = headway("import", "a.csv", "--to", "a.duckdb")
        child.communicate("\n")
    assert status == 1
    assert "another process has it open" in err


GATE = """
import os
def setup():
    return {"waited": False}
def f(row, state):
    if row.n == "2000" and os.path.exists(GATE) and not state["waited"]:
        state["waited"] = True
        with open(GATE) as gate:  # opens when the test opens the other end, and ends when it closes it
            gate.read()
    return row
"""


def test_a_file_that_was_read_to_its_end_is_finished_after_ctrl_c_and_that_is_said_at_once(
    headway: Any, tmp_path: Path
) -> None:
    write("a.csv", "n\n" + "".join(f"{n}\n" for n in range(3000)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write("rules.py", GATE.replace("GATE", repr(str(gate))))
    child = subprocess.Popen(
        [sys.executable, "-m", "headway", "import", "a.csv", "--to", "a.db", "--process", "rules.py:f"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    with gate.open("w"):
        child.send_signal(signal.SIGINT)
        assert any(
            line == "stopping: finishing 3,000 lines that were read, for at most 30 s; Ctrl-C again stops at once; "
            "the same command goes on later\n"
            for line in child.stderr
        )
    _, err = child.communicate()
    assert child.returncode == 0, err
    assert query(Path("a.db"), "SELECT count(*) FROM a") == [(3000,)]


def test_more_rejects_than_allowed_at_the_end_are_told_each_time(headway: Any) -> None:
    write("a.csv", "n\n1\nx\ny\n")
    command = ["import", "a.csv", "--to", "a.db", "--column", "n=int", "--max-rejects"]
    for _ in range(2):
        status, _, err = headway(*command, "50%")
        assert status == 3
        assert "2 rejects are more than 50%; the input was read to its end" in err
    status, out, err = headway(*command, "70%")
    assert status == 0, err
    assert "is finished already" in out + err
    assert query(Path("a.db"), "SELECT n FROM a") == [(1,)]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_import_leaves_a_prefix_and_the_same_command_goes_on(
    headway: Any, tmp_path: Path, target: str, sent: signal.Signals, status: int
) -> None:
    rows = 24_000  # more than is ever under way, so that a drain leaves some unread
    write("a.csv", "n,text\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(rows)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write("rules.py", GATE.replace("GATE", repr(str(gate))))
    command = ["import", "a.csv", "--to", target, "--process", "rules.py:f", "--workers", "1"]
    child = subprocess.Popen(
        [sys.executable, "-m", "headway", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    with gate.open("w"):  # a worker is inside row 2000 now
        child.send_signal(sent)
        if sent is signal.SIGKILL:
            child.wait()
        else:  # it is told while the worker still is in there
            assert any(line.startswith("stopping: finishing ") for line in child.stderr)
    out, err = child.communicate()
    assert child.returncode == status, err
    gate.unlink()
    committed = query(target, "SELECT count(*) FROM a")[0][0]
    assert committed < rows
    assert query(target, f"SELECT n FROM a ORDER BY {in_file_order(target, 'CAST(n AS INTEGER)')}") == [
        (str(n),) for n in range(committed)
    ]
    if sent is not signal.SIGKILL:
        assert committed > 2000
        assert f"read {committed:,} = written {committed:,}" in out
        assert "The same command goes on" in err
    status, out, err = headway(*command, "--json")
    assert status == 0, err
    assert json.loads(out)["resumed_at"] == (committed or None)
    assert query(target, f"SELECT n FROM a ORDER BY {in_file_order(target, 'CAST(n AS INTEGER)')}") == [
        (str(n),) for n in range(rows)
    ]
