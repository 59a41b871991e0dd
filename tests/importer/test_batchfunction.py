"""Row functions that take an Arrow record batch: what they are given, what they may give, and what becomes of each row."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headway
from headway import DROP, Pipeline, PlanError, Report, rows
from headway.importer.job import ImportJob, import_file
from support.importing import query

TEXT = "id,amount,day,note\n0,1.50,2024-01-01,a\n1,-2.00,2024-01-02,b\n2,x,,c\n3,3.25,2024-01-03,\n"
SCHEMA = {"columns": {"id": "int", "amount": "decimal(10,2)", "day": "date"}}
TARGETS = ["bank.duckdb", "bank.db"]


def _run_inline(pipeline: Pipeline[Any], stopping: object) -> Report:
    return pipeline.run(mode="inline")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import TEXT with a batch function, on this thread; give the result, the rows and the rejects."""
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)
    monkeypatch.chdir(tmp_path)

    def call(function: Any, target: str = "bank.db", text: str = TEXT, **options: Any) -> Any:
        Path("t.csv").write_text(text, encoding="utf-8")
        given = {"schema": SCHEMA} | options
        result = ImportJob("t.csv", target, process=headway.per_batch(function), workers=1, **given).run()
        name = next(iter(result.tables))
        found = query(Path(target), f"SELECT * FROM {name} ORDER BY rowid")
        rejects = query(Path(target), "SELECT line, stage, reason, message FROM _headway_rejects ORDER BY seq")
        return result, found, rejects

    return call


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_has_the_types_of_the_schema_and_goes_to_the_table_as_it_is_given_back(run: Any, target: str) -> None:
    seen: list[Any] = []

    def f(batch: Any) -> Any:
        seen.append(batch)
        return batch

    result, found, rejects = run(f, target)
    assert seen[0].schema.names == ["_seq", "id", "amount", "day", "note"]
    assert list(map(str, seen[0].schema.types)) == ["int64", "int64", "decimal128(10, 2)", "date32[day]", "string"]
    assert [row[0] for row in found] == [0, 1, 3]
    assert [str(row[1]) for row in found] == ["1.50", "-2.00", "3.25"]
    assert [row[3] for row in found] == ["a", "b", ""]
    assert rejects == [(4, "convert", "bad_decimal", 'column amount: "x" is no decimal(10,2)')]
    assert (result.read, result.written, result.rejected) == (4, 3, 1)
    assert seen[0].column("day").to_pylist() == [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]


def test_on_the_thread_of_the_writer_the_priority_is_left_as_it_is(run: Any) -> None:
    before = os.nice(0)
    run(lambda batch: batch)
    assert os.nice(0) == before


def test_processes_give_way_to_the_one_that_writes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TEXT, encoding="utf-8")
    (tmp_path / "r.py").write_text("import os\n\n\ndef f(row):\n    return {'nice': os.nice(0)}\n", encoding="utf-8")
    tables = {"tables": {"found": {"columns": {"nice": "int"}}}}
    import_file(tmp_path / "t.csv", tmp_path / "n.db", process=f"{tmp_path / 'r.py'}:f", tables=tables)
    assert query(tmp_path / "n.db", "SELECT DISTINCT nice FROM found") == [(min(os.nice(0) + 10, 19),)]


def test_without_a_schema_all_is_text(run: Any) -> None:
    def f(batch: Any) -> Any:
        assert set(map(str, batch.schema.types)) == {"int64", "string"}
        return batch

    assert run(f, schema=None, column=())[0].written == 4


def test_rows_left_out_are_filtered_and_repeated_ones_become_several_in_order(run: Any) -> None:
    def f(batch: Any) -> Any:
        return batch.take(pa.array([2, 0, 2, 0]))

    result, found, _ = run(f)
    assert [row[0] for row in found] == [0, 0, 3, 3]
    assert (result.written, result.filtered, result.rejected, result.tables) == (2, 1, 1, {"t": 4})


@pytest.mark.parametrize(
    "mask", [[True, False, None], pa.array([True, False, False]), pa.chunked_array([[True], [False, False]])]
)
@pytest.mark.parametrize("used", [True, False])
def test_rejected_rows_are_set_aside_with_the_reason_whether_its_result_is_used_or_not(
    run: Any, mask: Any, used: bool
) -> None:
    def f(batch: Any) -> Any:
        left = headway.reject(batch, mask, "first")
        assert left.num_rows == 2
        left = headway.reject(left, pc.equal(left["note"], "b"), "second")
        return left if used else batch

    result, found, rejects = run(f)
    assert [row[0] for row in found] == [3]
    assert rejects[:2] == [(2, "process", "first", ""), (3, "process", "second", "")]
    assert (result.written, result.rejected, result.filtered) == (1, 3, 0)


def test_a_mask_of_another_length_is_an_error_of_the_function() -> None:
    batch = pa.record_batch({"_seq": [1, 2]})
    with pytest.raises(ValueError, match="the mask has 1 values for 2 rows"):
        headway.reject(batch, [True], "x")
    assert headway.reject(batch, [True, False], "x").to_pydict() == {"_seq": [2]}  # outside of an import


def test_only_the_rows_that_raise_are_set_aside(run: Any) -> None:
    sizes = []

    def f(batch: Any) -> Any:
        sizes.append(batch.num_rows)
        if "7" in batch["note"].to_pylist():
            raise KeyError("seven")
        return batch

    text = "id,note\n" + "".join(f"{n},{n}\n" for n in range(16))
    result, found, rejects = run(f, text=text, schema={"columns": {"id": "int"}})
    assert [row[0] for row in found] == [n for n in range(16) if n != 7]
    assert rejects == [(9, "process", "KeyError", "'seven'")]
    assert (result.written, result.rejected) == (15, 1)
    assert sizes == [16, 8, 4, 4, 2, 2, 1, 1, 8]


def no_seq(batch: Any) -> Any:
    return batch.drop_columns(["_seq"])


def wrong_seq(batch: Any) -> Any:
    return batch.set_column(0, "_seq", pa.array([5] * batch.num_rows, pa.int64()))


def unknown_column(batch: Any) -> Any:
    return batch.append_column("more", batch["id"])


def nothing(batch: Any) -> Any:
    return None


def a_list(batch: Any) -> Any:
    return batch.to_pylist()


@pytest.mark.parametrize(
    ("function", "reason", "message"),
    [
        (no_seq, "no_seq", "the batch has to keep its int64 column _seq"),
        (wrong_seq, "no_seq", "_seq 5 is no row of the batch that was given"),
        (unknown_column, "unknown_column", "table t has no column 'more'; it has id, amount, day, note"),
        (nothing, "returned None", "return the batch; DROP leaves all its rows out"),
        (a_list, "not_a_batch", "a batch function returns an Arrow record batch, not list"),
        (lambda batch: rows(other=batch), "unknown_table", "there is no table 'other'; there are t, for headway.rows(...)"),
    ],
)  # fmt: skip
def test_a_result_that_cannot_be_taken_sets_its_rows_aside_and_says_why(
    run: Any, function: Any, reason: str, message: str
) -> None:
    result, found, rejects = run(function)
    assert found == []
    assert (result.rejected, result.written) == (4, 0)
    assert {(r[2], r[3]) for r in rejects if r[0] != 4} == {(reason, message)}


def test_drop_leaves_all_rows_out(run: Any) -> None:
    result, _, _ = run(lambda batch: DROP)
    assert (result.filtered, result.rejected) == (3, 1)


@pytest.mark.parametrize("target", TARGETS)
def test_several_tables_stand_or_fall_together_and_missing_columns_are_null(run: Any, target: str) -> None:
    tables = {
        "tables": {
            "a": {"columns": {"id": "int", "amount": "decimal(10,2)"}, "key": ["id"]},
            "b": {"columns": {"day": "date", "id": "int"}},
        }
    }

    def f(batch: Any) -> Any:
        one = batch.set_column(1, "id", pa.array([7, 7, None], pa.int64()))
        return rows(a=one.select(["_seq", "id", "amount"]), b=pa.Table.from_batches([batch]).select(["_seq", "day"]))

    result, found, rejects = run(f, target, tables=tables)
    assert [(row[0], Decimal(str(row[1]))) for row in found] == [(7, Decimal("1.50"))]
    assert query(Path(target), "SELECT id, CAST(day AS VARCHAR) FROM b") == [(None, "2024-01-01")]
    assert [(line, reason) for line, _, reason, _ in rejects] == [
        (3, "duplicate_key"),
        (4, "bad_decimal"),
        (5, "null_key"),
    ]
    assert result.written == 1


async def later(batch: Any) -> Any:
    return batch


def test_an_async_function_is_awaited(run: Any) -> None:
    assert run(later)[0].written == 3


def test_a_set_up_is_the_second_argument(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "import headway, pyarrow.compute as pc\ndef setup():\n    return 10\n"
        "@headway.per_batch\ndef f(batch, factor):\n"
        "    return batch.set_column(1, 'id', pc.multiply(batch['id'], factor))\n"
    )
    (tmp_path / "t.csv").write_text("id\n1\n2\n")
    process = f"{tmp_path / 'rules.py'}:f"
    headway.import_file(tmp_path / "t.csv", tmp_path / "t.db", process=process, column=["id=int"])
    assert query(tmp_path / "t.db", "SELECT id FROM t") == [(10,), (20,)]


def test_a_source_with_a_column_of_that_name_is_refused(run: Any) -> None:
    with pytest.raises(PlanError, match="a name that a function per batch needs for itself"):
        run(lambda batch: batch, text="_seq,x\n1,2\n", schema=None)


def test_values_of_json_lines_are_texts_and_those_of_parquet_keep_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)
    seen = []

    def f(batch: Any) -> Any:
        seen.append([*map(str, batch.schema.types)][1:])
        return batch

    (tmp_path / "j.jsonl").write_text('{"id": 1, "x": "a"}\n{"id": 2.50, "x": {"y": true}}\n{"x": null}\n')
    pq.write_table(pa.table({"id": [1, 2], "x": [date(2024, 1, 1), None]}), tmp_path / "p.parquet")
    process = headway.per_batch(f)
    ImportJob(tmp_path / "j.jsonl", tmp_path / "t.db", process=process, workers=1).run()
    ImportJob(tmp_path / "p.parquet", tmp_path / "t.db", process=process, workers=1).run()
    assert seen == [["string", "string"], ["int64", "date32[day]"]]
    assert query(tmp_path / "t.db", "SELECT id, x FROM j") == [("1", "a"), ("2.50", '{"y":true}'), (None, None)]
    assert query(tmp_path / "t.db", "SELECT id, x FROM p") == [(1, "2024-01-01"), (2, None)]
