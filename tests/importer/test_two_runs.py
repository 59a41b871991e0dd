"""Two runs of one job: the second is refused while the first lives, and nothing is written twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headway.importer.job as job_module
from headway.errors import HeadwayError, PlanError
from headway.importer.bookkeeping import Bookkeeping
from headway.importer.job import ImportJob, import_file
from headway.io.lock import held_alone
from headway.io.target import Address
from support.importing import query
from support.targets import TARGETS, in_file_order, is_server

ROWS = 24_000
GATE = """
import os
def setup():
    return {"waited": False}
def f(row, state):
    if row.n == "20000" and os.path.exists(GATE) and not state["waited"]:
        state["waited"] = True
        with open(GATE) as gate:  # opens when the test opens the other end, and ends when it closes it
            gate.read()
    return row
"""


@contextmanager
def a_run_under_way(folder: Path, target: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A real import whose worker waits inside row 20,000; the same command, run again, would not wait."""
    (folder / "a.csv").write_text("n,text\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(ROWS)))
    os.mkfifo(folder / "gate")
    (folder / "rules.py").write_text(GATE.replace("GATE", repr(str(folder / "gate"))))
    command = [
        sys.executable, "-m", "headway", "import", "a.csv", "--to", target, "--process", "rules.py:f", "--workers", "1",
    ]  # fmt: skip
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        with (folder / "gate").open("w"):  # a worker is inside row 20,000 now
            yield child, command
        child.communicate()


def same_again(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_second_run_of_a_job_is_refused_while_the_first_lives(tmp_path: Path, target: str) -> None:
    with a_run_under_way(tmp_path, target) as (first, command):
        second = same_again(command, tmp_path)
        assert second.returncode == 1
        assert "is being run by another process" in second.stderr
        assert "Traceback" not in second.stderr
    assert first.returncode == 0
    assert query(target, f"SELECT n FROM a ORDER BY {in_file_order(target, 'CAST(n AS INTEGER)')}") == [
        (str(n),) for n in range(ROWS)
    ]
    assert list(tmp_path.glob(".*.lock")) == []


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_killed_run_holds_nobody_up(tmp_path: Path, target: str) -> None:
    with a_run_under_way(tmp_path, target) as (first, command):
        first.kill()
        first.wait()
        left = len(list(tmp_path.glob(".*.lock")))
        assert left == (not is_server(target)), "what a killed run leaves is harmless"
        (tmp_path / "gate").unlink()
        second = same_again(command, tmp_path)
    assert second.returncode == 0, second.stderr
    assert query(target, f"SELECT n FROM a ORDER BY {in_file_order(target, 'CAST(n AS INTEGER)')}") == [
        (str(n),) for n in range(ROWS)
    ]


def test_a_commit_just_before_the_job_changes_hands_is_where_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock does not reach everywhere (other machines): a run that lost the job is fenced off all the same."""
    path, target = tmp_path / "a.csv", tmp_path / "bank.db"
    path.write_text("n,text\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(6000)))
    bind = job_module.bind

    def another_run_first(*args: object, **options: object) -> object:
        monkeypatch.setattr(job_module, "bind", bind)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(Address, "lock_file", lambda *_: tmp_path / "other.lock")
            with pytest.raises(HeadwayError, match="more than 0 rejects"):
                import_file(path, target, workers=1, max_rejects=0, process=_rejecting_the_last)
        return bind(*args, **options)  # type: ignore[arg-type]

    import_file(_head_only(tmp_path), target, table="a", job="table")
    monkeypatch.setattr(job_module, "bind", another_run_first)
    job = ImportJob(path, target, workers=1, process=_as_it_is)
    result = job.run()
    assert result.resumed_at == 5999
    assert query(target, "SELECT n FROM a ORDER BY rowid") == [(str(n),) for n in range(6000)]


def test_a_mistake_does_not_remove_a_database_that_another_job_has_begun_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "a.csv", tmp_path / "bank.db"
    path.write_text("n\n1\n")
    bind = job_module.bind

    def another_job_first(*args: object, **options: object) -> object:
        monkeypatch.setattr(job_module, "bind", bind)
        import_file(path, target, table="other")
        return bind(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(job_module, "bind", another_job_first)
    with pytest.raises(PlanError, match="key column"):
        import_file(path, target, key="wrong")
    assert query(target, "SELECT n FROM other") == [(1,)]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_two_jobs_may_begin_at_once_in_a_table_that_is_not_there(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("n,text\n1,a\n2,b\n")
    other.write_text("n,text\n2,c\n3,d\n")
    bind = job_module.bind

    def and_another_job_then(*args: object, **options: object) -> object:
        monkeypatch.setattr(job_module, "bind", bind)
        bound = bind(*args, **options)  # type: ignore[arg-type]
        import_file(other, target, table="t", key="n")
        return bound

    monkeypatch.setattr(job_module, "bind", and_another_job_then)
    assert import_file(one, target, table="t", key="n").reasons == {"duplicate_key": 1}
    assert query(target, "SELECT n, text FROM t ORDER BY n") == [(1, "a"), (2, "c"), (3, "d")]


def test_a_run_that_lost_the_job_cannot_commit(tmp_path: Path) -> None:
    target = Address("sqlite", str(tmp_path / "bank.db")).open()
    try:
        old, new = Bookkeeping(target, "job"), Bookkeeping(target, "job")
        assert old.claim("file") is not None
        new.claim("file")
        with pytest.raises(HeadwayError, match="was taken over by another run"):
            old.advance(job_module.Position("a.csv", 1, 1, 1, 1), job_module.Counts(), finished=False)
    finally:
        target.close()


def test_a_lock_is_refused_in_the_same_process_too_and_free_behind_the_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_alone(path, refusal="held"):
        with pytest.raises(HeadwayError, match="held"), held_alone(path, refusal="held"):
            pass
        assert path.exists()
    assert not path.exists()
    with held_alone(path, refusal="held"):
        assert path.exists()


def _as_it_is(row: object) -> object:
    return row


def _rejecting_the_last(row: tuple[str, ...]) -> object:
    if row[0] == "5999":
        raise ValueError("the last")
    return row


def _head_only(folder: Path) -> Path:
    path = folder / "head.csv"
    path.write_text("n,text\n")
    return path
