"""Guessing the types of fields from a sample, so that no value is lost.

A type is taken only where it gives every value of the sample back as it was written: `007` and
`+49` are texts, `1.10` beside `1.1` is a text, `1e5` is a text. A field whose values are mixed, or
that is always empty, is text. What does not belong here: values behind the sample; the `form` that
goes with a guessed type makes a reject of what would lose by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.importer.schema import Field
from headway.io.columns import MOST_DIGITS, Bool, ColumnType, Date, Exact, Int, Timestamp

INT = "0|-?[1-9][0-9]*"
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
BOOL = "true|false|True|False|TRUE|FALSE"
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
USUAL_DIGITS = 18
"""Precision of an inferred decimal, where the sample does not need more."""


def infer(names: Sequence[str], records: Sequence[Sequence[str]]) -> dict[str, Field]:
    """Give the fields whose type is not text. `records` have as many fields as there are names."""
    if not records:
        return {}
    found = {}
    for name, values in zip(names, zip(*records, strict=True), strict=True):
        present = [value for value in values if value]
        for form, type in _candidates(present) if present else ():
            if all(map(re.compile(form).fullmatch, present)) and not type.fit(present)[1]:
                found[name] = Field(name, type, form=form, seen=len(records), settled=True)
                break
    return found


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
    if not scale or (trailing and len(scales) > 1) or whole + scale > MOST_DIGITS:
        return None
    return Exact(max(USUAL_DIGITS, whole + scale), scale)
