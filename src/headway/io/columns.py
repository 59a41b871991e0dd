"""The types that a column of a table can have, and what fits into each, exactly.

A value that does not fit is named, never bent: no rounding, no truncation, no NaN. Texts are read
as the type asks; an empty text is NULL in every type but `text`. The result is the same for every
database: int, float, Decimal of the column's scale, str, bool, date, or datetime in UTC without a
zone (text for json). What does not belong here: how a database stores it.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from typing import Any, ClassVar, Final

from headway.errors import PlanError

_NONE: Final = type(None)
_INT = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII
)
AT_ONCE = 64
"""Values of a column that are converted together where all of them together could not be."""
_BOOLS = {"true": True, "t": True, "yes": True, "1": True, "false": False, "f": False, "no": False, "0": False}


class ColumnType(ABC):
    """One type: its name in a declaration, and the conversion into it."""

    kind: ClassVar[str]

    @abstractmethod
    def value(self, value: Any) -> Any:
        """Convert one value that is not None; raise ValueError, TypeError or OverflowError if it does not fit."""

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Convert a whole column of `types` at once, or give None where each value has to be looked at."""
        return None

    def fit(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[int, str]]:
        """Give the converted values and, by index, what does not fit (and is None in the result)."""
        quick = self._quick(values)
        if quick is not None:
            return quick, {}
        converted: list[Any] = []
        misfits: dict[int, str] = {}
        for start in range(0, len(values), AT_ONCE):  # few values that are out of the ordinary leave the others quick
            some = values[start : start + AT_ONCE]
            quick = self._quick(some)
            converted += quick if quick is not None else self._one_by_one(some, start, misfits)
        return converted, misfits

    def _quick(self, values: Sequence[Any]) -> Sequence[Any] | None:
        try:
            return self.bulk(values, set(map(type, values)))
        except (ValueError, TypeError, ArithmeticError, UnicodeError):
            return None

    def _one_by_one(self, values: Sequence[Any], start: int, misfits: dict[int, str]) -> list[Any]:
        converted: list[Any] = [None] * len(values)
        for index, value in enumerate(values):
            if isinstance(value, str):
                value = str.__str__(value)  # a subclass counts as the text that it is, not as what it shows itself as
            if value is None or (self.kind != "text" and type(value) is str and not value):
                continue
            try:
                converted[index] = self.value(value)
            except (ValueError, TypeError, ArithmeticError):
                misfits[start + index] = f"{_shown(value)} is no {self}"
        return converted

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Int(ColumnType):
    """A whole number of at most 64 bits."""

    bits: int = 64
    kind: ClassVar[str] = "int"

    @property
    def _code(self) -> str:
        return {8: "b", 16: "h", 32: "i", 64: "q"}[self.bits]

    def value(self, value: Any) -> int:
        """Take int, whole Decimal, and digits as text."""
        if type(value) is str and not _INT.fullmatch(value):
            raise ValueError
        if isinstance(value, (float, bool)) or (isinstance(value, Decimal) and value != int(value)):
            raise TypeError
        if not isinstance(value, (int, str, Decimal)):
            raise TypeError
        return array(self._code, (int(value),))[0]

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of int or of digits."""
        if types == {str} and all(map(_INT.fullmatch, values)):
            return array(self._code, map(int, values)).tolist()
        if types == {int}:
            array(self._code, values)  # raises OverflowError
            return values
        return None


@dataclass(frozen=True)
class Float(ColumnType):
    """A finite number of 64 bits in base 2."""

    kind: ClassVar[str] = "float"

    def value(self, value: Any) -> float:
        """Take numbers, and numbers as text; neither NaN nor an infinity, which SQLite cannot hold."""
        if isinstance(value, bool) or (type(value) is str and not _NUMBER.fullmatch(value)):
            raise ValueError
        if not isinstance(value, (int, float, str, Decimal)):
            raise TypeError
        number = float(value)
        if not isfinite(number):
            raise ValueError
        return number

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of float."""
        return values if types == {float} and all(map(isfinite, values)) else None


@dataclass(frozen=True)
class Exact(ColumnType):
    """A decimal number of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int
    kind: ClassVar[str] = "decimal"

    def value(self, value: Any) -> Decimal:
        """Take Decimal, int, float (as its shortest text) and numbers as text, if no digit is lost."""
        if isinstance(value, bool) or (type(value) is str and not _NUMBER.fullmatch(value)):
            raise ValueError
        if isinstance(value, float):
            value = repr(value)
        if not isinstance(value, (int, str, Decimal)):
            raise TypeError
        number = Decimal(value)
        if not number.is_finite():  # what is no number goes through `quantize` as it is
            raise ValueError
        return self._context().quantize(number, Decimal(1).scaleb(-self.scale)) or self._zero

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of Decimal or of plain text."""
        if types == {str} and all(map(_NUMBER.fullmatch, values)):
            values = list(map(Decimal, values))
        elif types != {Decimal} or not all(map(Decimal.is_finite, values)):
            return None
        quantize, unit = self._context().quantize, Decimal(1).scaleb(-self.scale)
        return [quantize(value, unit) or self._zero for value in values]

    @property
    def _zero(self) -> Decimal:
        """Zero, which has no sign in any database's decimal type."""
        return Decimal(0).scaleb(-self.scale)

    def _context(self) -> Context:
        return Context(prec=self.precision, traps=[Inexact, InvalidOperation])

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Text(ColumnType):
    """Unicode text."""

    kind: ClassVar[str] = "text"

    def value(self, value: Any) -> str:
        """Take str as it is; numbers, booleans and dates as their usual text."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (datetime, date)):
            return value.isoformat()
        if not isinstance(value, (str, int, float, Decimal)):
            raise TypeError
        text = str(value)
        text.encode()
        return text

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of str."""
        if types == {str}:
            whole = "".join(values)
            if not whole.isascii():
                whole.encode()  # raises UnicodeEncodeError at a lone surrogate
            return values
        return None


@dataclass(frozen=True)
class Bool(ColumnType):
    """True or false."""

    kind: ClassVar[str] = "bool"

    def value(self, value: Any) -> bool:
        """Take bool, 0, 1, and true, false, t, f, yes, no, 1, 0 as text."""
        if isinstance(value, str):
            return _BOOLS[_known_bool(value.strip().lower())]
        if isinstance(value, (bool, int)) and value in (0, 1):
            return bool(value)
        raise TypeError

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of bool."""
        return values if types == {bool} else None


@dataclass(frozen=True)
class Date(ColumnType):
    """A day."""

    kind: ClassVar[str] = "date"

    def value(self, value: Any) -> date:
        """Take date, and YYYY-MM-DD as text."""
        if isinstance(value, str):
            if not _DATE.fullmatch(value):
                raise ValueError
            return date.fromisoformat(value)
        if type(value) is date:
            return value
        raise TypeError

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of date or of text."""
        if types == {str} and all(map(_DATE.fullmatch, values)):
            return list(map(date.fromisoformat, values))
        return values if types == {date} else None


@dataclass(frozen=True)
class Timestamp(ColumnType):
    """An instant in UTC to the microsecond; a value without a zone is taken as UTC."""

    kind: ClassVar[str] = "timestamp"

    def value(self, value: Any) -> datetime:
        """Take datetime, and YYYY-MM-DDThh:mm[:ss[.ffffff]][Z|+hh:mm] as text."""
        if isinstance(value, str):
            if not _TIMESTAMP.fullmatch(value):
                raise ValueError
            value = datetime.fromisoformat(value)
        if not isinstance(value, datetime):
            raise TypeError
        if value.tzinfo is None:
            return value
        return (value if value.tzinfo is UTC else value.astimezone(UTC)).replace(tzinfo=None)

    def bulk(self, values: Sequence[Any], types: set[type]) -> Sequence[Any] | None:
        """Take columns of text."""
        if types == {str} and all(map(_TIMESTAMP.fullmatch, values)):
            if all(value[-1] == "Z" for value in values):
                return [datetime.fromisoformat(value[:-1]) for value in values]
            return list(map(self.value, map(datetime.fromisoformat, values)))
        return None


@dataclass(frozen=True)
class Json(ColumnType):
    """A JSON document as text, kept as it was written."""

    kind: ClassVar[str] = "json"

    def value(self, value: Any) -> str:
        """Take a JSON document as text; dict, list, numbers, booleans as their JSON."""
        if not isinstance(value, str):
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        json.loads(value, parse_constant=_no_constant)
        value.encode()
        return value


@dataclass(frozen=True)
class Bytes(ColumnType):
    """Bytes as they are; only the importer's own tables have such a column."""

    kind: ClassVar[str] = "bytes"

    def value(self, value: Any) -> bytes:
        """Take bytes."""
        if not isinstance(value, bytes):
            raise TypeError
        return value


_PLAIN: Mapping[str, Callable[[], ColumnType]] = {
    "int": Int, "integer": Int, "bigint": Int, "float": Float, "double": Float, "text": Text, "string": Text,
    "varchar": Text, "bool": Bool, "boolean": Bool, "date": Date, "timestamp": Timestamp, "json": Json,
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")
MOST_DIGITS = 38
TYPES_IN_WORDS = "int, float, decimal(p,s), text, bool, date, timestamp, json"


def column_type(text: str) -> ColumnType:
    """Read a type's name. Raises PlanError with the names that exist."""
    name = text.strip().lower()
    if make := _PLAIN.get(name):
        return make()
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= MOST_DIGITS and scale <= precision:
            return Exact(precision, scale)
        raise PlanError(f"type {text!r}: precision is 1 to {MOST_DIGITS}, scale at most the precision")
    raise PlanError(f"type {text!r} is not known; there are {TYPES_IN_WORDS}")


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and the infinities are no JSON


def _known_bool(text: str) -> str:
    if text not in _BOOLS:
        raise ValueError
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
