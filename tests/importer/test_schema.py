"""Types and rules of a source's fields: declared, or inferred so that no value is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline, PlanError, Report
from headway.importer.infer import infer
from headway.importer.job import ImportJob
from headway.importer.schema import Field, SchemaDeclaration
from headway.io.columns import Date, Exact, Int
from support.importing import query

TARGETS = ["bank.duckdb", "bank.db"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Import a text into a target, on this thread; give the result."""
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)
    monkeypatch.chdir(tmp_path)

    def call(text: str, target: str, **options: Any) -> Any:
        name = options.pop("file", "t.csv")
        Path(name).write_text(text, encoding="utf-8", newline="")
        return ImportJob(name, target, workers=1, **options).run()

    return call


def _run_inline(pipeline: Pipeline[Any], stopping: object) -> Report:
    return pipeline.run(mode="inline")


def rejects(target: str) -> list[tuple[Any, ...]]:
    return query(Path(target), "SELECT line, stage, reason, message FROM _headway_rejects ORDER BY seq")


SEEN: list[tuple[list[str], str]] = [
    (["1", "-20", "0"], "int"),
    (["1", "", "3"], "int"),
    (["9223372036854775807"], "int"),
    (["9223372036854775808"], "text"),
    (["007", "1"], "text"),
    (["+49", "1"], "text"),
    (["-0"], "text"),
    ([" 1"], "text"),
    (["1,5"], "text"),
    (["1.50", "20.25"], "decimal(18,2)"),
    (["1.5", "20.25", "3"], "decimal(18,2)"),
    (["1.50", "2"], "decimal(18,2)"),
    (["1.1", "1.10"], "text"),
    (["12345678901234567890.5"], "decimal(21,1)"),
    (["1." + "1" * 38], "text"),
    (["1e5", "2"], "text"),
    (["1.", "2"], "text"),
    (["NaN", "1.0"], "text"),
    (["2024-02-29"], "date"),
    (["2023-02-29"], "text"),
    (["2024-02-29T10:00:00", "2024-02-29 10:00"], "timestamp"),
    (["2024-02-29T10:00:00Z"], "timestamp"),
    (["2024-02-29T10:00:00Z", "2024-02-29T10:00:00"], "text"),
    (["2024-02-29T10:00:00+02:00"], "text"),
    (["true", "false"], "bool"),
    (["true", "False"], "text"),
    (["yes", "no"], "text"),
    (["x", "1"], "text"),
    (["", ""], "text"),
]


@pytest.mark.parametrize(("values", "kind"), SEEN, ids=[" ".join(values)[:30] for values, _ in SEEN])
def test_a_type_is_inferred_only_where_every_value_can_be_given_back_as_it_was_written(
    values: list[str], kind: str
) -> None:
    found = infer(["x"], [[value] for value in values])
    assert str(found["x"].type if found else "text") == kind


@pytest.mark.parametrize("target", TARGETS)
def test_a_value_behind_the_sample_that_would_lose_by_the_inferred_type_is_a_reject_that_says_what_to_do(
    run: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headway.io.ranges.Ranges.sample", lambda ranges: [["1", "2.50", "2024-01-01"], ["2", "3.00", "2024-01-02"]]
    )
    run("a,b,c\n1,2.50,2024-01-01\n007,1.00,2024-01-01\n3,1.001,2024-01-01\n4,,soon\n-5,1,\n", target)
    assert [line for line, *_ in rejects(target)] == [3, 4, 5]
    assert rejects(target)[0] == (
        3, "convert", "bad_int",
        'column a: "007" is no int, as inferred from the first 2 rows; to keep such values import with --column a=text',
    )  # fmt: skip
    assert [reason for _, _, reason, _ in rejects(target)] == ["bad_int", "bad_decimal", "bad_date"]
    assert query(Path(target), "SELECT a FROM t ORDER BY rowid") == [(1,), (-5,)]


RULES = {
    "nulls": ["NULL"],
    "columns": {
        "id": {"type": "int", "required": True, "unique": True},
        "name": {"pattern": "[A-Z][a-z]+", "nulls": ["-"]},
        "amount": {"type": "decimal(10,2)", "min": 0, "max": "99.50"},
        "day": {"type": "date", "min": "2024-01-01"},
        "more": "json",
    },
}


@pytest.mark.parametrize("target", TARGETS)
def test_every_broken_rule_is_a_reject_with_line_column_and_reason(run: Any, target: str) -> None:
    text = (
        "id,name,amount,day,more\n"
        '1,Ann,0.00,2024-01-01,"{""a"": 1}"\n'
        "2,-,99.50,NULL,\n"
        ",Bob,1,2024-01-02,1\n"  # 4
        "NULL,Bob,1,2024-01-02,1\n"
        "5,bob,1,2024-01-02,1\n"
        "6,Bob,-0.01,2024-01-02,1\n"  # 7
        "7,Bob,99.51,2024-01-02,1\n"
        "8,Bob,1.234,2024-01-02,1\n"
        "9,Bob,1,2023-12-31,1\n"  # 10
        "10,Bob,1,2024-02-30,1\n"
        "11,Bob,1,2024-02-03,{\n"
        "1,Cid,1,2024-02-03,1\n"  # 13
        "x,bob,1,2024-02-03,1\n"
        "12,,,,\n"
    )
    result = run(text, target, schema=RULES)
    assert rejects(target) == [
        (4, "convert", "required", "column id must not be empty"),
        (5, "convert", "required", "column id must not be empty"),
        (6, "convert", "pattern", 'column name: "bob" is no [A-Z][a-z]+'),
        (7, "convert", "below_min", 'column amount: "-0.01" is less than 0.00'),
        (8, "convert", "above_max", 'column amount: "99.51" is more than 99.50'),
        (9, "convert", "bad_decimal", 'column amount: "1.234" is no decimal(10,2)'),
        (10, "convert", "below_min", 'column day: "2023-12-31" is less than 2024-01-01'),
        (11, "convert", "bad_date", 'column day: "2024-02-30" is no date'),
        (12, "convert", "bad_json", "column more: '{' is no json"),
        (13, "write", "not_unique", "t: id = 1 stands already"),
        (14, "convert", "pattern", 'column name: "bob" is no [A-Z][a-z]+'),
    ]
    assert (result.read, result.written, result.rejected) == (14, 3, 11)
    assert query(Path(target), "SELECT id, name FROM t ORDER BY id") == [(1, "Ann"), (2, None), (12, "")]
    assert query(Path(target), "SELECT more FROM t WHERE id = 1") == [('{"a": 1}',)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_unique_column_refuses_what_an_earlier_file_brought(run: Any, target: str) -> None:
    run("id,x\n1,a\n2,b\n", target, schema=RULES | {"columns": {"id": RULES["columns"]["id"]}})
    schema = {"columns": {"id": {"type": "int", "unique": True}}}
    run("id,x\n2,c\n3,d\n", target, schema=schema, file="u.csv", table="t")
    assert query(Path(target), "SELECT id, x FROM t ORDER BY id") == [(1, "a"), (2, "b"), (3, "d")]
    assert rejects(target) == [(2, "write", "not_unique", "t: id = 2 stands already")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_function_gets_typed_values_and_never_a_row_that_breaks_the_schema(run: Any, target: str) -> None:
    seen = []

    def f(row: Any) -> Any:
        seen.append((row.id, row.amount, row["day"], row.more, row.free))
        return {"id": row.id + 1, "amount": row.amount, "day": row.day, "more": row.more, "free": row.free}

    schema = {"columns": {"id": "int", "amount": "decimal(10,2)", "day": "date", "more": "json"}}
    text = 'id,amount,day,more,free\n1,1.5,2024-01-01,"[1]",007\nx,1,2024-01-01,1,1\n3,,,,\n'
    run(text, target, schema=schema, process=f)
    day = Date().value("2024-01-01")
    assert seen == [(1, Exact(10, 2).value("1.50"), day, [1], "007"), (3, None, None, None, "")]
    assert rejects(target) == [(3, "convert", "bad_int", 'column id: "x" is no int')]
    assert query(Path(target), "SELECT id, free FROM t ORDER BY id") == [(2, "007"), (4, "")]


def test_without_a_schema_a_row_function_gets_texts(run: Any) -> None:
    seen = []
    run("id,day\n1,2024-01-01\n", "bank.db", process=lambda row: seen.append(tuple(row)) or row)
    assert seen == [("1", "2024-01-01")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_that_is_there_is_checked_against_the_schema(run: Any, target: str) -> None:
    run("id,amount\n1,1.50\n", target, schema={"columns": {"id": "int", "amount": "decimal(9,2)"}})
    run("id,amount\n2,2.50\n", target, column=["amount=decimal(5,2)"], table="t", file="u.csv")
    assert query(Path(target), "SELECT id, CAST(amount AS VARCHAR) FROM t ORDER BY id") == [(1, "1.50"), (2, "2.50")]
    with pytest.raises(PlanError, match=r"column id is (BIGINT|INTEGER), which does not hold every date exactly"):
        run("id,amount\n2,2.50\n", target, column={"id": "date"}, table="t", file="v.csv")
    with pytest.raises(PlanError, match=r"nothing keeps \(amount\) unique"):
        run("id,amount\n2,2.50\n", target, schema={"columns": {"amount": {"unique": True}}}, table="t", file="v.csv")


def test_what_was_inferred_stays_for_the_whole_job(run: Any) -> None:
    text = "id,x\n" + "1,2024-01-01\n" * 3 + "bad\n" + "007,x\n"
    with pytest.raises(Exception, match=r"stopped at line 5"):
        run(text, "bank.db", max_rejects=0, column=["x=text"])
    result = run(text, "bank.db", max_rejects=2, column=["x=text"])
    assert (result.written, result.rejected) == (4, 1)  # the sample holds the whole file: id is text


def test_a_restart_keeps_the_types_that_the_table_was_made_with(run: Any) -> None:
    options = {"key": "id", "mode": "ignore"}
    run("id,amount\n1,1.50\n", "bank.db", **options)
    run("id,amount\n1,1.50\n2,n/a\n", "bank.db", restart=True, **options)
    assert [(line, reason) for line, _, reason, _ in rejects("bank.db")] == [(3, "bad_decimal")]


def test_one_column_with_two_types_is_refused() -> None:
    with pytest.raises(PlanError, match="--column x: two types are given"):
        SchemaDeclaration(None, ["x=int", "y=int", "x=text"])


def test_names_of_a_file_without_a_header_are_the_schemas_where_it_declares_all(run: Any) -> None:
    run("1,x\n2,y\n", "bank.db", no_header=True, column=["id=int", "name=text"])
    assert query(Path("bank.db"), "SELECT id, name FROM t") == [(1, "x"), (2, "y")]


def test_a_star_stands_for_all_other_columns(run: Any) -> None:
    run("id,a,b\n1,2,3\n", "bank.db", column=["id=int", "*=text"])
    assert query(Path("bank.db"), "SELECT id, a, b FROM t") == [(1, "2", "3")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_schema_stands_beside_declared_tables(run: Any, target: str) -> None:
    tables = {"tables": {"out": {"columns": {"n": "text", "id": "int"}}}}
    run(
        "id,n,x\n1,5,a\n2,0x,b\n3,7,\n",
        target,
        tables=tables,
        schema={"columns": {"n": "int", "x": {"required": True}}},
    )
    assert query(Path(target), "SELECT n, id FROM out") == [("5", 1)]
    assert [(line, reason) for line, _, reason, _ in rejects(target)] == [(3, "bad_int"), (4, "required")]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tables": {}}, "'tables' is not known; there are"),
    ({"columns": {"x": "money"}}, "column x: type 'money' is not known; there are int"),
    ({"columns": {"x": 5}}, "the type must be a text"),
    ({"columns": {"x": {"type": "int", "maximum": 5}}}, "'maximum' is not known; there are type, required"),
    ({"columns": {"x": {"type": "int", "min": "low"}}}, "column x: min 'low' is no int"),
    ({"columns": {"x": {"type": "int", "min": 5, "max": 4}}}, "min 5 is more than max 4"),
    ({"columns": {"x": {"min": 5}}}, "min is for int, decimal, float, date, timestamp, not for text"),
    ({"columns": {"x": {"pattern": "["}}}, "is no regular expression"),
    ({"columns": {"x": {"required": "yes"}}}, "required is true or false"),
    ({"columns": {"x": {"nulls": [1]}}}, "is a list of texts"),
    ({"columns": {}}, r"expected a section \[columns\]"),
    ({"columns": {"*": {"unique": True}}}, "by its name that it is unique"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_a_mistake_in_a_schema_is_named_before_anything_is_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        SchemaDeclaration(given)


def test_a_field_comes_back_from_its_record() -> None:
    field = Field(
        "a", Exact(9, 2), required=True, unique=True, min=Exact(9, 2).value("0.10"), nulls=("-",), settled=True
    )
    assert Field.from_dict(field.to_dict()) == field
    assert Field.from_dict(Field("b", Int(), form="0", seen=3).to_dict()) == Field("b", Int(), form="0", seen=3)
