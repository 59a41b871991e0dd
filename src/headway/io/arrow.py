"""Columns as Arrow, made in the workers: what DuckDB scans without looking at single values.

What does not belong here: a database.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from headway.errors import PlanError
from headway.io.chunk import ArrowColumn
from headway.io.columns import AT_ONCE, ColumnType, Exact, Int
from headway.io.table import Table
from headway.io.target import Fitted, fitted, marked

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as missing:
    raise PlanError(f"DuckDB needs {missing.name}: pip install 'headway[import]'") from missing

_ARROW: Mapping[str, Callable[[], Any]] = {
    "int": pa.int64,
    "float": pa.float64,
    "text": pa.string,
    "json": pa.string,
    "bool": pa.bool_,
    "date": pa.date32,
    "bytes": pa.binary,
}
_DAY = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"  # there is no year 0
_FORMS: Mapping[str, str] = {
    "int": "-?[0-9]+",
    "decimal": "-?[0-9]+(?:[.][0-9]+)?",
    "date": _DAY,
    "timestamp": rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z?",
}
"""How values are usually written; some other spellings Arrow reads otherwise than ``type.fit``."""
_NARROWER = ("int", "float", "json")
"""Kinds whose values may be fewer than those of their type in Arrow."""

whole_columns = True


def fit(type: ColumnType, values: Sequence[Any]) -> Fitted:
    """Convert and store a column."""
    found = None
    if isinstance(values, ArrowColumn):
        if values.array.type == arrow_type(type) and (type == Int() or type.kind not in _NARROWER):
            found = Fitted(values.array, {}, values.nulls)
        elif values.is_text:
            found = _fit_texts(type, values)
    return found if found is not None else fitted(type, values, quick=_quick, store=store)


def _fit_texts(type: ColumnType, texts: ArrowColumn) -> Fitted | None:
    """Let Arrow convert all texts but those that it might not read as ``type.fit`` does, or that are no value."""
    form = _form(type)
    if form is None:
        return None
    unusual = texts.unlike(form)
    usual, mask = _masked(texts.array, unusual)
    try:
        stored = _cast(type, usual)
    except pa.ArrowInvalid:
        unusual = sorted({*unusual, *_impossible(type, usual)})
        usual, mask = _masked(texts.array, unusual)
        stored = _cast(type, usual)
    if not unusual:
        return Fitted(stored, {}, ())
    fitting, misfits = type.fit(texts.array.take(pa.array(unusual, pa.int64())).to_pylist())
    nulls = [index for index, value in zip(unusual, fitting, strict=True) if value is None]
    stored = pc.replace_with_mask(stored, mask, store(type, fitting))
    return Fitted(stored, {unusual[index]: what for index, what in misfits.items()}, nulls)


def _masked(array: Any, indices: Sequence[int]) -> tuple[Any, Any]:
    """Give an array with NULLs at `indices`, and the mask of these."""
    if not indices:
        return array, None
    mask = pa.array(marked(len(array), indices, keep=True), pa.uint8()).cast(pa.bool_())
    return pc.if_else(mask, None, array), mask


def _impossible(type: ColumnType, texts: Any, start: int = 0) -> list[int]:
    """Give where texts stand that cannot be converted, and some around each."""
    try:
        _cast(type, texts)
    except pa.ArrowInvalid:
        middle = len(texts) // 2
        if len(texts) <= AT_ONCE:
            return list(range(start, start + len(texts)))
        return [
            *_impossible(type, texts.slice(0, middle), start),
            *_impossible(type, texts.slice(middle), start + middle),
        ]
    return []


def _quick(type: ColumnType, values: Sequence[Any]) -> Any | None:
    """Let Arrow convert columns of one Python type, whose usual forms it reads as ``type.fit`` does."""
    types = {*map(builtins.type, values)}
    try:
        if types == {str}:
            texts = ArrowColumn(pa.array(values, pa.string()))
            if type.kind == "text":
                return texts.array
            form = _form(type)
            return _cast(type, texts.array) if form is not None and not texts.unlike(form) else None
        if types == {int} and type == Int():
            return pa.array(values, pa.int64())
        if types == {Decimal} and isinstance(type, Exact):
            return pa.array(values, arrow_type(type))
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None
    return None


def _form(type: ColumnType) -> str | None:
    """Give how a type's values are usually written; some other spellings Arrow reads otherwise than ``type.fit``."""
    return _FORMS.get(type.kind) if not isinstance(type, Int) or type == Int() else None


def _cast(type: ColumnType, texts: Any) -> Any:
    """Convert texts of the usual form. Raises ArrowInvalid."""
    if type.kind == "timestamp" and pc.any(pc.ends_with(texts, "Z")).as_py():
        texts = pc.replace_substring(texts, "Z", "")
    return texts.cast(arrow_type(type))


def store(type: ColumnType, values: Sequence[Any]) -> Any:
    """Make an Arrow array of converted values."""
    return pa.array(values, arrow_type(type))


def without(column: Any, indices: Sequence[int]) -> Any:
    """Give all values of an Arrow array but some."""
    return ArrowColumn(column).without(indices).array


def pack(table: Table, columns: Sequence[Any]) -> Any:
    """Make a part: a record batch."""
    return pa.record_batch(list(columns), names=list(table.names))


def join(parts: list[Any]) -> bytes:
    """Make the payload: one Arrow IPC stream with one record batch."""
    [batch] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    payload: bytes = stream.getvalue().to_pybytes()
    pa.default_memory_pool().release_unused()  # or each worker would keep it for the next range
    return payload


def arrow_type(column: ColumnType) -> Any:
    """Give the Arrow type in which a column travels."""
    if isinstance(column, Exact):
        return pa.decimal128(column.precision, column.scale)
    return pa.timestamp("us") if column.kind == "timestamp" else _ARROW[column.kind]()
