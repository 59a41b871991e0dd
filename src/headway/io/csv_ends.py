"""Where records of CSV end: what decides where a file may be cut, and where its header ends.

Quote parity finds the ends in one cheap pass, and is trusted only where every quote stands where
RFC 4180 has it. Any other piece (a quote inside an unquoted field, text behind a closing quote, an
escape character, an encoding whose bytes cannot be looked at one by one) is read once by the parser
itself to find its last record end. What does not belong here: what the records hold.
"""

from __future__ import annotations

from operator import itemgetter

from headway.io.csv_format import SENTINEL, CsvFormat
from headway.io.encoding import text_lines

_FIRST, _LAST = itemgetter(0), itemgetter(-1)


def record_end(data: bytes, format: CsvFormat) -> int:
    """Give where the last complete record of `data` ends, or 0 if none does.

    `data` begins at a record start and goes on behind what is given. An end is a line break
    outside of quotes, LF rather than CR (whose LF might follow).
    """
    if not format.plain:
        return _parsed_end(data, format)
    quote = format.quote.encode(format.encoding) if format.quote else None
    parts = data.split(quote) if quote else [data]
    if not regular(parts, format.delimiter.encode(format.encoding)):
        return _parsed_end(data, format)
    return _last_break(data, parts, b"\n") or _last_break(data, parts, b"\r")


def regular(parts: list[bytes], delimiter: bytes) -> bool:
    """Whether quotes open only at the start of a field and close only at its end.

    `parts` is the text between quotes; the even ones are outside of quotes if so. An empty one
    between two quotes is a doubled quote.
    """
    if len(parts) == 1:
        return True
    if len(delimiter) > 1:
        return False  # a rare one, which single bytes do not tell
    edges = {*delimiter, *b"\n\r"}
    outside = parts[::2]
    behind_a_quote = filter(None, outside[1:])
    before_a_quote = filter(None, outside[:-1] if len(parts) & 1 else outside)
    return edges.issuperset(map(_FIRST, behind_a_quote)) and edges.issuperset(map(_LAST, before_a_quote))


def _last_break(data: bytes, parts: list[bytes], line_break: bytes) -> int:
    """Give the offset behind the last line break outside of quotes, or 0; behind a CR at the end its LF might follow."""
    length = len(data) - (line_break == b"\r" and data.endswith(line_break))
    start = len(data) + 1
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        start -= len(part) + 1  # the quote behind it
        if not index & 1:
            found = part.rfind(line_break, 0, max(0, length - start))
            if found >= 0:
                return start + found + 1
    return 0


def _parsed_end(data: bytes, format: CsvFormat) -> int:
    """Find the same end with the parser itself."""
    pieces, lines = _lines(data, format)
    start = end = 0
    reader = format.reader([*lines, SENTINEL])
    for _record in reader:
        start, end = end, reader.line_num
    return sum(map(len, pieces[:start]))


def _lines(data: bytes, format: CsvFormat, *, at_end: bool = False) -> tuple[list[bytes], list[str]]:
    """Give the lines that are surely complete, as bytes and as text."""
    pieces = format.text.lines(data)
    lines = text_lines(format.text.decode(data)[0])
    if not at_end and lines and not lines[-1].endswith("\n"):  # behind a CR its LF might follow
        pieces.pop()
        lines.pop()
    return pieces, lines


def first_record(data: bytes, format: CsvFormat, *, at_end: bool) -> tuple[tuple[str, ...], int, int, int] | None:
    """Give the first record that is not blank: its fields, and bytes, lines and blank lines up to its end.

    None if `data` holds no such record that is surely complete.
    """
    pieces, lines = _lines(data, format, at_end=at_end)
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
