"""What the fields of a source are: a type for each, and the rules that its values keep.

::

    nulls = ["NULL", "n/a"]                    # in every column: no value

    [columns]
    id = "int"
    email = { type = "text", pattern = "[^@ ]+@[^@ ]+", unique = true }
    amount = { type = "decimal(18,2)", required = true, min = 0, max = "1000000.00" }
    "*" = "text"                               # all others

A value that breaks a rule makes its row a reject; nothing is rounded or cut. What does not belong
here: guessing a type (`infer`), and what a table in the database looks like.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headway.errors import PlanError
from headway.io.chunk import ArrowColumn
from headway.io.columns import ColumnType, Text, column_type
from headway.io.ranges import Head
from headway.io.table import Column, Unique, unique_names

OTHERS = "*"
"""The name that stands for every column that is not named."""
_ORDERED = ("int", "decimal", "float", "date", "timestamp")
_RULES = ("type", "required", "unique", "min", "max", "pattern", "nulls")
NOT_UNIQUE = "not_unique"

Broken = tuple[str, str]
"""The rule that a value breaks, as a short name, and a sentence."""


@dataclass(frozen=True)
class Field:
    """One field. Rules are for values: an empty field that is not required keeps all of them.

    `required`: not empty and no null. `min` and `max` belong to the range. `pattern` has to match
    the whole text. `form`: the spelling that an inferred type was seen in, so that nothing is lost
    where a later value would read the same; `seen`: the rows it was inferred from; `settled`: whether
    the type was declared or inferred, and so goes before what a table has.
    """

    name: str
    type: ColumnType
    required: bool = False
    unique: bool = False
    min: Any = None
    max: Any = None
    pattern: str | None = None
    nulls: tuple[str, ...] = ()
    form: str | None = None
    seen: int = 0
    settled: bool = False

    @cached_property
    def ruled(self) -> bool:
        """Whether values are looked at for more than their type."""
        return bool(
            self.required or self.nulls or self.pattern or self.form or self.min is not None or self.max is not None
        )

    def check(self, values: Sequence[Any], *, typed: bool) -> tuple[Sequence[Any], dict[int, Broken]]:
        """Give the column with nulls in their place, and by index what breaks a rule.

        `typed`: values become those of the type; else texts stay for the table to convert, unless
        a rule had to look at values.
        """
        broken: dict[int, Broken] = {}
        if self.nulls and isinstance(values, ArrowColumn):
            values = values.nulled(self.nulls)
        elif self.nulls and not set(self.nulls).isdisjoint(values):
            values = [None if value in self.nulls else value for value in values]
        if self.required and (None in values or "" in values):
            for index, value in enumerate(values):
                if value is None or value == "":
                    broken[index] = "required", f"column {self.name} must not be empty"
        if self.pattern is not None:
            fits = re.compile(self.pattern).fullmatch
            for index, value in enumerate(values):
                if value not in ("", None) and not fits(value if isinstance(value, str) else str(value)):
                    broken.setdefault(index, ("pattern", f"column {self.name}: {_shown(value)} is no {self.pattern}"))
        if self.form is not None and isinstance(values, ArrowColumn) and values.is_text:
            for index in values.unlike(f"|{self.form}"):
                broken.setdefault(index, self.no_such(values[index]))
        elif self.form is not None and not _all_match(self.form, values):
            fits = re.compile(self.form).fullmatch
            for index, value in enumerate(values):
                if value and not fits(value):
                    broken.setdefault(index, self.no_such(value))
        if typed or self.min is not None or self.max is not None:
            values = self._converted(values, broken)
        return values, broken

    def _converted(self, values: Sequence[Any], broken: dict[int, Broken]) -> Sequence[Any]:
        fitting, misfits = self.type.fit(values)
        for index in misfits:
            broken.setdefault(index, self.no_such(values[index]))
        for bound, reason, beyond in ((self.min, "below_min", "less"), (self.max, "above_max", "more")):
            if bound is None:
                continue
            for index, value in enumerate(fitting):
                if value is not None and (value < bound if beyond == "less" else value > bound):
                    text = f"column {self.name}: {_shown(values[index])} is {beyond} than {bound}"
                    broken.setdefault(index, (reason, text))
        return fitting

    def no_such(self, value: Any) -> Broken:
        """Say that a value is none of the type."""
        text = f"column {self.name}: {_shown(value)} is no {self.type}"
        if self.seen:
            text += (
                f", as inferred from the first {self.seen:,} rows; to keep such values import with "
                f"--column {self.name}=text"
            )
        return f"bad_{self.type.kind}", text

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it; without what is as it always is."""
        told = {"name": self.name, "type": str(self.type)} | {
            name: getattr(self, name) for name in ("required", "unique", "pattern", "nulls", "form", "seen", "settled")
        }
        told |= {name: str(value) for name in ("min", "max") if (value := getattr(self, name)) is not None}
        return {name: value for name, value in told.items() if value not in (None, False, (), 0)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Field:
        """Read what `to_dict` gave."""
        type = column_type(told["type"])
        bounds = {name: type.value(told[name]) for name in ("min", "max") if name in told}
        return cls(**{**told, "type": type, "nulls": tuple(told.get("nulls", ())), **bounds})

    def __str__(self) -> str:
        rules = [name for name in ("required", "unique") if getattr(self, name)]
        rules += [f"{name} {value}" for name in ("min", "max", "pattern") if (value := getattr(self, name)) is not None]
        return " ".join([f"{self.name} {self.type}", *rules])


@dataclass(frozen=True)
class Schema:
    """The fields of a source, in their order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' names."""
        return tuple(field.name for field in self.fields)

    @property
    def plain(self) -> bool:
        """Whether every field is text without rules: there is nothing to do."""
        return not any(field.ruled or field.type.kind != "text" for field in self.fields)

    @property
    def inferred(self) -> int:
        """How many rows a type was inferred from, 0 if none was."""
        return max((field.seen for field in self.fields), default=0)

    def columns(self) -> tuple[Column, ...]:
        """Give the columns of a table made for these fields."""
        return tuple(Column(field.name, field.type, field.required) for field in self.fields)

    def uniques(self, columns: Sequence[str]) -> tuple[Unique, ...]:
        """Give what may stand once among a table's columns."""
        names = {name.casefold(): name for name in columns}
        return tuple(
            Unique((names[field.name.casefold()],), NOT_UNIQUE)
            for field in self.fields
            if field.unique and field.name.casefold() in names
        )

    def check(
        self, columns: Sequence[Sequence[Any]], *, typed: frozenset[int]
    ) -> tuple[list[Sequence[Any]], dict[int, Broken]]:
        """Check whole columns. `typed`: those whose values are wanted in their type.

        Gives the columns, and by index of the row the first rule that it breaks, from left to right.
        """
        result: list[Sequence[Any]] = []
        broken: dict[int, Broken] = {}
        for place, (field, values) in enumerate(zip(self.fields, columns, strict=True)):
            if field.ruled or place in typed:
                values, found = field.check(values, typed=place in typed)
                for index, what in found.items():
                    broken.setdefault(index, what)
            result.append(values)
        return result, broken


class SchemaDeclaration:
    """What the user said about fields, before the file was looked at.

    `given`: a TOML file or a mapping of its shape; `columns`: ``NAME=TYPE``, which go before it.
    Raises PlanError.
    """

    def __init__(
        self,
        given: str | Path | Mapping[str, Any] | None = None,
        columns: Sequence[str] | Mapping[str, str] = (),
    ) -> None:
        where = "schema" if isinstance(given, Mapping) else f"--schema {given}"
        content: Mapping[str, Any] = {}
        if given is not None:
            content = given if isinstance(given, Mapping) else _toml(Path(given))
        if unknown := set(content) - {"columns", "nulls"}:
            raise PlanError(f"{where}: {min(unknown)!r} is not known; there are [columns] and nulls")
        nulls = _texts(content.get("nulls", ()), f"{where}: nulls")
        self._fields: dict[str, Field] = {}
        declared = content.get("columns", {})
        if not isinstance(declared, Mapping) or (given is not None and not declared and not nulls):
            raise PlanError(f'{where}: expected a section [columns] with lines as in id = "int"')
        for name, rules in declared.items():
            self._fields[name] = _field(name, rules, nulls, f"{where}: column {name}")
        for name, kind in _pairs(columns):
            before = self._fields.get(name, Field(name, Text(), nulls=nulls))
            if before.min is not None or before.max is not None:
                raise PlanError(f"--column {name}={kind}: --schema gives {name} a range; change its type there")
            self._fields[name] = replace(before, type=_type(kind, f"--column {name}={kind}"), settled=True)
        self._others = self._fields.pop(OTHERS, None)
        self._nulls = nulls

    @property
    def given(self) -> bool:
        """Whether the user said anything."""
        return bool(self._fields or self._others or self._nulls)

    def leaves_open(self, names: Sequence[str]) -> bool:
        """Whether the type of a field of a source with these was not named. Raises PlanError as `bound` does."""
        return self._others is None and not self._declared(names).keys() >= set(names)

    def to_dict(self) -> list[dict[str, Any]] | None:
        """Give what was said as JSON can hold it; None if nothing was."""
        if not self.given:
            return None
        others = self._others or Field(OTHERS, Text(), nulls=self._nulls)
        return [field.to_dict() for field in (*self._fields.values(), others)]

    def names_of(self, head: Head) -> tuple[str, ...]:
        """Give the fields' names: the header's; without one the columns that were declared, if they are as many."""
        if head.names is None and len(self._fields) == head.width:
            return tuple(self._fields)
        return unique_names(head.names if head.names is not None else [""] * head.width)

    def bound(self, names: Sequence[str], inferred: Mapping[str, Field] | None = None) -> Schema:
        """Make the schema of a source with fields `names`. Raises PlanError where it has no such field.

        `inferred`: what was guessed of the fields that are open; without it they are text.
        """
        declared, fields = self._declared(names), []
        for name in names:
            if name in declared:
                fields.append(declared[name])
            elif self._others is not None:
                fields.append(replace(self._others, name=name))
            else:
                guessed = inferred.get(name) if inferred else None
                fields.append(replace(guessed or Field(name, Text()), nulls=self._nulls))
        return Schema(tuple(fields))

    def _declared(self, names: Sequence[str]) -> dict[str, Field]:
        by_name = {name.casefold(): name for name in names}
        declared: dict[str, Field] = {}
        for name, field in self._fields.items():
            found = name if name in names else by_name.get(name.casefold())
            if found is None:
                raise PlanError(f"the schema's column {name!r} is not in the source, which has {', '.join(names)}")
            declared[found] = replace(field, name=found)
        return declared


def _pairs(columns: Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    if isinstance(columns, Mapping):
        return list(columns.items())
    pairs = []
    for text in (columns,) if isinstance(columns, str) else columns:
        name, equals, kind = text.rpartition("=")
        if not equals or not name or not kind:
            raise PlanError(f"--column {text}: write NAME=TYPE, as in --column amount=decimal(18,2)")
        pairs.append((name, kind))
    if len(dict(pairs)) < len(set(pairs)):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise PlanError(f"--column {twice}: two types are given for it; give one")
    return pairs


def _type(kind: Any, where: str) -> ColumnType:
    if not isinstance(kind, str):
        raise PlanError(f'{where}: the type must be a text, as in "int"')
    try:
        return column_type(kind)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _field(name: str, rules: Any, nulls: tuple[str, ...], where: str) -> Field:
    if not isinstance(rules, Mapping):
        return Field(name, _type(rules, where), nulls=nulls, settled=True)
    if unknown := set(rules) - set(_RULES):
        raise PlanError(f"{where}: {min(unknown)!r} is not known; there are {', '.join(_RULES)}")
    type = _type(rules.get("type", "text"), where)
    flags = {rule: rules.get(rule, False) for rule in ("required", "unique")}
    for rule, value in flags.items():
        if not isinstance(value, bool):
            raise PlanError(f"{where}: {rule} is true or false")
    if name == OTHERS and flags["unique"]:
        raise PlanError(f"{where}: say for each column by its name that it is unique")
    pattern = rules.get("pattern")
    try:
        re.compile(pattern or "")
    except (re.error, TypeError) as error:
        raise PlanError(f"{where}: the pattern {pattern!r} is no regular expression: {error}") from None
    bounds = {rule: _bound(rules[rule], type, f"{where}: {rule}") for rule in ("min", "max") if rule in rules}
    if len(bounds) == 2 and bounds["min"] > bounds["max"]:
        raise PlanError(f"{where}: min {bounds['min']} is more than max {bounds['max']}")
    own = _texts(rules["nulls"], f"{where}: nulls") if "nulls" in rules else nulls
    return Field(name, type, pattern=pattern, nulls=own, settled="type" in rules, **flags, **bounds)


def _bound(value: Any, type: ColumnType, where: str) -> Any:
    if type.kind not in _ORDERED:
        raise PlanError(f"{where} is for {', '.join(_ORDERED)}, not for {type}")
    try:
        return type.value(value)
    except (ValueError, TypeError, ArithmeticError):
        raise PlanError(f"{where} {value!r} is no {type}") from None


def _texts(given: Any, where: str) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise PlanError(f'{where} is a list of texts, as in ["NULL", "n/a"]')
    return tuple(texts)


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"--schema {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"--schema {path}: {error}") from None


def _all_match(form: str, values: Sequence[Any]) -> bool:
    """Whether every value that is not empty has this form; in one pass, as long as none holds a line break."""
    present = [value for value in values if value]
    text = "\n".join(present)
    return text.count("\n") == max(0, len(present) - 1) and bool(
        re.fullmatch(rf"(?:(?:{form})\n)*+", f"{text}\n" if present else "")
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
