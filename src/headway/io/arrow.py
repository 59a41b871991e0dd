"""Columns as Arrow, made in the workers: what DuckDB scans without looking at single values.

What does not belong here: a database.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from headway.errors import PlanError
from headway.io.columns import ColumnType, Exact, Int
from headway.io.table import Table

try:
    import pyarrow as pa
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
_LENGTH_OF_STAMP = len("2024-01-01T00:00:00Z")


def quick(type: ColumnType, values: Sequence[Any]) -> Any | None:
    """Let Arrow convert columns of one Python type, whose usual forms it reads as `fit` does."""
    types = {*map(builtins.type, values)}
    try:
        if types == {str}:
            return _quick_text(type, values)
        if types == {int} and type == Int():
            return pa.array(values, pa.int64())
        if types == {Decimal} and isinstance(type, Exact):
            return pa.array(values, arrow_type(type))
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None
    return None


def _quick_text(type: ColumnType, values: Sequence[str]) -> Any | None:
    if type.kind == "text":
        return pa.array(values, pa.string())
    if isinstance(type, Exact):
        return pa.array(values, pa.string()).cast(arrow_type(type))
    if type == Int() and not "".join(values).strip("-0123456789"):
        return pa.array(values, pa.string()).cast(pa.int64())
    if type.kind == "timestamp" and {*map(len, values)} == {_LENGTH_OF_STAMP}:
        if all(value[-1] == "Z" for value in values):
            return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    elif type.kind == "timestamp" and {*map(len, values)} == {_LENGTH_OF_STAMP - 1}:
        return pa.array(values, pa.string()).cast(pa.timestamp("us"))
    return None


def store(type: ColumnType, values: Sequence[Any]) -> Any:
    """Make an Arrow array of converted values."""
    return pa.array(values, arrow_type(type))


def unheld(_type: ColumnType, _values: Sequence[Any]) -> Mapping[int, str]:
    """Every value has a place."""
    return {}


def select(column: Any, indices: Sequence[int]) -> Any:
    """Give some values of an Arrow array."""
    return column.take(pa.array(indices, pa.int64()))


def pack(table: Table, columns: Sequence[Any]) -> Any:
    """Make a part: a record batch."""
    return pa.record_batch(list(columns), names=list(table.names))


def join(parts: list[Any]) -> bytes:
    """Make the payload: one Arrow IPC stream with one record batch."""
    [batch] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]


def arrow_type(column: ColumnType) -> Any:
    """Give the Arrow type in which a column travels."""
    if isinstance(column, Exact):
        return pa.decimal128(column.precision, column.scale)
    return pa.timestamp("us") if column.kind == "timestamp" else _ARROW[column.kind]()
