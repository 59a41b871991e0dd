"""One file of JSON lines: an object a line, whose keys are the columns.

Values are text, bool, None, or exact numbers: int, or Decimal as they are written. What is nested is given
as JSON text. What does not belong here: what a row means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headway.errors import PlanError
from headway.io.chunk import Record
from headway.io.content import Content, refuse_binary
from headway.io.encoding import Encoding, encoding_of, resolved
from headway.io.location import Location
from headway.io.ranges import Found, Head, Range
from headway.io.text_file import TextFile

try:
    import msgspec
except ModuleNotFoundError as missing:
    raise PlanError(f"JSON lines need {missing.name}: pip install 'headway[import]'") from missing

_NESTED = (dict, list)
SAMPLE_BYTES = 1 << 20
"""How much of a file is looked at for its keys."""


@dataclass(frozen=True)
class JsonlFile(TextFile):
    """JSON lines whose encoding and keys are settled."""

    encoding: str

    @classmethod
    def look(cls, location: Location, content: Content, *, encoding: str | None = None) -> JsonlFile:
        """Collect the keys of the objects in the first MiB, in order of appearance.

        Raises PlanError if the file is no text, or another encoding than was said.
        """
        start, _ = content.peek(0, 16)
        refuse_binary(start, location.name)
        name, begin = resolved(encoding, start, location.name)
        sample, ended = content.peek(0, SAMPLE_BYTES)
        lines = encoding_of(name).lines(sample[begin:])
        if not ended and len(lines) > 1:
            lines.pop()
        decode = decoder(encoding_of(name))
        names: dict[str, None] = {}
        for line in lines:
            value, _ = decode(line)
            if type(value) is dict:
                names.update(dict.fromkeys(value))
        head = Head(tuple(names), len(names), begin, 1, 0)
        return cls(location, head, content.seal, content.size, name)

    @property
    def text(self) -> Encoding:
        """Its encoding."""
        return encoding_of(self.encoding)

    def record_end(self, data: bytes) -> int:
        """Give where the last line ends."""
        if self.text.plain("\n"):
            return data.rfind(b"\n") + 1
        whole = self.text.lines(data)
        return len(data) - len(whole[-1]) if whole else 0

    def records(self, data: bytes, span: Range, found: Found) -> Iterator[Record]:
        """Give every line that is an object of known keys, as values in the order of the keys; None where one is missing."""
        lines = self.text.lines(data)
        found.lines = len(lines)
        blanks, layout, faults = found.blanks, found.layout, found.faults
        names = self.head.names or ()
        known, decode = set(names), decoder(self.text)
        index = -1
        for line, content in enumerate(lines):
            if content.isspace() or not self.text.without_ending(content):
                blanks.append(index + 1)
                continue
            index += 1
            layout.starts(index, line)
            value, fault = decode(content)
            if fault is None and type(value) is not dict:
                fault = "not_an_object", f"the line holds {_kind(value)}; a row is an object"
            elif fault is None and not known.issuperset(value):
                unknown = next(key for key in value if key not in known)
                fault = (
                    "unknown_column",
                    (
                        f"{unknown!r} is not among the columns {', '.join(names)}, which are the keys of the file's first MiB"
                    ),
                )
            if fault is not None:
                faults[index] = fault
                continue
            yield index, [item if type(item) not in _NESTED else nested(item) for item in map(value.get, names)]
        found.records = index + 1


def nested(value: Any) -> str:
    """Give a list or an object as JSON text."""
    return str(msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode(value), "utf-8")


def decoder(text: Encoding) -> Any:
    """Make the function that gives a line's value, and what is wrong with it."""
    decode = msgspec.json.Decoder(float_hook=Decimal).decode
    as_it_is = text.name == "utf-8"

    def decoded(line: bytes) -> tuple[Any, tuple[str, str] | None]:
        given: bytes | str = line
        if not as_it_is:
            given, dirty = text.decode(line)
            if dirty:
                return None, ("bad_encoding", text.fault(given) or "")
        try:
            return decode(given), None
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            if as_it_is and (what := _undecodable(text, line)):
                return None, ("bad_encoding", what)
            return None, ("bad_json", str(error))
        except RecursionError:
            return None, ("bad_json", "too deeply nested")

    return decoded


def _undecodable(text: Encoding, line: bytes) -> str | None:
    decoded, dirty = text.decode(line)
    return text.fault(decoded) if dirty else None


def _kind(value: Any) -> str:
    names: Sequence[tuple[type, str]] = (
        (bool, "true or false"),
        (list, "a list"),
        (str, "a text"),
        (type(None), "null"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "a number")
