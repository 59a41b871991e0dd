"""How text stands in bytes: decoding that loses nothing, and lines of bytes that match lines of text.

What does not belong here: what the text means.
"""

from __future__ import annotations

import codecs
import io
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import ClassVar

from headway.errors import PlanError

ESCAPED = re.compile("[\ud800-\udfff]")
"""What could not be decoded, as `Encoding.decode` leaves it."""

_BARE_CR = re.compile(rb"\r(?!\n)")
_STATEFUL = frozenset({"utf-7", "hz", "iso2022_jp", "iso2022_kr"})
_ONE_BYTE_TRAILS_ABOVE = 0x30
"""Second bytes of the multi-byte encodings that can be cut (shift_jis, gbk, gb18030, big5, ...) are at least this."""
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_ORDERS = ("utf-16-le", "utf-16-be")


def _escape_byte(error: UnicodeError) -> tuple[str, int]:
    """Decode one byte of a bad sequence as a lone surrogate, like `surrogateescape` on any codec."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return chr(0xDC00 + error.object[error.start]), error.start + 1


codecs.register_error("headway.escape", _escape_byte)


def bare_cr(data: bytes) -> bool:
    """Whether there is a CR without its LF; of an encoding in which these stand for nothing else."""
    return b"\r" in data and _BARE_CR.search(data) is not None


class LineStarts:
    """Where lines start that all end with LF: found for the few that are asked for, without cutting the others."""

    _BLOCK = 4096

    def __init__(self, data: bytes) -> None:
        self._data = data
        blocks = (data.count(b"\n", start, start + self._BLOCK) for start in range(0, len(data), self._BLOCK))
        self._before = list(accumulate(blocks, initial=0))
        """line breaks before each block"""

    def __getitem__(self, line: int) -> int:
        """Give where a line starts, or the end if there is none behind the last line break."""
        if line == 0:
            return 0
        block = bisect_left(self._before, line) - 1
        if block == len(self._before) - 1:
            return len(self._data)
        at = block * self._BLOCK - 1
        for _ in range(line - self._before[block]):
            at = self._data.index(b"\n", at + 1)
        return at + 1


class Encoding(ABC):
    """One encoding. Line breaks are CR, LF and CRLF, in bytes as in text."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def decode(self, data: bytes) -> tuple[str, bool]:
        """Give the text, and whether it holds what could not be decoded (see `ESCAPED`)."""

    @abstractmethod
    def lines(self, data: bytes) -> list[bytes]:
        """Cut bytes as `text_lines` cuts their text; both give the same number of lines."""

    def line_starts(self, data: bytes) -> LineStarts | Sequence[int]:
        """Give where each line starts, and the end."""
        return list(accumulate(map(len, self.lines(data)), initial=0))

    @abstractmethod
    def line_breaks(self, data: bytes) -> int:
        """Count the line breaks."""

    @abstractmethod
    def without_ending(self, line: bytes) -> bytes:
        """Take CR and LF away at the end."""

    @abstractmethod
    def printable(self, data: bytes) -> tuple[str, bool]:
        r"""Give the text with what could not be decoded as ``\xNN``, and whether there was any."""

    @abstractmethod
    def fault(self, text: str) -> str | None:
        """Say what could not be decoded first; None if all of the text could."""

    def encoded(self, text: str) -> bytes:
        """Give text as bytes."""
        return text.encode(self.name, "surrogatepass")

    @abstractmethod
    def plain(self, characters: str) -> bool:
        """Whether each character is the same bytes everywhere and these bytes stand for nothing else."""


class ByteEncoding(Encoding):
    """ASCII is single bytes, and CR and LF occur nowhere else: lines can be found without decoding."""

    def decode(self, data: bytes) -> tuple[str, bool]:
        try:
            return data.decode(self.name), False
        except UnicodeDecodeError:
            return data.decode(self.name, "headway.escape"), True

    def lines(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def line_breaks(self, data: bytes) -> int:
        return data.count(b"\n") + (len(_BARE_CR.findall(data)) if bare_cr(data) else 0)

    def line_starts(self, data: bytes) -> LineStarts | Sequence[int]:
        return super().line_starts(data) if bare_cr(data) else LineStarts(data)

    def without_ending(self, line: bytes) -> bytes:
        return line.rstrip(b"\r\n")

    def printable(self, data: bytes) -> tuple[str, bool]:
        text, dirty = self.decode(data)
        return (ESCAPED.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text), True) if dirty else (text, False)

    def fault(self, text: str) -> str | None:
        found = ESCAPED.search(text)
        return f"byte \\x{ord(found[0]) - 0xDC00:02x} is not {self.name}" if found else None

    def plain(self, characters: str) -> bool:
        if self.name == "utf-8" or _is_single_byte(self.name):
            return True
        return all(ord(character) < _ONE_BYTE_TRAILS_ABOVE for character in characters)


class WideEncoding(Encoding):
    """UTF-16 in one byte order."""

    _UNIT: ClassVar[int] = 2

    def decode(self, data: bytes) -> tuple[str, bool]:
        try:
            return data.decode(self.name), False
        except UnicodeDecodeError:
            whole = len(data) - len(data) % self._UNIT
            text = data[:whole].decode(self.name, "surrogatepass")
            return text + "".join(chr(0xDC00 + byte) for byte in data[whole:]), True

    def lines(self, data: bytes) -> list[bytes]:
        lines = text_lines(self.decode(data)[0])
        ends = list(accumulate((len(self.encoded(line)) for line in lines), initial=0))
        ends[-1] = len(data)  # half a unit at the end
        return [data[start:end] for start, end in pairwise(ends)]

    def line_breaks(self, data: bytes) -> int:
        text = self.decode(data)[0]
        return text.count("\n") + text.count("\r") - text.count("\r\n")

    def without_ending(self, line: bytes) -> bytes:
        while line.endswith((self.encoded("\n"), self.encoded("\r"))):
            line = line[: -self._UNIT]
        return line

    def printable(self, data: bytes) -> tuple[str, bool]:
        whole = len(data) - len(data) % self._UNIT
        text, dirty = self.decode(data[:whole])
        if not dirty and whole == len(data):
            return text, False
        rest = "".join(f"\\x{byte:02x}" for byte in data[whole:])
        return ESCAPED.sub(lambda unit: "".join(f"\\x{b:02x}" for b in self.encoded(unit[0])), text) + rest, True

    def fault(self, text: str) -> str | None:
        found = ESCAPED.search(text)
        return f"unit {ord(found[0]):#06x} is half a character in {self.name}" if found else None

    def plain(self, characters: str) -> bool:
        return False


@lru_cache
def encoding_of(name: str) -> Encoding:
    """Give the encoding of a name that `checked` or `resolved` gave."""
    return WideEncoding(name) if name in _ORDERS else ByteEncoding(name)


def checked(name: str) -> str:
    """Give the usual form of an encoding's name. Raises PlanError where text cannot be cut at line ends."""
    try:
        usual = codecs.lookup(name).name
        transparent = usual not in _STATEFUL and 'a,"\n\r'.encode(usual) == b'a,"\n\r'
    except LookupError:
        raise PlanError(f"encoding {name!r} is not known; examples: utf-8, utf-16, latin-1, cp1252") from None
    except UnicodeError:
        transparent = False
    if usual == "utf-8-sig":
        return "utf-8"
    if usual in ("utf-16", *_ORDERS):
        return usual
    if not transparent or usual.startswith("iso2022"):
        raise PlanError(
            f"encoding {name!r} cannot be cut at line ends; convert the file first: iconv -f {name} -t utf-8"
        )
    return usual


def resolved(given: str | None, start: bytes, where: object) -> tuple[str, int]:
    """Give the encoding of a file that begins with `start` (4 bytes or all), and the length of its byte order mark.

    Without a given encoding the mark decides, and UTF-8 is taken where there is none. Raises PlanError
    where the mark and what was given do not agree.
    """
    mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
    found = _MARKS.get(mark)
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise PlanError(f"{where} is UTF-32; convert it first: iconv -f utf-32 -t utf-8")
    if given is None:
        return found or "utf-8", len(mark)
    given = checked(given)
    if given == "utf-16":
        return (found, len(mark)) if found in _ORDERS else (_ORDERS[0], 0)
    if found in _ORDERS and given in ("utf-8", *_ORDERS) and found != given:
        raise PlanError(f"{where} begins as {found}, not as {given}; leave --encoding out, and it is read as it is")
    return given, len(mark) if found == given else 0


def text_lines(text: str) -> list[str]:
    """Cut at CR, LF and CRLF only (`str.splitlines` also cuts at U+2028, form feed and others)."""
    return list(io.StringIO(text, newline=""))


def sound(text: str) -> bool:
    """Whether a text holds no lone surrogates, as which `Encoding.decode` leaves what could not be decoded."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@lru_cache
def _is_single_byte(name: str) -> bool:
    """Whether every byte is a character of its own or none."""
    return len(bytes(range(256)).decode(name, "replace")) == 256
