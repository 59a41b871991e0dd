"""Values as text that loses nothing, for databases that take text where they have no better type.

Decimals come with their full scale, dates and timestamps as in ISO 8601 with a space before the
time, booleans as 1 and 0; int, float, text and bytes stay what they are. What does not belong here:
a database.
"""

from __future__ import annotations

import builtins
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from headway.io.chunk import RECORDS_AT_ONCE, ArrowColumn
from headway.io.columns import ColumnType, Exact, Int
from headway.io.target import Fitted

_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "decimal": "{:f}".format,
    "date": str,
    "timestamp": lambda value: value.isoformat(" "),
    "bool": int,
}
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_STAMP = re.compile(rb"0{4}-00-00[T ]00:00:00Z?")
"""What is left of a timestamp of the usual form where each digit is a zero."""
_STAMPS = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}Z?+,)*+", re.ASCII)


NUL = "\x00"
_AS_ARROW_WRITES = ("decimal", "date", "timestamp")
_PLAIN_SCALE = 6
"""Digits behind the point up to which Arrow writes no decimal with an exponent."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A column of texts as one, in UTF-8 if it is not ASCII, which travels for next to nothing.

    The separator stands in none of them. What stands at `nulls` is none.
    """

    whole: str | bytes
    separator: str
    count: int
    nulls: Sequence[int] = ()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str | None]:
        return chain.from_iterable(self._pieces())

    @property
    def text(self) -> str:
        """The texts with the separator between them."""
        return self.whole if isinstance(self.whole, str) else self.whole.decode()

    def _pieces(self) -> Iterator[list[str | None]]:
        """Give the texts some at a time: those of all columns of a row are then made while they are near the processor."""
        rest = self.text
        start, nulls = 0, iter((*self.nulls, self.count))
        null = next(nulls)
        while start < self.count:
            texts: list[Any] = rest.split(self.separator, RECORDS_AT_ONCE)
            rest = texts.pop() if len(texts) > RECORDS_AT_ONCE else ""
            while null < start + len(texts):
                texts[null - start] = None
                null = next(nulls)
            start += len(texts)
            yield texts


def whole_numbers(type: ColumnType, values: Sequence[Any]) -> Sequence[int] | None:
    """Store a column of int as it is; None for any other."""
    if type != Int() or {*map(builtins.type, values)} != {int}:
        return None
    return values if min(values) >= -(1 << 63) and max(values) < 1 << 63 else None


def joined(type: ColumnType, values: Sequence[Any]) -> Joined | None:
    """Store a column of str of the usual form as one text; None where each value has to be looked at."""
    try:
        if type.kind == "text":
            whole = NUL.join(values)
            alone = whole.count(NUL) == len(values) - 1
            return Joined(whole if whole.isascii() else whole.encode(), NUL, len(values)) if alone else None
        if isinstance(type, Exact):
            whole = ",".join(values)  # a value with a comma of its own would read as two
            form, negative_zero = _decimals(type.precision, type.scale)
            alone = whole.count(",") == len(values) - 1 and negative_zero not in f"{whole},"
            return Joined(whole, ",", len(values)) if alone and form.fullmatch(f"{whole},") else None
        return _quick_stamps(values) if type.kind == "timestamp" else None
    except (TypeError, UnicodeEncodeError):  # one is no text, or holds a lone surrogate
        return None


def written(type: ColumnType, values: Sequence[Any]) -> Fitted | None:
    """Convert a column that Arrow holds, and store it as its texts or whole numbers; None where it does that otherwise."""
    if not isinstance(values, ArrowColumn) or not (type.kind in ("text", *_AS_ARROW_WRITES) or type == Int()):
        return None
    from headway.io.arrow import held

    found = held(type, values)
    if found is None or (isinstance(type, Exact) and type.scale > _PLAIN_SCALE):
        return None
    array = found.stored
    if type.kind == "timestamp":
        seconds = array.cast("timestamp[s]", safe=False)
        if not seconds.cast(array.type).equals(array):
            return None
        array = seconds
    return found._replace(stored=ArrowColumn(array.cast("string") if type.kind in _AS_ARROW_WRITES else array))


def store(type: ColumnType, values: Sequence[Any]) -> Sequence[Any]:
    """Write converted values."""
    write = _WRITTEN.get(type.kind)
    return values if write is None else [None if value is None else write(value) for value in values]


def join(parts: list[bytes]) -> list[bytes]:
    """Make the payload: the parts as they are."""
    return parts


def _quick_stamps(values: Sequence[str]) -> Joined | None:
    whole = ",".join(values)
    digits_zeroed, form = whole.encode().translate(_DIGITS), values[0].encode().translate(_DIGITS)
    all_alike = _STAMP.fullmatch(form) and digits_zeroed == b",".join([form] * len(values))
    if not (all_alike or _STAMPS.fullmatch(f"{whole},")):
        return None
    try:
        deque(map(datetime.fromisoformat, values), maxlen=0)
    except ValueError:
        return None
    return Joined(whole.replace("T", " ").replace("Z", ""), ",", len(values))


@lru_cache
def _decimals(precision: int, scale: int) -> tuple[re.Pattern[str], str]:
    """Give the form of decimals with a comma behind each, and the one that has it but is not stored so: zero has no sign."""
    whole = f"[1-9][0-9]{{0,{precision - scale - 1}}}+" if precision > scale else "0"
    point = rf"\.{'[0-9]' * scale}" if scale else ""
    zero = f"-0.{'0' * scale}," if scale else "-0,"
    return re.compile(rf"(?:-?+(?:0|{whole}){point},)*+", re.ASCII), zero
