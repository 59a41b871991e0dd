"""One job over several files, and what may happen to them between two runs."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CheckpointError, PlanError
from headway.importer.job import ImportJob
from headway.importer.result import ImportResult, TooManyRejects
from support.importing import query
from support.targets import TARGETS


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "headway.importer.job.run_until_stopped", lambda pipeline, _stopping: pipeline.run(mode="inline")
    )


def imported(*sources: str, to: str = "bank.db", **options: Any) -> ImportResult:
    return ImportJob(sources, to, **{"table": "t", "workers": 1, "column": {"*": "text"}, **options}).run()


def write(name: str, *numbers: int | str, end: str = "\n", head: str = "n,m\n") -> None:
    lines = "\n".join(f"{n},{n}" if isinstance(n, int) else n for n in numbers)
    Path(name).write_text(head + lines + (end if numbers else ""))


def numbers(to: str = "bank.db") -> list[int]:
    return [int(row[0]) for row in query(Path(to), "SELECT n FROM t")]


def rejects() -> list[tuple[Any, ...]]:
    rows = query(Path("bank.db"), "SELECT file, seq, line, byte FROM _headway_rejects ORDER BY seq")
    return [(Path(file).name, *rest) for file, *rest in rows]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_files_are_one_job_in_their_order_and_places_are_per_file(target: str) -> None:
    write("b.csv", 1, 2, "bad")
    write("a.csv", 3, "bad", 4, end="")
    write("empty.csv", head="")
    write("head.csv")
    write("c.csv", "", 5, "bad", head="\nn,m\n")
    job = ImportJob(
        ["b.csv", "a.csv", "empty.csv", "head.csv", "c.csv"], target, table="t", workers=1, column={"*": "text"}
    )
    result = job.run()
    assert (result.read, result.written, result.rejected, result.skipped) == (10, 5, 3, 2)
    opened = job.address.open()
    try:
        assert [int(row[0]) for row in opened.execute("SELECT n FROM t")] == [1, 2, 3, 4, 5]
        rows = opened.execute("SELECT file, seq, line, byte FROM _headway_rejects ORDER BY seq")
    finally:
        opened.close()
    assert [(Path(file).name, *rest) for file, *rest in rows] == [
        ("b.csv", 2, 4, 12), ("a.csv", 4, 3, 8), ("c.csv", 7, 5, 10),
    ]  # fmt: skip


def test_a_pattern_is_sorted_and_files_that_come_later_are_new_input_even_for_a_finished_job() -> None:
    write("part-2.csv", 2)
    write("part-1.csv", 1)
    assert imported("part-*.csv").written == 2
    again = imported("part-*.csv")
    assert again.already_finished
    write("part-3.csv", 3, "bad")
    write("part-4.csv", 4)
    result = imported("part-*.csv")
    assert (result.resumed_at, result.read, result.written, result.rejected) == (2, 5, 4, 1)
    assert numbers() == [1, 2, 3, 4]
    assert rejects() == [("part-3.csv", 3, 3, 8)]
    assert imported("part-*.csv").already_finished


@pytest.mark.parametrize("pack", [False, True])
def test_a_job_goes_on_in_the_middle_of_a_later_file(pack: bool) -> None:
    names = []
    for name, first in (("a", 0), ("b", 1000), ("c", 2000)):
        write(f"{name}.csv", *range(first, first + 500), "bad", *range(first + 500, first + 1000))
        names.append(f"{name}.csv" + (".gz" if pack else ""))
        if pack:
            Path(names[-1]).write_bytes(gzip.compress(Path(f"{name}.csv").read_bytes()))
    for most in (0, 1, 2):
        with pytest.raises(TooManyRejects, match=rf"line 502 .too_few_fields. of .*{'abc'[most]}.csv"):
            imported(*names, max_rejects=most)
        assert numbers() == list(range(1000 * most + 500))
    result = imported(*names, max_rejects=3)
    assert (result.resumed_at, result.read, result.written) == (2502, 3003, 3000)
    assert numbers() == list(range(3000))
    assert [place[:3] for place in rejects()] == [(names[0], 500, 502), (names[1], 1501, 502), (names[2], 2502, 502)]


def test_a_file_that_sorts_before_what_was_begun_is_refused() -> None:
    write("b.csv", 1)
    imported("*.csv")
    write("a.csv", 0)
    with pytest.raises(CheckpointError, match=r"a.csv now stands before .*b.csv, which was begun already.*--job NAME"):
        imported("*.csv")
    assert numbers() == [1]


def test_a_file_that_is_gone_is_refused() -> None:
    write("a.csv", 0)
    write("b.csv", 1)
    imported("*.csv")
    Path("a.csv").unlink()
    with pytest.raises(CheckpointError, match=r"with .*a.csv, which is not among the sources now"):
        imported("*.csv")


def test_a_file_that_was_not_begun_may_change_or_go() -> None:
    write("a.csv", 0, "bad")
    write("b.csv", 1)
    with pytest.raises(TooManyRejects):
        imported("*.csv", max_rejects=0)
    Path("b.csv").unlink()
    write("c.csv", 2)
    assert imported("*.csv").written == 2
    assert numbers() == [0, 2]


@pytest.mark.parametrize("which", ["a.csv", "b.csv"])
def test_a_finished_file_that_changed_is_refused(which: str) -> None:
    write("a.csv", 0)
    write("b.csv", 1)
    imported("*.csv")
    write(which, 7)
    for accept in (False, True):
        with pytest.raises(CheckpointError, match=rf"another content of .*{which}.*Nothing was done.*--restart"):
            imported("*.csv", accept_changed=accept)
    assert numbers() == [0, 1]


def grow(name: str, text: str, opener: Callable[..., Any] = open) -> None:
    with opener(name, "ab") as file:
        file.write(text.encode())


@pytest.mark.parametrize("opener", [open, gzip.open])
@pytest.mark.parametrize(
    ("end", "added"), [("\n", "2,2\n3,3"), ("", "\n2,2\n3,3\n"), ("", "\r\n2,2\n3,3"), ("\r", "\n2,2\n3,3")]
)
def test_a_file_that_only_grew_goes_on_from_its_end_if_that_is_accepted(
    end: str, added: str, opener: Callable[..., Any]
) -> None:
    Path("a.csv").write_bytes(b"")
    grow("a.csv", "n,m\n0,0\n1,1" + end, opener)
    imported("a.csv")
    grow("a.csv", added, opener)
    with pytest.raises(CheckpointError, match=r"a.csv has grown from \d+ to \d+ bytes.*--accept-changed imports"):
        imported("a.csv")
    grow("a.csv", "\nbad\n", opener)
    result = imported("a.csv", accept_changed=True)
    assert (result.resumed_at, result.written, result.rejected) == (2, 4, 1)
    assert numbers() == [0, 1, 2, 3]
    blank = "\n\n" in added + "\nbad"
    assert rejects()[0][1:3] == (4, 7 if blank else 6)
    assert imported("a.csv").already_finished


def test_a_file_that_grew_in_the_middle_of_its_last_record_is_refused() -> None:
    write("a.csv", 0, 1, end="")
    imported("a.csv")
    grow("a.csv", "23,4\n")
    with pytest.raises(CheckpointError, match="goes on in the middle of its last record"):
        imported("a.csv", accept_changed=True)
    assert numbers() == [0, 1]


def test_a_file_that_grew_behind_an_open_quote_is_refused() -> None:
    write("a.csv", 0, '1,"open')
    assert imported("a.csv").rejected == 1
    grow("a.csv", 'closed"\n2,2\n')
    with pytest.raises(CheckpointError, match="goes on in the middle of its last record"):
        imported("a.csv", accept_changed=True)


def test_a_file_that_grew_while_a_later_one_was_begun_is_refused() -> None:
    write("a.csv", 0)
    write("b.csv", 1)
    imported("*.csv")
    grow("a.csv", "9,9\n")
    with pytest.raises(CheckpointError, match=r"a.csv has grown, and a later file was begun already"):
        imported("*.csv", accept_changed=True)


def test_restart_begins_again_where_rows_cannot_come_twice() -> None:
    write("a.csv", 0, 1, "bad")
    imported("a.csv", key="n", mode="upsert")
    write("a.csv", 0, 1, 2)
    with pytest.raises(CheckpointError, match="--restart"):
        imported("a.csv", key="n", mode="upsert")
    result = imported("a.csv", key="n", mode="upsert", restart=True)
    assert (result.resumed_at, result.read, result.written, result.rejected) == (None, 3, 3, 0)
    assert numbers() == [0, 1, 2]
    assert rejects() == []


def test_restart_is_refused_where_rows_would_come_twice_unless_the_table_is_empty() -> None:
    write("a.csv", 0, 1)
    imported("a.csv")
    with pytest.raises(CheckpointError, match="table t holds 2 rows already and has no --key"):
        imported("a.csv", restart=True)
    assert numbers() == [0, 1]
    assert imported("a.csv").already_finished
    query(Path("bank.db"), "DELETE FROM t")
    assert imported("a.csv", restart=True).written == 2
    assert imported("a.csv", restart=True, mode="replace").written == 2
    assert numbers() == [0, 1]


def test_files_with_other_columns_are_refused_before_anything_is_written() -> None:
    write("a.csv", 0)
    write("b.csv", 0, head="m,n\n")
    with pytest.raises(PlanError, match=r"b.csv has the columns m, n, where files before it have n, m"):
        imported("*.csv")
    assert not Path("bank.db").exists()


def test_json_lines_of_several_files_have_the_columns_of_all() -> None:
    Path("a.jsonl").write_text('{"n": 1}\n')
    Path("b.jsonl").write_text('{"m": "x", "n": 2}\n')
    imported("*.jsonl")
    assert query(Path("bank.db"), "SELECT n, m FROM t ORDER BY rowid") == [("1", None), ("2", "x")]


def test_the_jobs_name_stays_the_same_when_files_are_added() -> None:
    write("a.csv", 0)
    write("b.csv", 1)
    names = {
        ImportJob(sources, "bank.db", table="t").name
        for sources in (["a.csv", "b.csv"], ["b.csv", "a.csv"], ["a.csv", "b.csv", "./a.csv"][:2])
    }
    assert names == {f"{Path.cwd()}:t"}
    assert ImportJob("*.csv", "bank.db", table="t").name == f"{Path.cwd()}/*.csv:t"
    assert ImportJob("a.csv", "bank.db").name == f"{Path.cwd()}/a.csv:a"


GATE = """
import os
def setup():
    return {"waited": False}
def f(row, state):
    if row.n == "12000" and os.path.exists("gate") and not state["waited"]:
        state["waited"] = True
        with open("gate") as gate:  # opens when the test opens the other end, and ends when it closes it
            gate.read()
    return row
"""


@pytest.mark.parametrize("form", ["files", "packed", "standard input"])
def test_a_killed_job_goes_on_and_loses_and_doubles_nothing(form: str, tmp_path: Path) -> None:
    rows = 20_000
    content = [f"{n},{'x' * 1000}\n" for n in range(rows)]
    Path("a.csv").write_text("n,m\n" + "".join(content[: rows // 2]))
    Path("b.csv").write_text("n,m\n" + "".join(content[rows // 2 :]))
    everything = "n,m\n" + "".join(content)
    sources = ["a.csv", "b.csv"]
    if form == "packed":
        sources = ["all.csv.gz"]
        Path("all.csv.gz").write_bytes(gzip.compress(everything.encode(), 1))
    given = None if form != "standard input" else everything.encode()
    sources = sources if given is None else ["-"]
    Path("rules.py").write_text(GATE)
    os.mkfifo("gate")
    command = [
        sys.executable, "-m", "headway", "import", *sources, "--to", "bank.db", "--table", "t", "--process", "rules.py:f",
        "--workers", "1", "--column", "*=text",
    ]  # fmt: skip
    if given is not None:
        Path("given.csv").write_bytes(given)
    with Path("given.csv" if given is not None else "a.csv").open("rb") as stdin:
        child = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with Path("gate").open("w"):  # a worker is inside row 12,000 now
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert child.stderr is not None
        child.stderr.close()
    Path("gate").unlink()
    committed = numbers()
    assert committed == list(range(len(committed)))
    assert len(committed) < rows
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert numbers() == list(range(rows))
