"""What an import reads: encodings, packed files, standard input, addresses, JSON lines, Parquet."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CheckpointError, HeadwayError, PlanError, SourceError
from headway.importer.job import ImportJob, import_file
from headway.importer.result import ImportResult, TooManyRejects
from support.importing import query

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = [("1", "plain"), ("2", "é, ü"), ("3", 'two\nlines, "quoted"'), ("4", "ソ表|x"), ("5", "end")]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "headway.importer.job.run_until_stopped", lambda pipeline, _stopping: pipeline.run(mode="inline")
    )


def imported(*sources: str | Path, to: str = "a.db", **options: Any) -> ImportResult:
    return ImportJob(sources, to, **{"workers": 1, "column": {"*": "text"}, **options}).run()


def table(name: str = "t", to: str = "a.db") -> list[Any]:
    return query(Path(to), f"SELECT * FROM {name} ORDER BY rowid")


def as_csv(rows: list[tuple[str, ...]], delimiter: str = ",") -> str:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(["id", "text"])
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("range_bytes", [16, 1 << 20])
@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ("utf-8", None), ("utf-8-sig", None), ("utf-8-sig", "utf-8"), ("utf-16", None), ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16"), ("utf-16-be", "utf-16-be"), ("shift_jis", "shift_jis"), ("gb18030", "gb18030"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("delimiter", [",", "|"])
def test_a_file_in_any_encoding_is_cut_anywhere(
    stored: str, given: str | None, delimiter: str, range_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headway.importer.job.open_ranges", lambda *args: __import__("headway.io.inputs").io.inputs.open_ranges(
            *args, range_bytes=range_bytes)
    )  # fmt: skip
    rows = [row for row in ROWS if stored != "shift_jis" or "é" not in row[1]]
    text = as_csv(rows, delimiter)
    Path("a.csv").write_bytes((b"\xfe\xff" if stored == "utf-16-be" else b"") + text.encode(stored))
    result = imported("a.csv", table="t", encoding=given, delimiter=delimiter)
    assert table() == rows
    assert (result.written, result.rejected) == (len(rows), 0)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_single_byte_encodings(encoding: str) -> None:
    Path("a.csv").write_bytes("id,text\n1,é\n".encode(encoding))
    imported("a.csv", table="t", encoding=encoding)
    assert table() == [("1", "é")]


def test_utf_16_rejects_have_their_place_and_bytes() -> None:
    content = "id,text\n1,a\n2\n3,".encode("utf-16-le") + b"\x00\xd8" + "\n4,d\n5,e".encode("utf-16-le") + b"\x00"
    Path("a.csv").write_bytes(b"\xff\xfe" + content)
    result = imported("a.csv", table="t")
    assert (result.written, result.rejected) == (2, 3)
    rejects = query(
        Path("a.db"), "SELECT line, byte, length, reason, message, raw, raw_bytes FROM _headway_rejects ORDER BY seq"
    )
    assert rejects[0] == (3, 26, 2, "too_few_fields", "1 fields, expected 2", "2", None)
    assert rejects[1] == (
        4, 30, 6, "bad_encoding", "unit 0xd800 is half a character in utf-16-le", "3,\\x00\\xd8", b"3\0,\0\0\xd8",
    )  # fmt: skip
    assert rejects[2][3:] == (
        "bad_encoding", "unit 0xdc00 is half a character in utf-16-le", "5,e\\x00", b"5\0,\0e\0\0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "given", "message"),
    [
        (b"\xff\xfea\0", "utf-8", "begins as utf-16-le, not as utf-8; leave --encoding out"),
        (b"\xff\xfe\0\0", None, "UTF-32"),
    ],
)
def test_an_encoding_that_the_file_contradicts_is_refused(start: bytes, given: str | None, message: str) -> None:
    Path("a.csv").write_bytes(start)
    with pytest.raises(PlanError, match=message):
        imported("a.csv", encoding=given)


def test_nul_bytes_bad_bytes_and_fields_of_megabytes() -> None:
    long = "x" * 3_000_000
    Path("a.csv").write_bytes(b"id,text\n1,a\0b\n2,\xff\xfe\n3," + long.encode() + b"\n")
    result = imported("a.csv", table="t")
    assert table() == [("1", "a\0b"), ("3", long)]
    assert result.reasons == {"bad_encoding": 1}
    assert query(Path("a.db"), "SELECT byte, raw, raw_bytes FROM _headway_rejects") == [
        (14, "2,\\xff\\xfe", b"2,\xff\xfe")
    ]


NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001 - as a column without a zone gives it


def many(rows: int = 3000, bad: int = 1500) -> bytes:
    return b"id,text\n" + b"".join(b"%d\n" % n if n == bad else b'%d,"%04d\nx"\n' % (n, n) for n in range(rows))


@pytest.mark.parametrize("kind", PACK)
def test_a_packed_file_stops_and_goes_on_where_it_stood(kind: str) -> None:
    path = Path(f"a.csv.{kind}")
    path.write_bytes(PACK[kind](many()))
    with pytest.raises(TooManyRejects, match="line 3002"):
        imported(path, max_rejects=0)
    assert len(table("a")) == 1500
    result = imported(path, max_rejects=1)
    assert (result.resumed_at, result.read, result.written, result.rejected) == (1500, 3000, 2999, 1)
    assert [int(row[0]) for row in table("a")] == [n for n in range(3000) if n != 1500]
    byte = many().index(b"\n1500\n") + 1
    assert query(Path("a.db"), "SELECT file, seq, line, byte, raw FROM _headway_rejects") == [
        (str(path.resolve()), 1500, 3002, byte, "1500")
    ]
    assert imported(path, max_rejects=1).already_finished


@pytest.mark.parametrize("kind", PACK)
def test_a_packed_file_that_is_cut_off_fails_behind_what_could_be_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from random import Random

    random = Random(1)
    content = b"id,text\n" + b"".join(b"%d,%s\n" % (n, random.randbytes(40).hex().encode()) for n in range(40_000))
    Path(f"a.csv.{kind}").write_bytes(PACK[kind](content)[:-1000])
    with pytest.raises((SourceError, HeadwayError), match=rf"a.csv.{kind} cannot be read on behind byte"):
        imported(f"a.csv.{kind}")
    rows = table("a")
    assert 0 < len(rows) < 40_000
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    assert query(Path("a.db"), "SELECT finished_at FROM _headway_jobs") == [(None,)]


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("at", [1, 0.5])
def test_a_damaged_member_of_a_packed_file_is_not_its_end(kind: str, at: float) -> None:
    parts = ["id,name\n" + lines(0, 3000), lines(3000, 3500), lines(3500, 6000)]
    packed = [bytearray(PACK[kind](part.encode())) for part in parts]
    Path(f"whole.csv.{kind}").write_bytes((b"\0" * 8).join(packed) + b"\0" * 4)
    assert import_file(f"whole.csv.{kind}", "a.db", table="t").written == 6000
    packed[1][int(at * len(packed[1])) if at < 1 else 1] ^= 0x55
    Path(f"damaged.csv.{kind}").write_bytes(b"".join(packed))
    with pytest.raises(HeadwayError, match="cannot be read on"):
        import_file(f"damaged.csv.{kind}", "a.db", table="u")


def test_zstd_that_begins_with_a_frame_to_be_skipped() -> None:
    Path("a.csv.zst").write_bytes(
        b"\x52\x2a\x4d\x18\x04\0\0\0abcd" + zstd.compress(b"id,name\n" + lines(0, 10).encode())
    )
    assert import_file("a.csv.zst", "a.db", table="t").written == 10


def test_a_file_that_is_replaced_while_it_is_read_does_not_end_as_finished() -> None:
    text = "id,name\n" + lines(0, 200_000)
    Path("a.csv").write_text(text)
    Path("b.csv").write_text(text.replace("name", "NAME"))
    other = Path("b.csv")

    def replaced(_job: Any) -> None:
        if other.exists():
            other.replace("a.csv")

    with pytest.raises(CheckpointError, match="was changed while it was read"):
        ImportJob("a.csv", "a.db", table="t", advance=replaced).run()
    assert query(Path("a.db"), "SELECT finished_at FROM _headway_jobs") == [(None,)]


def lines(start: int, end: int) -> str:
    return "".join(f"{number},name{number}\n" for number in range(start, end))


def test_a_packed_file_with_another_content_is_refused() -> None:
    Path("a.csv.gz").write_bytes(gzip.compress(many()))
    imported("a.csv.gz")
    Path("a.csv.gz").write_bytes(gzip.compress(many(2999)))
    with pytest.raises(CheckpointError, match="the file has changed since"):
        imported("a.csv.gz")


def by_pipe(content: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [
        sys.executable, "-m", "headway", "import", "-", "--to", "a.db", "--table", "t", "--workers", "1", *more
    ]  # fmt: skip
    return subprocess.run(command, input=content, capture_output=True, check=False)


def test_standard_input_stops_goes_on_and_ends() -> None:
    content = gzip.compress(many())
    stopped = by_pipe(content, "--max-rejects", "0", "--column", "*=text")
    assert stopped.returncode == 3, stopped.stderr
    assert len(table()) == 1500
    changed = by_pipe(many(2000, 1500).replace(b"0007", b"aaaa"), "--column", "*=text")
    assert changed.returncode == 1
    assert b"with another content of -" in changed.stderr
    went_on = by_pipe(content, "--json", "--column", "*=text")
    assert went_on.returncode == 0, went_on.stderr
    assert json.loads(went_on.stdout)["resumed_at"] == 1500
    assert [int(row[0]) for row in table()] == [n for n in range(3000) if n != 1500]
    again = by_pipe(content, "--column", "*=text")
    assert again.returncode == 0
    assert b"Nothing was done" in again.stdout
    assert query(Path("a.db"), "SELECT file FROM _headway_rejects") == [("-",)]


def test_standard_input_that_goes_on_behind_a_finished_job_is_told() -> None:
    content = b"id,text\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(20_000))
    assert by_pipe(content).returncode == 0
    longer = by_pipe(content + b"7,8\n")
    assert longer.returncode == 1
    assert b"goes on behind the byte where it ended" in longer.stderr
    assert by_pipe(content + b"7,8\n", "--accept-changed").returncode == 0
    assert table()[-1] == (7, 8)
    assert len(table()) == 20_001


def test_an_address_is_read_as_any_other_source() -> None:
    fsspec = pytest.importorskip("fsspec", reason="addresses need the extra import")
    for name, content in (("x.csv", many()), ("y.csv.gz", gzip.compress(many(10, -1)))):
        with fsspec.open(f"memory://in/{name}", "wb") as file:
            file.write(content)
    with pytest.raises(TooManyRejects):
        imported("memory://in/x.csv", "memory://in/y.csv.gz", table="t", max_rejects=0)
    result = imported("memory://in/x.csv", "memory://in/y.csv.gz", table="t")
    assert (result.resumed_at, result.read, result.rejected) == (1500, 3010, 1)
    assert [int(row[0]) for row in table()] == [n for n in range(3000) if n != 1500] + list(range(10))
    assert query(Path("a.db"), "SELECT file FROM _headway_rejects") == [("memory://in/x.csv",)]
    with fsspec.open("memory://in/x.csv", "wb") as file:
        file.write(many(2999))
    with pytest.raises(CheckpointError, match=r"with another content of memory://in/x.csv"):
        imported("memory://in/x.csv", "memory://in/y.csv.gz", table="t")


def test_an_address_of_the_web(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="http addresses need the extra import")
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "a.csv").write_bytes(many(100, 50))
    server = (
        "import http.server, functools, sys\n"
        "h = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])\n"
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), h); print(s.server_port, flush=True); s.serve_forever()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", server, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        address = f"http://user:secret@127.0.0.1:{port}/a.csv"
        command = [sys.executable, "-m", "headway", "import", address, "--to", "a.db", "--workers", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        gone = subprocess.run(
            [*command[:4], address.replace("a.csv", "b.csv"), *command[5:]], capture_output=True, text=True, check=False
        )
        child.terminate()
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stderr + done.stdout
    assert len(table("a")) == 99
    assert query(Path("a.db"), "SELECT file FROM _headway_rejects") == [(f"http://127.0.0.1:{port}/a.csv",)]
    assert gone.returncode == 2
    assert "b.csv" in gone.stderr
    assert "Traceback" not in gone.stderr


def test_an_answer_of_the_web_that_breaks_off_is_told() -> None:
    pytest.importorskip("aiohttp", reason="http addresses need the extra import")
    server = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True:\n"
        "    c, _ = s.accept(); c.recv(65536)\n"
        "    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 4000\\r\\n\\r\\nid,name\\n1,a\\n'); c.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = f"http://127.0.0.1:{int(child.stdout.readline())}/a.csv"
        command = [sys.executable, "-m", "headway", "import", address, "--to", "a.db", "--workers", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        child.terminate()
    assert done.returncode == 1
    assert f"{address} cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_field_of_json_lines_that_is_null_in_the_sample_is_text() -> None:
    Path("a.jsonl").write_text('{"id":1,"z":null}\n')
    Path("b.jsonl").write_text('{"id":2,"z":"abc"}\n{"id":3,"z":true}\n{"id":4,"z":9007199254740993}\n')
    assert import_file(["a.jsonl", "b.jsonl"], "a.db", table="t").reasons == {}
    assert query(Path("a.db"), "SELECT z FROM t ORDER BY id") == [(None,), ("abc",), ("true",), ("9007199254740993",)]


def test_json_lines_make_typed_columns_and_rejects_with_their_place() -> None:
    Path("a.jsonl").write_bytes(
        b'{"id": 1, "amount": 1.10, "ok": true, "name": "5", "more": {"a": [1]}}\n'
        b"\n"
        b'{"id": 2, "amount": 20, "name": "\xc3\xa9"}\r\n'
        b'{"id": 3, "amount": 1.105}\n'
        b"[1]\n"
        b'{"id": 4\n'
        b'{"id": 5, "name": "\xff"}\n'
        b"nope"
    )
    result = imported("a.jsonl", column=())
    assert query(Path("a.db"), "SELECT * FROM a ORDER BY rowid") == [
        (1, "1.100", 1, "5", '{"a":[1]}'), (2, "20.000", None, "é", None), (3, "1.105", None, None, None),
    ]  # fmt: skip
    assert (result.read, result.skipped) == (8, 1)
    content = Path("a.jsonl").read_bytes()
    assert query(Path("a.db"), "SELECT seq, line, byte, length, reason, raw FROM _headway_rejects ORDER BY seq") == [
        (3, 5, content.index(b"[1]\n"), 3, "not_an_object", "[1]"),
        (4, 6, content.index(b'{"id": 4'), 8, "bad_json", '{"id": 4'),
        (5, 7, content.index(b'{"id": 5'), 22, "bad_encoding", '{"id": 5, "name": "\\xff"}'),
        (6, 8, content.index(b"nope"), 4, "bad_json", "nope"),
    ]


def test_json_lines_keep_keys_behind_the_sample_from_being_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.io.jsonl_file.SAMPLE_BYTES", 20)
    Path("a.jsonl").write_text('{"id": 1}\n{"id": 2}\n{"id": 3, "late": 1}\n{"id": 4}\n')
    result = imported("a.jsonl", column=())
    assert (result.written, result.reasons) == (3, {"unknown_column": 1})
    assert "'late' is not among the columns id" in result.firsts["unknown_column"][1]


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ('1 -2 "x"', ["1", "-2", "x"]),
        ("1.50 2 -0.125", ["1.500", "2.000", "-0.125"]),
        ("1e300 0.5", [1e300, 0.5]),
        ("1e400 0.5", ["1E+400", "0.5"]),
        ("12345678901234567890123456789 1", ["12345678901234567890123456789", "1"]),
        ('"007" "1"', ["007", "1"]),
        ("true 1", ["true", "1"]),
        ("null true", [None, 1]),
    ],
)
def test_a_column_of_json_lines_has_a_type_that_keeps_its_values(values: str, stored: list[Any]) -> None:
    Path("a.jsonl").write_text("".join(f'{{"x": {value}}}\n' for value in values.split()))
    assert imported("a.jsonl", column=()).rejected == 0
    assert query(Path("a.db"), "SELECT x FROM a ORDER BY rowid") == [(value,) for value in stored]


def test_parquet_keeps_its_types_and_goes_on_where_it_stood() -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra import")
    import pyarrow.parquet as pq

    rows = 30_000
    pq.write_table(
        pa.table(
            {
                "id": pa.array([*range(20_000), None, *range(20_001, rows)], pa.int64()),
                "amount": pa.array([Decimal("1.10")] * rows, pa.decimal128(10, 2)),
                "at": pa.array([NOON] * rows, pa.timestamp("ns")),
                "day": pa.array(["a"] * rows).dictionary_encode(),
            }
        ),
        "a.parquet",
        row_group_size=25_000,
    )
    with pytest.raises(TooManyRejects):
        imported("a.parquet", to="a.duckdb", key="id", max_rejects=0, column=())
    result = imported("a.parquet", to="a.duckdb", key="id", column=())
    assert (result.resumed_at, result.read, result.written) == (20_000, rows, rows - 1)
    found = query(Path("a.duckdb"), 'SELECT count(*), sum(id), min(amount), min("at"), min(day) FROM a')
    assert found == [(rows - 1, sum(range(rows)) - 20_000, Decimal("1.10"), NOON, "a")]
    rejects = query(Path("a.duckdb"), "SELECT seq, line, byte, length, reason, raw FROM _headway_rejects")
    assert [row[:5] for row in rejects] == [(20_000, 20_001, 20_000, 0, "null_key")]
    assert json.loads(rejects[0][5]) == {"id": None, "amount": 1.1, "at": "2024-01-01T12:00:00", "day": "a"}
    assert imported("a.parquet", to="a.duckdb", key="id", column=()).already_finished
