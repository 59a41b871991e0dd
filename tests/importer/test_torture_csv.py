"""Files that nobody here wrote, with what a careful importer must find in each."""

from __future__ import annotations

import hashlib
import json
import marshal
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline, Report
from headway.importer.job import ImportJob
from headway.importer.parse import ParseJob, RangeParser
from headway.importer.rowstep import RowJob
from headway.io.columns import Text
from headway.io.csv_format import CsvFormat
from headway.io.csv_ranges import CsvRanges
from headway.io.table import Column, Table, unique_names
from support.targets import TARGETS, in_file_order, is_server

TORTURE = Path(__file__).parents[3] / "shared" / "data" / "torture"
CUT_AT_LINE_ENDS = ("utf-8", "utf-8-sig", "latin-1", "shift_jis")
EXPECTED = TORTURE / "expected.json"
if not EXPECTED.is_file():
    pytest.skip("needs the torture files beside the repository (../shared)", allow_module_level=True)
FILES = [
    case
    for case in json.loads(EXPECTED.read_text())["files"]
    if case["format"] == "csv" and case["compression"] is None and case["dialect"]["encoding"] in CUT_AT_LINE_ENDS
]


def parsed(case: dict[str, Any], range_bytes: int) -> tuple[list[list[str]], list[tuple[int, str]], int, CsvRanges]:
    dialect = case["dialect"]
    format = CsvFormat(dialect["delimiter"], dialect["quote"], dialect["escape"], dialect["encoding"])
    source = CsvRanges(TORTURE / case["file"], format, header=dialect["header"], range_bytes=range_bytes)
    rows: list[list[str]] = []
    rejects: list[tuple[int, str]] = []
    records, blanks = 0, source.head.blanks
    try:
        if source.head.width:
            names = unique_names(source.head.names or [""] * source.head.width)
            table = Table("t", tuple(Column(name, Text()) for name in names))
            parser = RangeParser(
                ParseJob(str(source.path), source.size, format, RowJob(names, (table,), "t", None, None, "sqlite"))
            )
            end = source.head.start
            for span in source:
                assert span.start == end
                end = span.end
                result = parser.parse(span)
                blanks += len(result.blanks)
                rejects += [(records + row.record + 1, row.fault.reason) for row in result.rejects]
                data = source.path.read_bytes()
                for row in result.rejects:
                    place = row.place
                    assert data[place.byte : place.byte + place.length] == place.raw
                records += result.records
                rows += map(
                    list, zip(*marshal.loads(result.tables["t"].payload), strict=True) if "t" in result.tables else []
                )
            assert end == source.size
            parser.close()
    finally:
        source.close()
    return rows, rejects, blanks, source


@pytest.mark.parametrize("range_bytes", [7, 64, 1 << 20])
@pytest.mark.parametrize("case", FILES, ids=lambda case: case["file"])
def test_rows_rejects_and_blank_lines_are_the_expected_ones(case: dict[str, Any], range_bytes: int) -> None:
    rows, rejects, blanks, _ = parsed(case, range_bytes)
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    assert (len(rows), len(rejects), blanks) == (case["rows"], case["rejects"], case["blank_lines_skipped"])
    assert [list(reject) for reject in rejects[:50]] == case["reject_rows"]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == case["rows_sha256"]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in FILES
        if case["dialect"]["quote"] == '"' and case["dialect"]["escape"] is None and case["records"]
    ],
    ids=lambda case: case["file"],
)
def test_a_target_holds_the_expected_rows_in_file_order(
    case: dict[str, Any], target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.importer.job.run_until_stopped", _run_inline)  # a process each is slow
    dialect = case["dialect"]
    job = ImportJob(
        TORTURE / case["file"],
        target,
        table="t",
        delimiter=dialect["delimiter"],
        encoding=dialect["encoding"],
        no_header=not dialect["header"],
        workers=1,
        column={"*": "text"},
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
    opened = job.address.open()
    try:
        rows = opened.execute(f"SELECT * FROM t ORDER BY {in_file_order(target)}")
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        assert hashlib.sha256("".join(lines).encode()).hexdigest() == case["rows_sha256"]
        found = opened.execute("SELECT seq, reason FROM _headway_rejects ORDER BY seq LIMIT 50")
        assert [[seq + 1, reason] for seq, reason in found] == case["reject_rows"]
    finally:
        opened.close()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7"])
def test_an_encoding_that_cannot_be_cut_is_refused_with_the_way_out(encoding: str, tmp_path: Path) -> None:
    from headway.errors import PlanError

    with pytest.raises(PlanError, match="iconv"):
        ImportJob(TORTURE / "duckdb/encodings__utf16.csv", tmp_path / "bank.db", encoding=encoding)


@pytest.mark.parametrize(("name", "what"), [("encodings__utf16.csv", "UTF-16"), ("rabo-anon.csv.gz", "gzip")])
def test_utf_16_and_compressed_files_are_refused_by_their_first_bytes(name: str, what: str, tmp_path: Path) -> None:
    from headway.errors import PlanError

    with pytest.raises(PlanError, match=what):
        ImportJob(TORTURE / "duckdb" / name, tmp_path / "bank.db").run()
    assert not (tmp_path / "bank.db").exists()


def _run_inline(pipeline: Pipeline[Any], stopping: object) -> Report:
    return pipeline.run(mode="inline")
