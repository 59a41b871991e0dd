"""How a CSV file is written: delimiter, quote, encoding, and its bytes as lines of text.

Fields follow RFC 4180 as Python's `csv` reads it when not strict: a quote inside an unquoted field
is kept, text behind a closing quote is appended. What does not belong here: where a file is cut
(`csv_ranges`), what a row means (the importer).
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headway.errors import PlanError

SENTINEL = "end"
"""A line put behind the text: it comes back as a record of its own if the last record is closed."""

LONGEST_FIELD = 2**31 - 1  # what every C long can hold
ESCAPED = re.compile("[\udc80-\udcff]")
"""A byte that the encoding cannot decode, as `decode` leaves it."""

_STATEFUL = frozenset({"utf-7", "hz", "iso2022_jp", "iso2022_kr"})
_BOM = codecs.BOM_UTF8


def _escape_byte(error: UnicodeError) -> tuple[str, int]:
    """Decode one byte of a bad sequence as a lone surrogate, like `surrogateescape` on any codec."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    byte = error.object[error.start]
    return chr(0xDC00 + byte if byte >= 0x80 else byte), error.start + 1


codecs.register_error("headway.escape", _escape_byte)


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Delimiter, quote, escape and encoding of a file. With an escape, a doubled quote is no quote.

    `encoding` must write ASCII as single bytes that occur nowhere else (utf-8, latin-1, cp1252,
    shift_jis, ...), so that line ends can be found without decoding. Raises PlanError otherwise.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in ("\r", "\n", self.quote):
            raise PlanError(f"delimiter {self.delimiter!r}: give one character that is no quote and no line break")
        object.__setattr__(self, "encoding", _checked_encoding(self.encoding))

    @property
    def bom(self) -> bytes:
        """The byte order mark that is skipped at the start of a file, if it is there."""
        return _BOM if self.encoding == "utf-8" else b""

    def decode(self, data: bytes) -> tuple[str, bool]:
        """Give the text, and whether it holds bytes that could not be decoded (see `ESCAPED`)."""
        try:
            return data.decode(self.encoding), False
        except UnicodeDecodeError:
            return data.decode(self.encoding, "headway.escape"), True

    def printable(self, data: bytes) -> tuple[str, bool]:
        r"""Give the text with undecodable bytes as ``\xNN``, and whether there were any."""
        try:
            return data.decode(self.encoding), False
        except UnicodeDecodeError:
            text = data.decode(self.encoding, "headway.escape")
            return ESCAPED.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text), True

    def reader(self, lines: Iterable[str]) -> Any:
        """Give Python's CSV reader over `lines`, without a limit on the size of a field."""
        csv.field_size_limit(LONGEST_FIELD)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
        )


def text_lines(text: str) -> list[str]:
    """Cut at CR, LF and CRLF only (`str.splitlines` also cuts at U+2028, form feed and others)."""
    return list(io.StringIO(text, newline=""))


def byte_lines(data: bytes) -> list[bytes]:
    """Cut bytes as `text_lines` cuts their text; both give the same number of lines."""
    return data.splitlines(keepends=True)


def line_breaks(data: bytes) -> int:
    """Count CR, LF and CRLF."""
    breaks = data.count(b"\n")
    returns = data.count(b"\r")
    return breaks + returns - data.count(b"\r\n") if returns else breaks


def _checked_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        transparent = name not in _STATEFUL and 'a,"\n\r'.encode(name) == b'a,"\n\r'
    except LookupError:
        raise PlanError(f"encoding {encoding!r} is not known; examples: utf-8, latin-1, cp1252") from None
    except UnicodeError:
        transparent = False
    if name == "utf-8-sig":
        return "utf-8"
    if not transparent or name.startswith("iso2022"):
        raise PlanError(
            f"encoding {encoding!r} cannot be cut at line ends; convert the file first: iconv -f {encoding} -t utf-8"
        )
    return name
