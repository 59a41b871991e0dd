"""Guessing the types of fields from a sample, so that no value is lost.

A type is taken only where it gives every value of the sample back as it was written: `007` and
`+49` are texts, `1.10` beside `1.1` is a text, `1e5` is a text. A field whose values are mixed, or
that is always empty, is text. What does not belong here: values behind the sample; the `form` that
goes with a guessed type makes a reject of what would lose by it.
"""

from __future__ import annotations

import re
from builtins import type as type_of
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from headway.importer.schema import Field
from headway.io.columns import MOST_DIGITS, Bool, ColumnType, Date, Exact, Float, Int, Timestamp

INT = "0|-?[1-9][0-9]*"
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
BOOL = "true|false|True|False|TRUE|FALSE"
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
USUAL_DIGITS = 18
"""Precision of an inferred decimal, where the sample does not need more."""


def infer(
    names: Sequence[str],
    records: Sequence[Sequence[Any]],
    types: Sequence[ColumnType] | None = None,
    *,
    typed: bool = False,
) -> dict[str, Field]:
    """Give the fields whose type is not text. `records` have as many fields as there are names.

    `types`: those that the source declares itself. `typed`: it has other values than texts, so that a text is one.
    """
    if types is not None:
        return {name: Field(name, type, settled=True) for name, type in zip(names, types, strict=True)}
    if not records:
        return {}
    found = {}
    for name, values in zip(names, zip(*records, strict=True), strict=True):
        present = [value for value in values if value not in ("", None)]
        kinds = {*map(type_of, present)}
        if typed or (kinds and kinds != {str}):
            if (type := _of_values(present, kinds)) is not None:
                found[name] = Field(name, type, seen=len(records), settled=True)
            continue
        for form, type in _candidates(present) if present else ():
            if all(map(re.compile(form).fullmatch, present)) and not type.fit(present)[1]:
                found[name] = Field(name, type, form=form, seen=len(records), settled=True)
                break
    return found


def _of_values(present: Sequence[Any], kinds: set[type_of]) -> ColumnType | None:
    """Give the type of values that have one; None where only text holds all of them as they are."""
    candidates: list[ColumnType] = []
    if kinds == {bool}:
        candidates = [Bool()]
    elif kinds == {int}:
        candidates = [Int()]
    elif kinds and kinds <= {int, Decimal}:
        numbers = [Decimal(value).normalize() for value in present]
        if decimal := _decimal([f"{number:f}" for number in numbers if abs(number.adjusted()) < MOST_DIGITS]):
            candidates = [decimal]
        if all(Decimal(repr(float(number))) == number for number in numbers):
            candidates.append(Float())
    return next((type for type in candidates if not type.fit(present)[1]), None)


def _candidates(present: Sequence[str]) -> Sequence[tuple[str, ColumnType]]:
    """Give types and the form in which each is written, by what the first value looks like."""
    first = present[0]
    if first[0] in "-0123456789":
        forms: list[tuple[str, ColumnType]] = [(INT, Int())]
        if (decimal := _decimal(present)) is not None:
            forms.append((NUMBER, decimal))
        forms += [(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", Date()), (MOMENT, Timestamp()), (MOMENT + "Z", Timestamp())]
        return forms
    return [(BOOL, Bool())] if len({value.istitle() + 2 * value.isupper() for value in present}) == 1 else []


def _decimal(present: Sequence[str]) -> Exact | None:
    """Give the decimal type that holds all these numbers and tells apart what is written apart."""
    whole = scale = 0
    scales = set()
    trailing = False
    for value in present:
        before, _, after = value.lstrip("-").partition(".")
        whole, scale = max(whole, len(before)), max(scale, len(after))
        scales.add(len(after))
        trailing = trailing or after.endswith("0")
    if not scale or (trailing and len(scales - {0}) > 1) or whole + scale > MOST_DIGITS:
        return None
    return Exact(max(USUAL_DIGITS, whole + scale), scale)
