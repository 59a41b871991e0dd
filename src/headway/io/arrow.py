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
_CHARACTERS: Mapping[str, bytes] = {
    "int": b"0123456789-",
    "decimal": b"0123456789-.",
    "date": b"0123456789-",
    "timestamp": b"0123456789-: T",
}
_LENGTHS = {"date": len("2026-01-31"), "timestamp": len("2026-01-31 12:00:00")}
"""How values are usually written: Arrow refuses a text of these characters and this length, or reads it as ``type.fit``
does, but for a year 0. Some other spellings it reads otherwise."""
_NARROWER = ("int", "float", "json")
"""Kinds whose values may be fewer than those of their type in Arrow."""

_NULL = pa.scalar(None, pa.string())
"""A scalar without a type would be looked up anew, with an import that fails, each time."""


def fit(type: ColumnType, values: Sequence[Any]) -> Fitted:
    """Convert and store a column."""
    found = held(type, values) if isinstance(values, ArrowColumn) else None
    return found if found is not None else fitted(type, values, quick=_quick, store=store)


def held(type: ColumnType, values: ArrowColumn) -> Fitted | None:
    """Convert and store a column that Arrow holds in the type, or as texts of a type whose usual form it reads as we do."""
    if values.array.type == arrow_type(type) and (type == Int() or type.kind not in _NARROWER):
        return Fitted(values.array, {}, values.nulls)
    if values.array.type != pa.string() or type.kind not in _CHARACTERS or (isinstance(type, Int) and type != Int()):
        return None
    return _fit_texts(type, values.array)


def _fit_texts(type: ColumnType, texts: Any) -> Fitted:
    """Let Arrow convert all texts but those that it might not read as ``type.fit`` does, or that are no value."""
    array = _without_zone(texts) if type.kind == "timestamp" else texts
    unusual = _unusual(type, ArrowColumn(array))
    if unusual:
        array = pc.if_else(_mask(len(array), unusual), _NULL, array)
    refused = list[int]()
    parts = _cast(array, arrow_type(type), refused)
    stored = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    misfits: dict[int, str] = {}
    if looked_at := sorted({*unusual, *refused}):
        fitting, found = type.fit(texts.take(pa.array(looked_at, pa.int64())).to_pylist())
        misfits = {looked_at[index]: what for index, what in found.items()}
        stored = pc.replace_with_mask(stored, _mask(len(array), looked_at), store(type, fitting))
    return Fitted(stored, misfits, ArrowColumn(stored).nulls)


def _cast(texts: Any, type: Any, refused: list[int], start: int = 0) -> list[Any]:
    """Convert texts, in parts; NULL for those that cannot be, and for some around each, whose places go into `refused`."""
    try:
        return [texts.cast(type)]
    except pa.ArrowInvalid:
        if len(texts) <= AT_ONCE:
            refused += range(start, start + len(texts))
            return [pa.nulls(len(texts), type)]
        middle = len(texts) // 2
        first = _cast(texts.slice(0, middle), type, refused, start)
        return first + _cast(texts.slice(middle), type, refused, start + middle)


def _mask(length: int, indices: Sequence[int]) -> Any:
    """Give booleans that are true at `indices`."""
    flags = pa.py_buffer(marked(length, indices, keep=True))
    return pa.Array.from_buffers(pa.uint8(), length, [None, flags]).cast(pa.bool_())


def _without_zone(texts: Any) -> Any:
    """Take the Z away where each text ends with one."""
    first = texts[0].as_py() if len(texts) else None
    zoned = first is not None and first.endswith("Z") and pc.all(pc.ends_with(texts, "Z")).as_py()
    return pc.utf8_slice_codeunits(texts, 0, -1) if zoned else texts


def _unusual(type: ColumnType, texts: ArrowColumn) -> list[int]:
    """Give where texts stand that are not of the usual form."""
    lengths, wanted = pc.binary_length(texts.array), _LENGTHS.get(type.kind)
    if wanted is None:
        other = pc.equal(lengths, pa.scalar(0, pa.int32()))
    else:
        other = pc.not_equal(lengths, pa.scalar(wanted, pa.int32()))
        other = pc.or_(other, pc.starts_with(texts.array, "0000"))
    found = texts.beyond(_CHARACTERS[type.kind])
    return sorted({*found, *pc.indices_nonzero(other).to_pylist()}) if other.true_count else found


def _quick(type: ColumnType, values: Sequence[Any]) -> Any | None:
    """Let Arrow convert columns of one Python type, whose usual forms it reads as ``type.fit`` does."""
    types = {*map(builtins.type, values)}
    try:
        if types == {str}:
            texts = ArrowColumn(pa.array(values, pa.string()))
            if type.kind == "text":
                return texts.array
            found = held(type, texts)
            return found.stored if found is not None and not found.misfits and not found.nulls else None
        if types == {int} and type == Int():
            return pa.array(values, pa.int64())
        if types == {Decimal} and isinstance(type, Exact):
            return pa.array(values, arrow_type(type))
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None
    return None


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
    return payload


def arrow_type(column: ColumnType) -> Any:
    """Give the Arrow type in which a column travels."""
    if isinstance(column, Exact):
        return pa.decimal128(column.precision, column.scale)
    return pa.timestamp("us") if column.kind == "timestamp" else _ARROW[column.kind]()
