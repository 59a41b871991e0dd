"""Files as sources of rows: what a row is, reading again, positions, records that are none."""

from __future__ import annotations

import gzip
import pickle
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway import HeadwayError, Pipeline, PlanError, Source, SourceError, read_csv, read_jsonl, read_parquet
from headway.io import ranges
from headway.io.readers import BadRow


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.io.readers.open_ranges", lambda *given: _open(*given, range_bytes=50))


def _open(*given: Any, **more: Any) -> ranges.Ranges:
    from headway.io.inputs import open_ranges

    return open_ranges(*given, **more)


NOON = datetime(2024, 1, 1, 12, 0, 0, 5)  # noqa: DTZ001 - as a column without a zone gives it


def csv_file(folder: Path, rows: int = 100, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text("id,first name\n" + "".join(f'{n},"x\n{n}"\n' for n in range(rows)))
    return path


def test_rows_have_names_and_are_texts(tmp_path: Path) -> None:
    (row, *_) = rows = read_csv(csv_file(tmp_path)).read(1000)
    assert len(rows) == 100
    assert row == ("0", "x\n0")
    assert (row.id, row["first name"], row[1]) == ("0", "x\n0", "x\n0")
    assert row.asdict() == {"id": "0", "first name": "x\n0"}
    assert isinstance(read_csv(csv_file(tmp_path)), Source)


def test_a_row_travels_by_pickle_with_its_names(tmp_path: Path) -> None:
    row = pickle.loads(pickle.dumps(read_csv(csv_file(tmp_path)).read(1)[0]))
    assert (row.id, row) == ("0", ("0", "x\n0"))


def double(row: Any) -> int:
    return 2 * int(row.id)


@pytest.mark.parametrize("on", ["thread", "process"])
def test_a_pipeline_over_a_file_can_be_run_again(tmp_path: Path, on: Any) -> None:
    pipeline = Pipeline(read_csv(csv_file(tmp_path))).map(double, on=on, workers=2)
    assert pipeline.collect() == pipeline.collect() == [2 * n for n in range(100)]


def test_a_source_that_was_left_early_begins_again(tmp_path: Path) -> None:
    source = read_csv(csv_file(tmp_path))
    assert next(iter(source)).id == "0"
    assert [row.id for row in source] == [str(n) for n in range(100)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("given", [0, 1, 7, 55, 99, 100, 130])
def test_a_position_is_where_another_source_goes_on(
    tmp_path: Path, small_ranges: None, given: int, packed: bool
) -> None:
    paths = [csv_file(tmp_path), csv_file(tmp_path, 50, "b.csv")]
    if packed:
        for path in paths:
            path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        paths = [path.with_suffix(".csv.gz") for path in paths]
    before, after = read_csv(paths), read_csv(paths)
    everything = [*read_csv(paths)]
    assert len(everything) == 150
    first: list[Any] = []
    while len(first) < given:
        first += before.read(min(3, given - len(first)))
    after.seek(before.position())
    assert [*first, *after] == everything
    before.seek(before.position())
    assert [*first, *before] == everything
    assert read_csv(paths).fingerprint() == after.fingerprint()
    after.close()


def test_a_fingerprint_tells_contents_apart(tmp_path: Path) -> None:
    source = read_csv(csv_file(tmp_path))
    before = source.fingerprint()
    csv_file(tmp_path, 101)
    assert source.fingerprint() != before


def test_the_rows_before_a_record_that_is_none_are_given_and_the_error_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    taken: list[Any] = []
    with pytest.raises(SourceError, match=r"a.csv, line 3 .byte 8.: too_few_fields: 1 fields, expected 2"):
        Pipeline(read_csv(path)).to(taken.append).run()
    assert taken == [("1", "2")]
    with pytest.raises(HeadwayError, match="line 3"):
        list(read_csv(path))


def test_records_that_are_no_rows_go_where_the_user_says(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n3\n4,\xff\n5,6\n")
    bad: list[BadRow] = []
    assert list(read_csv(path, rejects=bad)) == [("1", "2"), ("5", "6")]
    assert bad == [
        (str(path), 3, 8, "too_few_fields", "1 fields, expected 2", "3"),
        (str(path), 4, 10, "bad_encoding", "byte \\xff is not utf-8", "4,\\xff"),
    ]
    seen: list[str] = []
    assert len(list(read_csv(path, rejects=lambda row: seen.append(row.raw)))) == 2
    assert seen == ["3", "4,\\xff"]


def test_options_are_those_of_the_import(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("1;'é;'\n".encode("latin-1"))
    assert list(read_csv(path, delimiter=";", quote="'", encoding="latin-1", no_header=True)) == [("1", "é;")]
    with pytest.raises(PlanError, match="delimiter"):
        read_csv(path, delimiter="ab")
    with pytest.raises(PlanError, match="there is no such file"):
        read_csv(tmp_path / "gone.csv")


def test_json_lines_give_exact_values_and_what_is_nested_as_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "x": 1.10}\n\n{"id": 2, "more": {"b": [1, 2.50]}, "x": null}\n{"id": true, "x": "é"}\n')
    rows = list(read_jsonl(path))
    assert rows == [(1, Decimal("1.10"), None), (2, None, '{"b":[1,2.50]}'), (True, "é", None)]
    assert str(rows[0].x) == "1.10"
    assert rows[1].more == '{"b":[1,2.50]}'


def test_json_lines_that_are_no_objects_are_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n[1]\n{"a": 1\n{"a": "\xff"}\n{"a": 2}\n')
    bad: list[BadRow] = []
    assert list(read_jsonl(path, rejects=bad)) == [(1,), (2,)]
    assert [(row.line, row.byte, row.reason, row.raw) for row in bad] == [
        (2, 9, "not_an_object", "[1]"),
        (3, 13, "bad_json", '{"a": 1'),
        (4, 21, "bad_encoding", '{"a": "\\xff"}'),
    ]


def test_parquet_gives_the_values_of_its_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra import")
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "id": pa.array(range(30_000), pa.int64()),
            "amount": pa.array([Decimal("1.10"), None] * 15_000, pa.decimal128(18, 2)),
            "day": pa.array([date(2024, 1, 1)] * 30_000),
            "at": pa.array([NOON] * 30_000, pa.timestamp("us")),
            "tags": pa.array([["a"]] * 30_000),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=13_000)
    source = read_parquet(path)
    rows = list(source)
    assert [row.id for row in rows] == list(range(30_000))
    assert rows[0] == (0, Decimal("1.10"), date(2024, 1, 1), NOON, '["a"]')
    assert rows[1].amount is None
    source.read(12_500)
    position = source.position()
    source.close()
    source.seek(position)
    assert [row.id for row in source] == list(range(12_000, 30_000))
