"""Files that nobody here wrote, with what a careful importer must find in each."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline, Report
from headway.importer.job import ImportJob
from headway.importer.parse import ParseJob, RangeParser
from headway.importer.rowstep import RowJob
from headway.io.columns import Text
from headway.io.content import opened
from headway.io.csv_file import ARROW_BYTES
from headway.io.encoding import encoding_of
from headway.io.jsonl_file import decoder
from headway.io.ranges import RANGE_BYTES
from headway.io.sqlite import SQLiteTarget
from headway.io.table import Column, Table, unique_names
from support.importing import ranges_of
from support.targets import TARGETS, in_file_order, is_server

TORTURE = Path(__file__).parents[3] / "shared" / "data" / "torture"
EXPECTED = TORTURE / "expected.json"
if not EXPECTED.is_file():
    pytest.skip("needs the torture files beside the repository (../shared)", allow_module_level=True)
ALL = json.loads(EXPECTED.read_text(encoding="utf-8"))["files"]
CSV = [case for case in ALL if case["format"] == "csv"]
JSON = [case for case in ALL if case["format"] == "json"]


def test_every_file_is_of_one_of_two_formats() -> None:
    assert len(ALL) == len(CSV) + len(JSON) == len({case["file"] for case in ALL})
    assert (len(CSV), len(JSON)) == (86, 107)


def dialect(case: dict[str, Any]) -> dict[str, Any]:
    given = case["dialect"]
    return {name: given[name] for name in ("delimiter", "quote", "escape", "encoding")}


def parsed(case: dict[str, Any], range_bytes: int) -> tuple[list[list[str]], list[tuple[int, str]], int]:
    """Rows, rejects as (record from 1, reason) and blank lines, by ranges of a size."""
    source = ranges_of(
        TORTURE / case["file"], range_bytes=range_bytes, **dialect(case), header=case["dialect"]["header"]
    )
    content = opened(source.file.location)
    data = content.peek(0, 1 << 28)[0]
    content.close()
    rows: list[list[str]] = []
    rejects: list[tuple[int, str]] = []
    records = blanks = 0
    try:
        names = unique_names(source.head.names or [""] * source.head.width) or ("none",)
        table = Table("t", tuple(Column(name, Text()) for name in names))
        parser = RangeParser(ParseJob(source.files, RowJob(names, (table,), "t", None, None, "sqlite")))
        end = source.head.start
        for span in source:
            assert span.start == end
            end = span.end
            result = parser.parse(span)
            blanks += len(result.blanks)
            rejects += [(records + row.record + 1, row.fault.reason) for row in result.rejects]
            for row in result.rejects:
                place = row.place
                assert data[place.byte : place.byte + place.length] == place.raw
            records += result.records
            if "t" in result.tables:
                parts = SQLiteTarget.decode(None, None, [result.tables["t"].payload])
                rows += (list(row) for part in parts for row in zip(*part, strict=True))
        assert end == len(data)
        parser.close()
    finally:
        source.close()
    return rows, rejects, blanks


def hashed(rows: list[Any]) -> str:
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize(
    ("range_bytes", "arrow_bytes"), [(7, ARROW_BYTES), (64, ARROW_BYTES), (RANGE_BYTES, ARROW_BYTES), (RANGE_BYTES, 0)]
)
@pytest.mark.parametrize("case", CSV, ids=lambda case: case["file"])
def test_rows_rejects_and_blank_lines_of_csv_are_the_expected_ones(
    case: dict[str, Any], range_bytes: int, arrow_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.io.csv_file.ARROW_BYTES", arrow_bytes)  # 0: Arrow reads what it can, however small
    if range_bytes < RANGE_BYTES < case["bytes"] * 100 and "long" in case["file"]:
        range_bytes *= 1000  # a record of megabytes, looked for 7 bytes at a time
    rows, rejects, blanks = parsed(case, range_bytes)
    assert (len(rows), len(rejects), blanks) == (case["rows"], case["rejects"], case["blank_lines_skipped"])
    assert [list(reject) for reject in rejects[:50]] == case["reject_rows"]
    assert hashed(rows) == case["rows_sha256"]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize("case", [case for case in CSV if case["columns"]], ids=lambda case: case["file"])
def test_a_target_holds_the_expected_rows_in_file_order(
    case: dict[str, Any], target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)  # a process each is slow
    monkeypatch.setattr("headway.io.csv_file.ARROW_BYTES", 0)  # Arrow reads what it can, however small
    job = ImportJob(
        TORTURE / case["file"],
        target,
        table="t",
        column={"*": "text"},
        no_header=not case["dialect"]["header"],
        workers=1,
        **dialect(case),
    )
    result = job.run()
    assert result.read == case["records"] + case["blank_lines_skipped"]
    if is_server(target) and "bad_text" in result.reasons:  # no text of PostgreSQL holds a NUL
        assert b"\0" in (TORTURE / case["file"]).read_bytes()
        assert result.reasons["bad_text"] == case["rows"] - result.written
        return
    assert (result.written, result.rejected, result.skipped) == (
        case["rows"], case["rejects"], case["blank_lines_skipped"],
    )  # fmt: skip
    opened_target = job.address.open()
    try:
        if is_server(target):  # which has no order of its own
            rows = parsed(case, RANGE_BYTES)[0]
            assert sorted(opened_target.execute("SELECT * FROM t")) == sorted(map(tuple, rows))
        else:
            rows = opened_target.execute("SELECT * FROM t ORDER BY rowid")
        assert hashed(rows) == case["rows_sha256"]
        found = opened_target.execute("SELECT seq, reason FROM _headway_rejects ORDER BY seq LIMIT 50")
        assert [[seq + 1, reason] for seq, reason in found] == case["reject_rows"]
    finally:
        opened_target.close()


@pytest.mark.parametrize("case", JSON, ids=lambda case: case["file"])
def test_json_is_accepted_or_rejected_as_its_authors_say(case: dict[str, Any]) -> None:
    _, fault = decoder(encoding_of("utf-8"))((TORTURE / case["file"]).read_bytes())
    if case["expect"] != "either":
        assert (fault is None) == (case["expect"] == "accept"), fault


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_json_lines_of_all_documents_reach_a_target_or_the_rejects(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)
    documents = [(TORTURE / case["file"]).read_bytes() for case in JSON if case["expect"] != "either"]
    lines = [line for line in documents if b"\n" not in line.strip() and b"\r" not in line and line.strip()]
    assert len(lines) > 80
    expected = [json.loads(line) if _is_object(line) else None for line in lines]
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"\n".join(line.rstrip() for line in lines) + b"\n")
    keys = dict.fromkeys(key for value in expected if value is not None for key in value)
    job = ImportJob(path, target, table="t", workers=1, column={"*": "text"})
    result = job.run()
    if is_server(target):  # no text and no name of PostgreSQL holds a NUL
        expected = [None if value and "\0" in repr(value) else value for value in expected]
    good = [value for value in expected if value is not None]
    assert (result.read, result.written, result.rejected) == (len(lines), len(good), len(lines) - len(good))
    opened_target = job.address.open()
    try:
        rows = opened_target.execute(f"SELECT * FROM t ORDER BY {in_file_order(target)}")
        assert [list(row) for row in rows] == [[_as_text(value.get(key)) for key in keys] for value in good]
        found = opened_target.execute("SELECT seq, line, reason FROM _headway_rejects ORDER BY seq")
        assert [row[:2] for row in found] == [(n, n + 1) for n, value in enumerate(expected) if value is None]
        assert {row[2] for row in found} == {"bad_json", "not_an_object", "bad_encoding"}
    finally:
        opened_target.close()


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _run_inline(pipeline: Pipeline[Any], stopping: object) -> Report:
    return pipeline.run(mode="inline")
