"""Ranges of a CSV file: wherever it is cut, the records, lines and bytes are those of one pass over it."""

from __future__ import annotations

import csv
import io
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError, PlanError
from headway.importer.parse import ParseJob, RangeParser
from headway.importer.rowstep import RowJob
from headway.io import csv_arrow, text_file
from headway.io.columns import Text
from headway.io.csv_arrow import columns
from headway.io.csv_ends import record_end
from headway.io.csv_file import CsvFile
from headway.io.csv_format import CsvFormat
from headway.io.encoding import encoding_of
from headway.io.ranges import Found, Range
from headway.io.table import Column, Table
from support.importing import ranges_of

PIECES = [
    b"a",
    b"bc",
    b",",
    b";",
    b'"',
    b'""',
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\x00",
    "é".encode(),
    "\u2028".encode(),
    b"\xff",
]
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join)
ROWS = st.lists(st.lists(st.text(st.sampled_from(list('ab,"\n\ré;')), max_size=5), min_size=2, max_size=2), max_size=30)


def one_pass(data: bytes, format: CsvFormat) -> list[tuple[int, int, int, list[str] | None]]:
    """Line, byte, length and fields (None: left open) of every record, by Python's csv over the whole."""
    pieces = data.splitlines(keepends=True)
    lines = list(io.StringIO(data.decode("utf-8", "surrogateescape"), newline=""))
    assert len(lines) == len(pieces)
    reader = csv.reader([*lines, "end"], delimiter=format.delimiter)
    found: list[tuple[int, int, int, list[str] | None]] = []
    until = 0
    for record in reader:
        line, until = until, reader.line_num
        if line == len(lines):
            break
        if record:
            start = sum(map(len, pieces[:line]))
            raw = data[start : start + sum(map(len, pieces[line:until]))].rstrip(b"\r\n")
            found.append((line + 1, start, len(raw), record if until <= len(lines) else None))
    return found


def in_ranges(path: Path, format: CsvFormat, range_bytes: int) -> list[tuple[int, int, int, list[str] | None]]:
    """The same by ranges, each record seen by the row function, which rejects it to learn its place."""
    source = ranges_of(path, range_bytes=range_bytes, delimiter=format.delimiter, header=False)
    seen: list[list[str]] = []

    def refuse(row: tuple[str, ...]) -> None:
        seen.append(list(row))
        raise ValueError

    found: list[tuple[int, int, int, list[str] | None]] = []
    try:
        names = tuple(f"c{index}" for index in range(source.head.width))
        if not names:
            return []
        tables = (Table("t", tuple(Column(name, Text()) for name in names)),)
        job = ParseJob(source.files, RowJob(names, tables, "t", None, refuse, "sqlite"))
        parser = RangeParser(job)
        try:
            end = 0
            for number, span in enumerate(source):
                assert (span.number, span.start) == (number, end)
                end = span.end
                result = parser.parse(span)
                assert len(result.rejects) == result.records
                for row in result.rejects:
                    record = seen.pop(0) if row.fault.reason == "ValueError" else None
                    found.append((row.place.line, row.place.byte, row.place.length, record))
            assert end == source.size
        finally:
            parser.close()
    finally:
        source.close()
    return found


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=CONTENTS, range_bytes=st.integers(1, 40), delimiter=st.sampled_from(",;"))
def test_any_bytes_cut_anywhere_give_the_records_of_one_pass(
    tmp_path: Path, data: bytes, range_bytes: int, delimiter: str
) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(data)
    format = CsvFormat(delimiter)
    expected = one_pass(data, format)
    found = in_ranges(path, format, range_bytes)
    assert [place[:3] for place in found] == [place[:3] for place in expected]
    # What the parser itself rejects (width, encoding, an open quote) is not shown to the row function.
    width = len(expected[0][3] or ()) if expected else 0
    for (*_, seen), (*_, record) in zip(found, expected, strict=True):
        sound = (
            record is not None and len(record) == width and not any("\udc80" <= c <= "\udcff" for c in "".join(record))
        )
        assert seen == (record if sound else None)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    range_bytes=st.integers(1, 60),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_what_csv_writes_is_read_back_by_ranges(
    tmp_path: Path, rows: list[list[str]], range_bytes: int, ending: str, quoting: int
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator=ending, quoting=quoting).writerows(rows)
    path = tmp_path / "written.csv"
    path.write_bytes(text.getvalue().encode())
    assert [record for *_, record in in_ranges(path, CsvFormat(), range_bytes)] == rows


FIELDS = st.one_of(
    st.sampled_from([b"", b"a", b"bc d", b'"x"', b'"a,b"', b'"a""b"', b'"a\nb"', b'"\n\n"', b'"a\r\nb"', b'""']),
    st.sampled_from([b"\xff", b"\xc3\xa9", b"\xe2\x80", b"\x00", b" a", "\u2028".encode()]),
)
USUAL_ROWS = st.lists(st.lists(FIELDS, min_size=1, max_size=4).map(b",".join), max_size=30)


@settings(max_examples=600, deadline=None)
@given(
    rows=USUAL_ROWS,
    ending=st.sampled_from([b"\n", b"\r\n"]),
    closed=st.booleans(),
    last=st.booleans(),
    looked_at=st.integers(1, 100),
)
def test_arrow_reads_what_the_parser_reads_that_reads_everything(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[bytes],
    ending: bytes,
    closed: bool,
    last: bool,
    looked_at: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "usual.csv"
    path.write_bytes(b"a,b,c\n")
    with closing(ranges_of(path)) as source:
        [file] = source.files
    assert isinstance(file, CsvFile)
    data = ending.join(rows) + ending * (closed or not last)
    span = Range(0, 0, 6, 6 + len(data), 2, first=False, last=last)
    with patch.object(csv_arrow, "_LOOKED_AT", looked_at):
        quick, whole = columns(data, file.format, 3), Found()
    expected = list(file.records(data, span, whole))
    assume(quick is not None)  # else it is left to the other parser
    assert quick is not None
    given = [(source, list(record)) for source, *record in zip(quick.sources, *quick.columns, strict=True)]
    assert given == [(number, list(record)) for number, record in expected]
    assert (quick.records, quick.lines, quick.faults) == (whole.records, whole.lines, whole.faults)
    assert not whole.blanks
    lines = [[found.layout.line_of(record) for record in range(found.records)] for found in (quick, whole)]
    assert lines[0] == lines[1]


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"b" * 100, b"c" * 4095, b"d" * 4096]), max_size=40)
)
def test_lines_start_where_they_start_when_all_are_cut(parts: list[bytes]) -> None:
    text, data = encoding_of("utf-8"), b"".join(parts)
    lines = text.lines(data)
    starts = text.line_starts(data)
    assert [starts[line] for line in range(len(lines) + 1)] == list(accumulate(map(len, lines), initial=0))
    assert text.line_breaks(data) == sum(line[-1:] in (b"\n", b"\r") for line in lines)


def test_arrow_reads_a_file_as_others_write_it() -> None:
    data = b'1,x,"say ""hello"""\n2,"a\nb",\n3,"y\n\n"\n4,\xff,z\r\n5,,"z"'
    found = columns(data, CsvFormat(), 3)
    assert found is not None
    assert [list(column) for column in found.columns] == [["1", "2", "5"], ["x", "a\nb", ""], ['say "hello"', "", "z"]]
    assert found.faults == {
        2: ("too_few_fields", "2 fields, expected 3"),
        3: ("bad_encoding", "byte \\xff is not utf-8"),
    }
    assert [found.layout.line_of(record) for record in range(5)] == [0, 1, 3, 6, 7]


@pytest.mark.parametrize(
    "data",
    [b'a,b"c,d\n', b'a,"b"c,d\n', b"a,b,c\rd,e,f\n", b"a,b,c\n\nd,e,f\n", b'a,b,"c\n', b"\xef\xbb\xbfa,b,c\n", b""],
)
def test_what_parsers_read_differently_is_left_to_the_one_that_reads_everything(data: bytes) -> None:
    assert columns(data, CsvFormat(), 3) is None


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"a,b\nc,", 4),
        (b'a,"b\nc', 0),
        (b'a,"b\nc"\nd', 8),
        (b'a 5" pipe,b\nc,"x\ny"\nd', 20),
        (b'"a"b,"c\n"\nd', 10),
        (b"a\rb\r", 2),
        (b"a\r\nb", 3),
        (b'"a""\n",b\nc', 9),
        (b"a,b", 0),
        (b"", 0),
    ],
)
def test_a_range_ends_behind_the_last_record_that_is_surely_complete(data: bytes, end: int) -> None:
    assert record_end(data, CsvFormat()) == end


def test_a_stray_quote_does_not_make_the_rest_of_the_file_one_range(tmp_path: Path) -> None:
    path = tmp_path / "stray.csv"
    path.write_bytes(b"a,b\n" + b'5" pipe,1\n' + b"x,2\n" * 1000)
    source = ranges_of(path, range_bytes=100)
    spans = list(source)
    source.close()
    assert max(span.end - span.start for span in spans) <= 100
    assert len(spans) >= 40


def test_a_record_beyond_the_limit_is_an_error_that_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_file, "LONGEST_RECORD", 1000)
    path = tmp_path / "open.csv"
    path.write_bytes(b'a,b\n1,2\n3,"open\n' + b"x,y\n" * 1000)
    source = ranges_of(path, range_bytes=100)
    with pytest.raises(HeadwayError, match=r"line 3 .byte 8.*is a quote left open"):
        list(source)
    source.close()


def test_a_position_is_where_the_same_ranges_go_on(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(b"a,b\n" + b'1,"2\n3"\n' * 500)
    source = ranges_of(path, range_bytes=128)
    source.read(3)
    position = source.position()
    rest = list(source)
    source.seek(position)
    assert list(source) == rest
    assert rest[0].line == 2 + 2 * (rest[0].start - 4) // 8
    source.close()


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"\xff\xfe\x00\x00a", "UTF-32"), (b"PK\x03\x04", "zip"), (b"PAR1", "Parquet"), (b"SQLite format 3", "SQLite")],
)
def test_a_file_that_is_no_plain_csv_is_refused(tmp_path: Path, start: bytes, what: str) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(start)
    with pytest.raises(PlanError, match=what):
        ranges_of(path)


@pytest.mark.parametrize("delimiter", ["", "ab", "\n", '"'])
def test_a_delimiter_that_cannot_work_is_refused(delimiter: str) -> None:
    with pytest.raises(PlanError, match="delimiter"):
        CsvFormat(delimiter)


@pytest.mark.parametrize("encoding", ["utf-32", "utf-7", "iso2022_jp", "hz", "no-such"])
def test_an_encoding_whose_line_ends_cannot_be_found_is_refused(encoding: str) -> None:
    with pytest.raises(PlanError, match="encoding"):
        CsvFormat(encoding=encoding)


def test_the_head_skips_a_byte_order_mark_and_counts_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "bom.csv"
    path.write_bytes(b'\xef\xbb\xbf\n\r\n"na\nme",b\n1,2\n')
    source = ranges_of(path)
    source.close()
    assert source.head == (("na\nme", "b"), 2, 16, 5, 2, None)
