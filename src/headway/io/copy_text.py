r"""Rows as lines of PostgreSQL's COPY text format, made in the workers: the writer only sends bytes.

A line is a row: fields between tabs, ``\N`` for NULL, a backslash before what would end a field or a
line (PostgreSQL's documentation, "COPY", File Formats). What does not belong here: a connection.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from headway.io.chunk import ArrowColumn, without
from headway.io.columns import ColumnType
from headway.io.stored_text import join, joined, store, whole_numbers, written
from headway.io.table import Table
from headway.io.target import Fitted, fitted

__all__ = ["Part", "copy_lines", "fit", "join", "kept", "pack", "store", "without"]

FORBIDDEN = "\x00"
_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}  # the backslash before those that it begins


class Part(NamedTuple):
    """Some rows of one table: their number, the values of the columns in `kept`, and their lines."""

    rows: int
    columns: Mapping[int, list[Any]]
    lines: bytes


@dataclass(frozen=True, slots=True)
class _Fields:
    """A column of the usual form, without NULLs: its values, and the fields that they are in lines."""

    values: Iterable[Any]
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


def kept(table: Table) -> list[int]:
    """Give the columns whose values the writer looks at: those of the key and of what else may stand once."""
    names = {*table.key, *chain.from_iterable(unique.columns for unique in table.refusals)}
    return sorted(table.positions(names))


def fit(type: ColumnType, values: Sequence[Any]) -> Fitted:
    """Convert and store a column; a text with a NUL does not fit."""
    found = written(type, values)
    if found is not None and (type.kind != "text" or found.stored.joined(FORBIDDEN) is not None):
        return found
    return fitted(type, values, quick=_quick, store=store, unheld=_unheld)


def _quick(type: ColumnType, values: Sequence[Any]) -> Any | None:
    """Store a column of the usual form; None if a text holds a NUL, which could not be joined."""
    numbers = whole_numbers(type, values)
    if numbers is not None:
        return _Fields(numbers, list(map(str, numbers)))
    found = joined(type, values)
    if found is None:
        return None
    if type.kind == "decimal":
        return _Fields(found, values)
    if type.kind == "text":
        return _Fields(found, _escaped_each(values, found.text))
    texts: list[Any] = list(found)
    return _Fields(texts, texts)


def _unheld(type: ColumnType, values: Sequence[Any]) -> Mapping[int, str]:
    """Name texts with a NUL."""
    if type.kind != "text":
        return {}
    return {
        index: f"{value[:40]!r} holds a NUL, which PostgreSQL cannot store"
        for index, value in enumerate(values)
        if value is not None and FORBIDDEN in value
    }


def pack(table: Table, columns: Sequence[Any]) -> bytes:
    """Make a part, a marshalled `Part`; it is read only by the process that started this one."""
    watched = {position: list(columns[position]) for position in kept(table)}
    return marshal.dumps((len(columns[0]), watched, copy_lines(columns)), 2)


def copy_lines(columns: Sequence[Sequence[Any]]) -> bytes:
    """Give the lines of rows that are given as columns of stored values."""
    if all(isinstance(column, ArrowColumn) for column in columns):
        return _arrow_lines(columns)  # type: ignore[arg-type]
    lines = "\n".join(map("\t".join, zip(*map(_fields, columns), strict=True)))
    return f"{lines}\n".encode()


def _arrow_lines(columns: Sequence[ArrowColumn]) -> bytes:
    """Let Arrow write lines, of columns of texts and of whole numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.string()
    fields = [_arrow_escaped(each) if each.array.type == text else each.array.cast(text) for each in columns]
    fields = [pc.fill_null(field, pa.scalar(r"\N", text)) if field.null_count else field for field in fields]
    lines = ArrowColumn(pc.binary_join_element_wise(*fields, pa.scalar("\t", text)))
    whole, _ = ArrowColumn(
        pc.binary_join_element_wise(lines.array, pa.scalar("", text), pa.scalar("\n", text))
    ).text_bytes()
    return whole


def _arrow_escaped(texts: ArrowColumn) -> Any:
    import pyarrow.compute as pc

    held, array = texts.text_bytes()[0], texts.array
    for char, escape in _ESCAPES.items():
        if char.encode() in held:
            array = pc.replace_substring(array, char, escape)
    return array


def _fields(column: Sequence[Any]) -> Sequence[str]:
    if isinstance(column, _Fields):
        return column.texts
    types = {*map(type, column)}
    if types == {str}:
        return _escaped_each(column, FORBIDDEN.join(column))  # which stands in no value
    return list(map(str, column)) if types == {int} else list(map(_field, column))


def _escaped_each(texts: Sequence[str], whole: str) -> Sequence[str]:
    """Escape texts, given also as one with NULs between them."""
    escaped = _escaped(whole)
    return texts if escaped == whole else escaped.split(FORBIDDEN)


def _field(value: Any) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, bytes):
        return rf"\\x{value.hex()}"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text
