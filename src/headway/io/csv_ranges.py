"""A CSV file as ranges: pieces of about 1 MiB, each ending at a record end.

A range is only numbers, so that it costs nothing to send; whoever works on it reads its bytes. A
range starts at a true record start, always: quote parity finds the ends in one cheap pass, and it
is trusted only where every quote stands where RFC 4180 has it. Any other piece (a quote inside an
unquoted field, text behind a closing quote, an escape character) is read once by the parser itself
to find its last record end. What does not belong here: what the records hold.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import HeadwayError, PlanError
from headway.io.csv_format import SENTINEL, CsvFormat, byte_lines, line_breaks, text_lines

RANGE_BYTES = 1 << 20
LONGEST_RECORD = 256 << 20
HASHED_BYTES = 64 << 10

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
}


class Range(NamedTuple):
    """Whole records of a file: its bytes `start` to `end`; `line` is the physical line of `start`."""

    number: int
    start: int
    end: int
    line: int


class Head(NamedTuple):
    """What stands before the first row: the names, or only how many fields the first record has."""

    names: tuple[str, ...] | None
    width: int
    start: int
    line: int
    blanks: int


class CsvRanges:
    """Source of `Range`, in file order and without gaps.

    The file's size is fixed when it is opened. Raises PlanError if the file cannot be imported
    (missing, not a regular file, compressed, UTF-16), HeadwayError where one record is longer
    than 256 MiB. `position` is (byte, line, number) of the next range, for `seek`.
    """

    def __init__(
        self,
        path: str | Path,
        format: CsvFormat | None = None,
        *,
        header: bool = True,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self.path, self.format, self._range_bytes = Path(path), format or CsvFormat(), range_bytes
        self._stopped = False
        self._descriptor = _opened(self.path)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self.head = self._read_head(header=header)
        except BaseException:
            self.close()
            raise
        self._number, self._at, self._line = 0, self.head.start, self.head.line

    def read(self, n: int) -> Sequence[Range]:
        """Give up to `n` ranges; none at the end of the file."""
        ranges: list[Range] = []
        while len(ranges) < n and self._at < self.size and not self._stopped:
            end, breaks = self._next_end()
            ranges.append(Range(self._number, self._at, end, self._line))
            self._number, self._at, self._line = self._number + 1, end, self._line + breaks
        return ranges

    def __iter__(self) -> Iterator[Range]:
        while ranges := self.read(1):
            yield ranges[0]

    def position(self) -> dict[str, int]:
        """Where the next range begins."""
        return {"byte": self._at, "line": self._line, "number": self._number}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on at an earlier `position`."""
        self._at, self._line, self._number = position["byte"], position["line"], position["number"]

    def fingerprint(self) -> str:
        """Give the size, and a hash of the first and the last 64 KiB."""
        digest = hashlib.sha256(os.pread(self._descriptor, HASHED_BYTES, 0))
        digest.update(os.pread(self._descriptor, HASHED_BYTES, max(0, self.size - HASHED_BYTES)))
        return f"{self.size}:{digest.hexdigest()}"

    def stop(self) -> None:
        """Give no more ranges, from now on; from any thread."""
        self._stopped = True

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _next_end(self) -> tuple[int, int]:
        """Give the end of the range that begins here, and its line breaks."""
        wanted = self._range_bytes
        while True:
            data = os.pread(self._descriptor, wanted, self._at)
            if self._at + len(data) >= self.size:
                return self.size, line_breaks(data)
            if len(data) < wanted:
                raise HeadwayError(f"{self.path} became shorter while it was read")
            if length := record_end(data, self.format):
                return self._at + length, line_breaks(data[:length])
            wanted *= 2
            if wanted > LONGEST_RECORD:
                raise HeadwayError(
                    f"{self.path}: the record that starts at line {self._line} (byte {self._at}) is longer than "
                    f"{LONGEST_RECORD >> 20} MiB; is a quote left open there?"
                )

    def _read_head(self, *, header: bool) -> Head:
        start = os.pread(self._descriptor, 6, 0)
        for mark, name in _PACKED.items():
            if start.startswith(mark):
                raise PlanError(f"{self.path} is a {name} file; unpack or convert it to plain CSV first")
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise PlanError(f"{self.path} is UTF-16; convert it first: iconv -f utf-16 -t utf-8")
        begin = len(self.format.bom) if self.format.bom and start.startswith(self.format.bom) else 0
        wanted = min(self._range_bytes, 1 << 16)
        while True:
            data = os.pread(self._descriptor, wanted, begin)
            at_end = begin + len(data) >= self.size
            head = _first_record(data, self.format, at_end=at_end)
            if head is not None:
                names, length, lines, blanks = head
                if not header:
                    return Head(None, len(names), begin, 1, 0)
                return Head(names, len(names), begin + length, 1 + lines, blanks)
            wanted *= 2
            if wanted > LONGEST_RECORD:
                raise PlanError(f"{self.path}: no record ends in the first {LONGEST_RECORD >> 20} MiB")


def record_end(data: bytes, format: CsvFormat) -> int:
    """Give where the last complete record of `data` ends, or 0 if none does.

    `data` begins at a record start and goes on behind what is given. An end is a line break
    outside of quotes, LF rather than CR (whose LF might follow).
    """
    if format.escape is not None:
        return _parsed_end(data, format)
    quote = format.quote.encode(format.encoding) if format.quote else None
    parts = data.split(quote) if quote else [data]
    if not _regular(parts, format.delimiter.encode(format.encoding)):
        return _parsed_end(data, format)
    return _last_break(parts, b"\n", len(data)) or _last_break(parts, b"\r", len(data) - data.endswith(b"\r"))


def _regular(parts: list[bytes], delimiter: bytes) -> bool:
    """Whether quotes open only at the start of a field and close only at its end.

    `parts` is the text between quotes; the even ones are outside of quotes if so. An empty one
    between two quotes is a doubled quote.
    """
    if len(parts) == 1:
        return True
    edges = (delimiter, b"\n", b"\r")
    last = len(parts) - 1
    if parts[0] and not parts[0].endswith(edges):
        return False
    if not last & 1 and parts[last] and not parts[last].startswith(edges):
        return False
    between = set(parts[2:last:2])
    between.discard(b"")
    return all(part.startswith(edges) and part.endswith(edges) for part in between)


def _last_break(parts: list[bytes], line_break: bytes, length: int) -> int:
    """Give the offset behind the last line break outside of quotes within `length`, or 0."""
    start = sum(map(len, parts)) + len(parts) - 1 if parts else 0
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        start -= len(part)
        if not index & 1:
            found = part.rfind(line_break, 0, max(0, length - start))
            if found >= 0:
                return start + found + 1
        start -= 1  # the quote before it
    return 0


def _parsed_end(data: bytes, format: CsvFormat) -> int:
    """Find the same end with the parser itself."""
    pieces = byte_lines(data)
    if not data.endswith(b"\n"):
        pieces.pop()
    lines = text_lines(format.decode(b"".join(pieces))[0])
    lines.append(SENTINEL)
    start = end = 0
    reader = format.reader(lines)
    for _record in reader:
        start, end = end, reader.line_num
    return sum(map(len, pieces[:start]))


def _first_record(data: bytes, format: CsvFormat, *, at_end: bool) -> tuple[tuple[str, ...], int, int, int] | None:
    """Give the first record that is not blank: its fields, and bytes, lines and blank lines up to its end.

    None if `data` holds no such record that is surely complete.
    """
    pieces = byte_lines(data)
    if not at_end and pieces and not data.endswith(b"\n"):
        pieces.pop()
    lines = text_lines(format.decode(b"".join(pieces))[0])
    blanks = start = used = 0
    reader = format.reader([*lines, SENTINEL])
    for record in reader:
        start, used = used, reader.line_num
        if start == len(lines) or (used > len(lines) and not at_end):
            break
        if record:
            used = min(used, len(lines))
            return tuple(record), sum(map(len, pieces[:used])), used, blanks
        blanks += 1
    return ((), len(data), len(lines), blanks) if at_end else None


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise PlanError(f"{path}: there is no such file") from None
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PlanError(f"{path} is not a regular file")
    return descriptor
