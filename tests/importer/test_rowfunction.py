"""What a row function is given, what it may return, and what becomes of the row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import DROP, Reject, rows
from headway.errors import PlanError
from headway.importer.rowfunction import load, prepare
from headway.io.row import row_type
from support.importing import import_in_ranges, query

TWO = {
    "tables": {
        "a": {"columns": {"k": "int", "v": "text"}},
        "b": {"columns": {"k": "int"}, "key": ["k"], "mode": "upsert"},
    }
}
ONE = {"tables": {"a": TWO["tables"]["a"]}}


def outcome(folder: Path, function: Callable[..., Any], tables: Any, text: str = "k,v\n1,x\n2,y\n3,z\n") -> Any:
    """Rows of table a, rejects as (seq, stage, reason, message), and the counts."""
    path, target = folder / "source.csv", folder / "bank.db"
    path.write_text(text, encoding="utf-8", newline="")
    writer = import_in_ranges(path, target, tables, function, range_bytes=1 << 20)
    rejects = query(target, "SELECT seq, stage, reason, message FROM _headway_rejects ORDER BY seq")
    return query(target, "SELECT k, v FROM a ORDER BY rowid"), rejects, writer.counts


def test_a_row_is_a_tuple_with_names() -> None:
    row = row_type(["id", "account", "first name", "count", "class", "asdict"])(["1", "A", "Zoë", "4", "c", "d"])
    number, account, *_ = row
    assert (number, account) == ("1", "A")
    assert list(row) == ["1", "A", "Zoë", "4", "c", "d"]
    assert (row.account, row["account"], row[1], row[-1], row[1:3]) == ("A", "A", "A", "d", ("A", "Zoë"))
    assert (row["first name"], row.count, row["class"], row["asdict"]) == ("Zoë", "4", "c", "d")
    assert row.asdict()["first name"] == "Zoë"
    assert isinstance(row, tuple)
    with pytest.raises(KeyError):
        row["nothing"]
    with pytest.raises(AttributeError):
        row.nothing  # noqa: B018 - reading it is the test


def sequence(row: Any) -> Any:
    return [row.k, row.v]


def mapping(row: Any) -> Any:
    return {"v": row.v, "k": int(row.k)}


def itself(row: Any) -> Any:
    return row


def stream(row: Any) -> Iterator[Any]:
    yield row


async def asynchronous(row: Any) -> Any:
    return row


async def asynchronous_stream(row: Any) -> AsyncIterator[Any]:
    yield row


def several(row: Any) -> Any:
    return rows(a=row)


def several_lists(row: Any) -> Any:
    return rows(a=[row])


@pytest.mark.parametrize(
    "function", [sequence, mapping, itself, stream, asynchronous, asynchronous_stream, several, several_lists, None]
)
def test_every_form_of_output_writes_the_row(function: Any, tmp_path: Path) -> None:
    found, rejects, counts = outcome(tmp_path, function, ONE)
    assert found == [(1, "x"), (2, "y"), (3, "z")]
    assert rejects == []
    assert (counts.read, counts.written) == (3, 3)


def on_two(then: Callable[[Any], Any], others: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    usual = others or (lambda row: rows(a=row, b=(row.k,)))
    return lambda row: then(row) if row.k == "2" else usual(row)


OTHERS = [
    lambda row: rows(a=row, b=(row.k,)),
    lambda row: rows(a=(row.k, row.v), b=(row.k,)),
    lambda row: rows(b=(row.k,), a=(row.k, row.v)) if row.k == "1" else rows(a=(row.k, row.v), b=(row.k,)),
    lambda row: rows(a=(row.k, row.v), b={"k": row.k}),
]
"""Forms of the rows on both sides: as they come, all tuples, in turns, tuples and mappings."""


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(row: Any) -> Any:
        raise error

    return function


def breaking_stream(row: Any) -> Iterator[Any]:
    yield rows(a=row)
    raise Reject("late")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("then", "stage", "reason", "message"),
    [
        (raising(Reject("bad_amount", "12,5O")), "process", "bad_amount", "12,5O"),
        (raising(ValueError("no")), "process", "ValueError", "no"),
        (raising(StopIteration("x")), "process", "StopIteration", "x"),
        (raising(SystemExit(3)), "process", "SystemExit", "3"),
        (raising(Unprintable()), "process", "Unprintable", "its text could not be made"),
        (raising(ValueError("\udc80")), "process", "ValueError", "\\udc80"),
        (lambda row: None, "process", "returned None", "return DROP to leave a row out"),
        (lambda row: 5, "convert", "not_a_row", "a value of type int is no row"),
        (lambda row: "text", "convert", "not_a_row", "a value of type str is no row"),
        (lambda row: (1, 2), "convert", "unknown_table", "one row for several tables; return headway.rows(a=..., b=...)"),
        (lambda row: rows(c=(1,)), "convert", "unknown_table", "there is no table 'c'; there are a, b"),
        (lambda row: rows(b=(1,), a=(1,)), "convert", "wrong_width", "1 values for the 2 columns of table a"),
        (lambda row: rows(a=(1, 2), b=(1, 2)), "convert", "wrong_width", "2 values for the 1 columns of table b"),
        (lambda row: rows(a=(1, 2), c=(1,)), "convert", "unknown_table", "there is no table 'c'; there are a, b"),
        (lambda row: rows(a=("x", row.v), b=("x",)), "convert", "bad_int", "column k: 'x' is no int"),
        (lambda row: rows(b=(1,), a={"k": 1, "w": 2}), "convert", "unknown_column", "table a has no column 'w'; it has k, v"),
        (lambda row: rows(b=(1,), a=("1.5", "y")), "convert", "bad_int", "column k: '1.5' is no int"),
        (lambda row: rows(a=row, b=("",)), "convert", "null_key", "column k must not be empty"),
        (lambda row: rows(a=row, b=None), "convert", "returned None", "return a mapping or a sequence"),
        (breaking_stream, "process", "late", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", OTHERS)
def test_a_row_that_goes_wrong_is_set_aside_whole_and_its_neighbours_are_written(
    then: Any, stage: str, reason: str, message: str, others: Any, tmp_path: Path
) -> None:
    found, rejects, counts = outcome(tmp_path, on_two(then, others), TWO)
    assert found == [(1, "x"), (3, "z")]
    assert query(tmp_path / "bank.db", "SELECT k FROM b ORDER BY k") == [(1,), (3,)]
    assert rejects == [(1, stage, reason, message)]
    assert (counts.read, counts.written, counts.rejected) == (3, 2, 1)


@pytest.mark.parametrize(
    "then", [lambda row: DROP, lambda row: rows(), lambda row: rows(a=[], b=[]), lambda row: iter(())]
)
def test_a_row_without_output_is_filtered(then: Any, tmp_path: Path) -> None:
    found, rejects, counts = outcome(tmp_path, on_two(then), TWO)
    assert (found, rejects) == ([(1, "x"), (3, "z")], [])
    assert (counts.read, counts.written, counts.filtered) == (3, 2, 1)


SAME: dict[str, Any] = {}
SAME_LIST: list[Any] = [None, None]
SAME_ROWS = rows()


def same_mapping(row: Any) -> Any:
    SAME.update(k=int(row.k), v=row.v)
    return SAME


def same_list(row: Any) -> Any:
    SAME_LIST[:] = row
    return SAME_LIST


def same_rows(row: Any) -> Any:
    SAME_ROWS["a"] = (row.k, row.v)
    return SAME_ROWS


def list_in_rows(row: Any) -> Any:
    SAME_LIST[:] = row
    return rows(a=SAME_LIST)


@pytest.mark.parametrize("function", [same_mapping, same_list, same_rows, list_in_rows])
def test_what_a_function_gives_may_be_the_same_object_again(function: Any, tmp_path: Path) -> None:
    assert outcome(tmp_path, function, ONE)[0] == [(1, "x"), (2, "y"), (3, "z")]


def test_a_row_that_is_changed_after_it_was_given_is_written_as_it_was_given(tmp_path: Path) -> None:
    latest: dict[str, Any] = {}

    def running(row: Any) -> Any:
        latest.update(k=len(latest) and latest["k"] + 1)
        return rows(a=(row.k, str(latest["k"])), b=latest)

    found, rejects, _ = outcome(tmp_path, running, TWO)
    assert (found, rejects) == ([(1, "0"), (2, "1"), (3, "2")], [])
    assert query(tmp_path / "bank.db", "SELECT k FROM b ORDER BY k") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("form", [tuple, list, lambda row: {"k": row[0], "v": row[1]}])
@pytest.mark.parametrize("several", [True, False])
def test_a_document_that_is_changed_after_it_was_given_is_stored_as_it_was_given(
    form: Any, several: bool, tmp_path: Path
) -> None:
    document: dict[str, Any] = {"seen": []}

    def growing(row: Any) -> Any:
        document["seen"].append(row.k)
        output = form((row.k, document))
        return rows(a=output) if several else output

    found, rejects, _ = outcome(tmp_path, growing, {"tables": {"a": {"columns": {"k": "int", "v": "json"}}}})
    assert rejects == []
    assert [len(json.loads(text)["seen"]) for _, text in found] == [1, 2, 3]


def test_values_that_stand_in_two_tables_are_those_of_each_of_them(tmp_path: Path) -> None:
    """Also where the columns differ in type, or only some of the values are the same."""
    two = {"tables": {"a": {"columns": {"k": "int", "v": "text"}}, "b": {"columns": {"k": "text", "n": "int"}}}}

    def both(row: Any) -> Any:
        return rows(a=(row.k, row.k), b=(row.k if row.v != "z" else "other", row.k))

    found, rejects, _ = outcome(tmp_path, both, two)
    assert (found, rejects) == ([(1, "1"), (2, "2"), (3, "3")], [])
    assert query(tmp_path / "bank.db", "SELECT k, n FROM b ORDER BY n") == [("1", 1), ("2", 2), ("other", 3)]


def in_turn(row: Any) -> Any:
    """Every form that there is, one after the other."""
    n = int(row.k)
    values = (n, row.v)
    if n % 11 == 7:
        raise Reject("seven")
    forms = (
        values, {"k": n, "v": row.v}, {"v": row.v, "k": n}, [n, row.v], row, iter([values]), DROP, rows(a=values),
        rows(a=[values, values]), {"k": n}, (n, row.v, "more"),
    )  # fmt: skip
    return forms[n % 11]


def test_forms_in_turn_are_written_in_order(tmp_path: Path) -> None:
    text = "k,v\n" + "".join(f"{n},v{n}\n" for n in range(2000))
    found, rejects, counts = outcome(tmp_path, in_turn, ONE, text)
    expected = []
    for n in range(2000):
        if n % 11 not in (6, 7, 10):
            expected += [(n, None if n % 11 == 9 else f"v{n}")] * (2 if n % 11 == 8 else 1)
    assert found == expected
    assert [reject[0] for reject in rejects] == [n for n in range(2000) if n % 11 in (7, 10)]
    assert counts.filtered == len(range(6, 2000, 11))


def test_one_row_may_become_many_and_a_missing_value_is_null(tmp_path: Path) -> None:
    found, _, counts = outcome(tmp_path, lambda row: ({"k": n} for n in range(int(row.k))), ONE)
    assert found == [(0, None), (0, None), (1, None), (0, None), (1, None), (2, None)]
    assert counts.written == 3


def test_columns_declared_without_a_function_are_taken_by_name(tmp_path: Path) -> None:
    found, _, _ = outcome(tmp_path, None, ONE, "v,other,K\nx,-,1\ny,-,2\n")  # type: ignore[arg-type]
    assert found == [(1, "x"), (2, "y")]


MODULE = """
from helper import PREFIX
def setup():
    return PREFIX
async def f(row, prefix):
    return prefix + row[0]
"""


def test_a_path_is_loaded_with_its_neighbours_and_its_setup(tmp_path: Path) -> None:
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "neighbour" / "helper.py").write_text("PREFIX = 'a-'\n")
    path = tmp_path / "neighbour" / "rules.py"
    path.write_text(MODULE)
    function = prepare(f"{path}:f")
    assert function.call(row_type(["x"])(["1"]), *function.state) == "a-1"
    function.close()


def test_an_error_in_a_module_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.py"
    path.write_text("x = 1\ny = x / 0\n")
    with pytest.raises(PlanError, match=r"ZeroDivisionError: division by zero \(.*rules.py, line 2\)"):
        load(f"{path}:f")
