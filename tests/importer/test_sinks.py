"""Databases as sinks of any pipeline, over every target."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway import (
    DuckDBSink,
    HeadwayError,
    Pipeline,
    PlanError,
    PostgresSink,
    SinkError,
    SQLiteSink,
    StageError,
    rows,
)
from support.importing import query
from support.targets import TARGETS

COLUMNS = {"id": "int", "name": "text", "amount": "decimal(10,2)"}
pytestmark = pytest.mark.parametrize("target", TARGETS, indirect=True)


def sink_of(target: str) -> Any:
    return PostgresSink if "://" in target else DuckDBSink if target.endswith(".duckdb") else SQLiteSink


def test_rows_of_any_form_are_written_in_order(target: str) -> None:
    given: list[Any] = [
        {"id": n, "name": f"n{n}", "amount": Decimal(n)} if n % 2 else (n, f"n{n}", f"{n}.00") for n in range(2500)
    ]
    report = Pipeline(given).map(lambda row: row, workers=4).to(sink_of(target)(target, "t", columns=COLUMNS)).run()
    assert report.items.written == 2500
    found = query(target, "SELECT id, name, CAST(amount AS VARCHAR) FROM t ORDER BY id")
    assert found == [(n, f"n{n}", f"{n}.00") for n in range(2500)]


def test_a_refused_row_is_a_failure_of_its_own_and_its_neighbours_are_written(target: str) -> None:
    sink = sink_of(target)(target, "t", columns=COLUMNS, key="id")
    given = [(1, "a", "1.00"), (2, "b", "x"), (1, "again", "1.00"), (3, "c", "3.00"), (4, "d", None)]
    report = Pipeline(given, on_error="dead_letter").to(sink).run()
    assert [str(failure.error) for failure in report.dead_letters] == [
        "bad_decimal: column amount: 'x' is no decimal(10,2)",
        "duplicate_key: t: id = 1 stands already",
    ]
    assert query(target, "SELECT id FROM t ORDER BY id") == [(1,), (3,), (4,)]


@pytest.mark.parametrize("width", [1, 60, 95, 950])
def test_every_row_of_a_table_of_any_width_is_written(target: str, width: int) -> None:
    columns = {f"c{n}": "int" for n in range(width)}
    given = [tuple(range(row, row + width)) for row in range(37)]
    Pipeline(given).to(sink_of(target)(target, "t", columns=columns)).run()
    assert query(target, f"SELECT c0, c{width - 1} FROM t ORDER BY c0") == [(row[0], row[-1]) for row in given]


def test_what_a_constraint_of_the_table_refuses_undoes_nothing_else(target: str) -> None:
    query(target, "CREATE TABLE t (id BIGINT, n BIGINT CHECK (n > 0))")
    given = [(n, 0 if n in (7, 1500) else 1) for n in range(2000)]
    report = Pipeline(given, on_error="dead_letter").to(sink_of(target)(target, "t")).run()
    assert [failure.value[0] for failure in report.dead_letters] == [7, 1500]
    assert query(target, "SELECT count(*), sum(id) FROM t") == [(1998, sum(range(2000)) - 1507)]


def test_the_last_row_of_a_key_stands_after_an_upsert_and_several_tables_share_a_fate(target: str) -> None:
    tables = {
        "tables": {
            "log": {"columns": {"id": "int"}, "key": ["id"]},
            "last": {"columns": {"k": "text", "id": "int"}, "key": ["k"], "mode": "upsert"},
        }
    }
    given = [rows(log=(n,), last=("ab"[n % 2], n)) for n in (1, 2, 3, 4, 1)]
    report = Pipeline(given, on_error="dead_letter").to(sink_of(target)(target, tables=tables)).run()
    assert len(report.dead_letters) == 1
    assert query(target, "SELECT k, id FROM last ORDER BY k") == [("a", 4), ("b", 3)]


def test_a_failure_that_stops_the_run_leaves_what_lies_before(target: str) -> None:
    sink = sink_of(target)(target, "t", columns={"id": "int"})
    with pytest.raises(StageError, match="bad_int"):
        Pipeline([(1,), (2,), ("x",), (3,)]).to(sink).run()
    assert query(target, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_rows_and_state_are_committed_together_and_a_job_has_one_sink(target: str) -> None:
    make = lambda: sink_of(target)(target, "t", columns={"id": "int"}, mode="replace")
    first = make()
    assert first.load("job") is None
    first.open(None)
    first.write([(1,), (2,)])
    first.commit({"watermark": 2})
    first.write([(3,)])
    with pytest.raises(HeadwayError, match=r"job 'job' is being run by another process|another process has it open"):
        make().load("job")
    first.close(RuntimeError("killed here"))
    second = make()
    assert second.load("job") == {"watermark": 2}
    second.open({"watermark": 2})
    second.write([(3,)])
    second.commit({"watermark": 3})
    second.close(None)
    assert query(target, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)], "goes on: nothing is emptied"
    third = make()
    third.open(None)
    third.write([(9,)])
    third.commit({})
    third.close(None)
    assert query(target, "SELECT id FROM t") == [(9,)]


def test_mistakes_are_told_before_anything_is_written(target: str, tmp_path: Path) -> None:
    sink = sink_of(target)
    with pytest.raises(SinkError, match="give its columns="):
        Pipeline([(1,)]).to(sink(target, "nowhere")).run()
    with pytest.raises(PlanError, match="give table= or tables="):
        sink(target)
    with pytest.raises(PlanError, match="needs --key"):
        sink(target, "t", columns={"id": "int"}, mode="upsert")
    with pytest.raises(PlanError, match="is no address of its kind"):
        sink("duckdb:///x.duckdb" if sink is not DuckDBSink else "sqlite:///x.db", "t")
