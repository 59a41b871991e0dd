"""What fits into a column, exactly, and that the quick way of each database stores what the plain way stores."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import chain, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import PlanError
from headway.io.arrow import arrow_type
from headway.io.chunk import ArrowColumn
from headway.io.columns import Int, Text, column_type
from headway.io.copy_text import copy_lines
from headway.io.stored_text import Joined
from headway.io.target import codec

INSTANT = datetime(2024, 2, 29, 23, 59, 58)  # noqa: DTZ001 - columns hold UTC without a zone
EAST = timezone(timedelta(hours=2))

FITS: list[tuple[str, Any, Any]] = [
    ("int", "12", 12), ("int", " -7 ", -7), ("int", "+5", 5), ("int", 2**63 - 1, 2**63 - 1), ("int", Decimal("3.0"), 3),
    ("int", "", None), ("int", None, None),
    ("float", "1.5e3", 1500.0), ("float", 2, 2.0), ("float", Decimal("0.1"), 0.1), ("float", "", None),
    ("decimal(5,2)", "1.5", Decimal("1.50")), ("decimal(5,2)", "-999.99", Decimal("-999.99")),
    ("decimal(5,2)", 3, Decimal("3.00")), ("decimal(5,2)", 12.5, Decimal("12.50")), ("decimal(5,2)", "1e2", Decimal("100.00")),
    ("decimal(5,2)", "1.500", Decimal("1.50")), ("decimal(5,2)", "", None), ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("text", "", ""), ("text", "NULL", "NULL"), ("text", 5, "5"), ("text", True, "true"), ("text", date(2024, 1, 2), "2024-01-02"),
    ("text", Decimal("1.10"), "1.10"), ("text", "a\x00b", "a\x00b"), ("text", None, None),
    ("bool", "Yes", True), ("bool", "0", False), ("bool", 1, True), ("bool", False, False), ("bool", "", None),
    ("date", "2024-02-29", date(2024, 2, 29)), ("date", date(1, 1, 1), date(1, 1, 1)),
    ("timestamp", "2024-02-29T23:59:58Z", INSTANT), ("timestamp", "2024-03-01 01:59:58+02:00", INSTANT),
    ("timestamp", datetime(2024, 3, 1, 1, 59, 58, tzinfo=EAST), INSTANT), ("timestamp", INSTANT.replace(tzinfo=UTC), INSTANT),
    ("timestamp", "2024-02-29T23:59", INSTANT.replace(second=0)),
    ("json", '{"a": [1, null]}', '{"a": [1, null]}'), ("json", {"a": "ä"}, '{"a": "ä"}'), ("json", "null", "null"), ("json", [1], "[1]"),
]  # fmt: skip

MISFITS: list[tuple[str, Any]] = [
    ("int", "1.0"), ("int", "1_000"), ("int", "0x1F"), ("int", "٣"), ("int", 2**63), ("int", "9223372036854775808"),
    ("int", 1.0), ("int", True), ("int", Decimal("1.5")), ("int", "twelve"), ("int", [1]), ("int", "-"),
    ("float", "nan"), ("float", "inf"), ("float", float("nan")), ("float", "1,5"), ("float", "1_0.0"), ("float", "1e999"),
    ("decimal(5,2)", "1.234"), ("decimal(5,2)", "1000.00"), ("decimal(5,2)", "NaN"), ("decimal(5,2)", "Infinity"),
    ("decimal(5,2)", 0.1 + 0.2), ("decimal(5,2)", "1,50"), ("decimal(5,2)", "--3.00"), ("decimal(5,2)", Decimal("0.001")),
    ("decimal(5,2)", "1.2.3"), ("decimal(5,2)", True), ("decimal(5,2)", "12,5O"),
    ("decimal(5,2)", float("nan")), ("decimal(5,2)", Decimal("NaN")), ("decimal(5,2)", Decimal("sNaN")),
    ("decimal(5,2)", Decimal("-Infinity")),
    ("text", "\ud800"), ("text", b"bytes"), ("text", ["list"]), ("text", {"a": 1}),
    ("bool", "maybe"), ("bool", 2), ("bool", 1.0),
    ("date", "2024-02-30"), ("date", "20240101"), ("date", "01/02/2024"), ("date", INSTANT),
    ("timestamp", "2024-02-30T10:00:00Z"), ("timestamp", "20240101"), ("timestamp", "yesterday"), ("timestamp", date(2024, 1, 1)),
    ("json", "{a: 1}"), ("json", "NaN"), ("json", float("nan")), ("json", '"\ud800"'), ("json", {1, 2}),
    ("timestamp", "2024-13-01T00:00:00Z"), ("timestamp", "2024-01-01T25:00:00Z"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), FITS)
def test_a_value_that_fits_is_converted_without_losing_a_digit(kind: str, value: Any, expected: Any) -> None:
    converted, misfits = column_type(kind).fit([value])
    assert (list(converted), misfits) == ([expected], {})
    assert type(converted[0]) is type(expected)
    assert str(converted[0]) == str(expected)


@pytest.mark.parametrize(("kind", "value"), MISFITS)
def test_a_value_that_does_not_fit_is_named_and_its_neighbours_are_intact(kind: str, value: Any) -> None:
    type = column_type(kind)
    good = next(given for name, given, _ in FITS if name == kind)
    converted, misfits = type.fit([good, value, good])
    assert list(misfits) == [1]
    assert str(type) in misfits[1]
    assert converted[1] is None
    assert converted[0] == converted[2] == type.fit([good])[0][0]


class Shout(str):
    """A text that shows itself as another, as members of an enumeration do."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.upper() + "!"


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize(
    ("kind", "value"), [("text", "a"), ("decimal(5,2)", "1.50"), ("timestamp", "2024-01-02 03:04:05"), ("int", "7")]
)
def test_a_subclass_of_str_is_the_text_that_it_is(database: str, kind: str, value: str) -> None:
    stores = codec(database)
    plain = list(stores.fit(column_type(kind), [value, value]).stored)
    assert list(stores.fit(column_type(kind), [Shout(value), value]).stored) == plain
    assert {*map(builtins.type, plain)} == {
        *map(builtins.type, stores.fit(column_type(kind), [Shout(value)] * 2).stored)
    }


def test_an_empty_subclass_of_str_is_null_as_an_empty_text_is() -> None:
    assert column_type("int").fit([Shout(""), ""]) == ([None, None], {})


@pytest.mark.parametrize("text", ["1_0", "٣"])
def test_a_subclass_of_str_has_to_be_a_number_as_others(text: str) -> None:
    assert column_type("decimal(5,2)").fit([Shout(text)])[1].keys() == {0}


def test_a_narrow_column_has_narrow_limits() -> None:
    assert Int(8).fit([127, 128, "-128", "-129"])[1].keys() == {1, 3}


@pytest.mark.parametrize("text", ["money", "decimal", "decimal(0,0)", "decimal(39,2)", "decimal(4,5)", "xml", ""])
def test_a_type_that_does_not_exist_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(PlanError, match=r"type .*(there are int, float|precision is 1 to 38)"):
        column_type(text)


KINDS = ["int", "float", "decimal(5,2)", "decimal(2,2)", "decimal(4,0)", "text", "bool", "date", "timestamp"]
NUMBERS = st.text("0123456789-+.eE_ x", max_size=7)
STAMPS = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat(timespec="seconds")),
    st.from_regex(r"20[0-3][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](Z|)", fullmatch=True),
    st.text("0123456789-:TZ ", min_size=19, max_size=20),
)
VALUES = st.one_of(
    st.lists(st.integers(-(2**64), 2**64), min_size=1), st.lists(st.integers(-50, 50), min_size=1),
    st.lists(NUMBERS, min_size=1), st.lists(st.from_regex(r"-?[0-9]{1,3}\.[0-9]{2}", fullmatch=True), min_size=1),
    st.lists(STAMPS, min_size=1), st.lists(st.text(max_size=4), min_size=1),
    st.lists(st.decimals(allow_nan=False, places=2), min_size=1), st.lists(st.booleans(), min_size=1),
    st.lists(st.one_of(st.none(), st.text(max_size=2), st.integers(), st.floats(), st.dates(), st.datetimes()), min_size=1),
)  # fmt: skip


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # the first call imports the database
@given(values=VALUES)
def test_the_quick_way_stores_exactly_what_the_plain_way_stores(database: str, kind: str, values: list[Any]) -> None:
    type, stores = column_type(kind), codec(database)
    given: list[Sequence[Any]] = [values]
    if {*map(builtins.type, values)} == {str}:
        given.append(ArrowColumn(pa.array(values, pa.string())))
    for column in given:
        found = stores.fit(type, column)
        converted, misfits = type.fit(values)
        nul = {index for index, value in enumerate(values) if database == "postgresql" and "\0" in str(value)}
        if kind != "text" or not nul:
            assert found.misfits == misfits
            assert list(found.nulls) == [index for index, value in enumerate(converted) if value is None]
            assert as_list(found.stored) == as_list(stores.store(type, converted))
            if database == "postgresql":
                assert copy_lines([found.stored]) == copy_lines([stores.store(type, converted)])
        else:
            assert found.misfits.keys() == nul


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [("timestamp", "0000-01-01T00:00:00"), ("date", "0000-01-01"), ("int", "0x1F"), ("decimal(5,2)", "1e1000000")],
)
def test_what_only_arrow_would_read_as_a_value_is_none(database: str, kind: str, value: str) -> None:
    for column in ([value], ArrowColumn(pa.array([value]))):
        assert codec(database).fit(column_type(kind), column).misfits.keys() == {0}


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize(
    "kind", ["int", "decimal(5,2)", "decimal(20,12)", "text", "bool", "date", "timestamp", "float"]
)
@settings(deadline=None)
@given(values=VALUES)
def test_a_column_of_arrow_is_stored_as_its_values_are(database: str, kind: str, values: list[Any]) -> None:
    type, stores = column_type(kind), codec(database)
    converted = type.fit(values)[0]
    if {None} != {*converted}:
        found = stores.fit(type, ArrowColumn(pa.array(converted, arrow_type(type))))
        if not found.misfits:  # a NUL in PostgreSQL
            assert list(found.nulls) == [index for index, value in enumerate(converted) if value is None]
            assert as_list(found.stored) == as_list(stores.store(type, converted))
        else:
            assert (database, kind) == ("postgresql", "text")


TEXTS = st.one_of(st.none(), st.text("ab\\\t\n\rä\U0001f600,", max_size=4), st.just(r"\N"))


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(-5, 2**40)), TEXTS, TEXTS), min_size=1),
    cut=st.integers(0, 3),
)
def test_arrow_writes_the_lines_that_the_plain_way_writes(rows: list[tuple[Any, ...]], cut: int) -> None:
    rows = rows[cut:] or rows
    number, *texts = (list(column) for column in zip(*rows, strict=True))
    whole = [
        pa.array([None] * cut + number, pa.int64()),
        *(pa.array([None] * cut + each, pa.string()) for each in texts),
    ]
    assert copy_lines([ArrowColumn(each.slice(cut)) for each in whole]) == copy_lines([number, *texts])


@given(
    texts=st.lists(st.one_of(st.none(), st.text("aä\n", max_size=2)), min_size=1, max_size=9),
    repeated=st.sampled_from([1, 57, 114, 171, 400]),
)
def test_a_column_of_many_texts_is_read_some_at_a_time_with_its_nulls(texts: list[str | None], repeated: int) -> None:
    texts *= repeated
    found = codec("sqlite").fit(Text(), ArrowColumn(pa.array(texts, pa.string()))).stored
    assert isinstance(found, Joined)
    assert (len(found), list(found)) == (len(texts), texts)


def test_what_arrow_takes_for_a_value_of_the_usual_characters_is_one() -> None:
    for kind, alphabet, longest in (("int", "09-", 5), ("decimal(3,1)", "09.-", 6), ("decimal(2,2)", "01.-", 5)):
        type = column_type(kind)
        texts = [*map("".join, chain(*(product(alphabet, repeat=length) for length in range(longest + 1))))]
        found = codec("duckdb").fit(type, ArrowColumn(pa.array(texts)))
        values, misfits = type.fit(texts)
        assert (found.stored.to_pylist(), found.misfits) == (values, misfits)


@settings(max_examples=300, deadline=None)
@given(
    base=st.sampled_from(["2024-02-29", "0001-01-01", "9999-12-31", "2023-02-28"]),
    clock=st.sampled_from(["", "T23:59:59", " 00:00:00", "T12:34:56Z", "T12:34-01", "T123456-01"]),
    changes=st.lists(st.tuples(st.integers(0, 19), st.sampled_from("0123456789-:T Z")), max_size=4),
)
def test_what_arrow_takes_for_a_day_or_an_instant_is_one(base: str, clock: str, changes: list[tuple[int, str]]) -> None:
    text = [*(base + clock)]
    for place, character in changes:
        text[place : place + 1] = character
    texts = ["".join(text), base + clock]
    type = column_type("timestamp" if clock else "date")
    found = codec("duckdb").fit(type, ArrowColumn(pa.array(texts)))
    assert (found.stored.to_pylist(), found.misfits) == type.fit(texts)


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgresql"])
@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), float("nan"), float("-inf")])
def test_what_is_no_number_is_in_no_column_of_numbers(database: str, value: Any) -> None:
    for kind in ("decimal(5,2)", "float", "int"):
        assert codec(database).fit(column_type(kind), [value]).misfits.keys() == {0}, kind


def as_list(stored: Any) -> list[Any]:
    return stored.to_pylist() if isinstance(stored, pa.Array) else list(stored)  # type: ignore[no-any-return]


def test_text_with_a_lone_surrogate_is_no_text_in_any_database() -> None:
    for database in ("sqlite", "duckdb", "postgresql"):
        assert codec(database).fit(Text(), ["fine", "\udc80"]).misfits.keys() == {1}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("type", "value"),
    [("decimal(9,2)", "1.00,2.00"), ("timestamp", "2024-01-01T10:00:00Z,2024-01-01T10:00:00Z"), ("int", "1,2")],
)
def test_two_values_in_one_field_are_never_stored_at_once(kind: str, type: str, value: str) -> None:
    good = value.split(",", maxsplit=1)[0]
    assert codec(kind).fit(column_type(type), [good, value]).misfits.keys() == {1}
