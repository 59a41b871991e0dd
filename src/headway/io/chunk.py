"""Records some at a time, by row or by column: what is worked on together on the way from a file to a database.

What does not belong here: where they come from, what their values mean.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, compress, count, islice, pairwise
from operator import ge
from typing import Any, overload

Record = tuple[int, Sequence[Any]]
"""A record's number within its range, from 0, and its values."""

RECORDS_AT_ONCE = 256
"""Records that are worked on together: few enough to be still near the processor, and few to look at one by one where
one of them is out of the ordinary."""


class Chunk:
    """Some records, given by row or by column; not empty. The other form is made when it is asked for."""

    def __init__(
        self,
        sources: Sequence[int],
        columns: Sequence[Sequence[Any]] | None = None,
        *,
        rows: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        self.sources = sources
        """the records' numbers within their range, ascending"""
        self._columns, self._rows = columns, rows
        self.by_row = rows is not None

    @property
    def columns(self) -> Sequence[Sequence[Any]]:
        """Their values by column."""
        if self._columns is None:
            self._columns = list(zip(*self.rows, strict=True))
        return self._columns

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        """Their values by record."""
        if self._rows is None:
            self._rows = list(zip(*self.columns, strict=True))
        return self._rows


def chunked(records: Iterable[Record]) -> Iterator[Chunk]:
    """Give records as chunks."""
    given = iter(records)
    while some := list(islice(given, RECORDS_AT_ONCE)):
        sources, rows = zip(*some, strict=True)
        yield Chunk(sources, rows=rows)


def whole(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Give all records of chunks as one; nothing if there are none."""
    parts = list(chunks)
    if len(parts) > 1:
        columns = zip(*(part.columns for part in parts), strict=True)
        sources = array("q", chain.from_iterable(part.sources for part in parts))
        yield Chunk(sources, [list(chain.from_iterable(column)) for column in columns])
    else:
        yield from parts


def pieces(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk of many records to those that are worked on together."""
    if chunk.by_row or len(chunk.sources) <= RECORDS_AT_ONCE:
        yield chunk
        return
    for start in range(0, len(chunk.sources), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        yield Chunk(chunk.sources[start:stop], [part(column, start, stop) for column in chunk.columns])


class ArrowColumn(Sequence[Any]):
    """Values that Arrow holds: a sequence of Python's to whoever looks at them, made only then; `array` is Arrow's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def _values(self) -> list[Any]:
        return self.array.to_pylist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    @overload
    def __getitem__(self, index: int, /) -> Any: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Any]: ...
    def __getitem__(self, index: int | slice, /) -> Any:
        return self._values[index]

    def __contains__(self, value: object) -> bool:
        if value is None:
            return bool(self.array.null_count)
        if isinstance(value, str) and self.is_text:
            import pyarrow as pa
            import pyarrow.compute as pc

            found: int = pc.index(self.array, pa.scalar(value, pa.string())).as_py()
            return found >= 0
        return value in self._values

    def joined(self, separator: str) -> bytes | None:
        """Give texts as one, in UTF-8, with a separator between them; None where it stands in one. A NULL is as an empty one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.fill_null(self.array, pa.scalar("", pa.string())) if self.array.null_count else self.array
        ends = pa.array([0, len(self)], pa.int32())
        whole: bytes = pc.binary_join(pa.ListArray.from_arrays(ends, texts), separator)[0].as_buffer().to_pybytes()
        return whole if whole.count(separator.encode()) == len(self) - 1 else None

    @cached_property
    def is_text(self) -> bool:
        """Whether all are texts, without NULL."""
        import pyarrow as pa

        return bool(self.array.type == pa.string()) and not self.array.null_count

    @property
    def is_floating(self) -> bool:
        """Whether they are numbers in base 2."""
        import pyarrow as pa

        return bool(pa.types.is_floating(self.array.type))

    @cached_property
    def nulls(self) -> Sequence[int]:
        """Where NULLs stand."""
        import pyarrow.compute as pc

        return pc.indices_nonzero(pc.is_null(self.array)).to_pylist() if self.array.null_count else ()

    def nulled(self, texts: Sequence[str]) -> ArrowColumn:
        """Give the column with NULLs in place of some texts; itself if it has none of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.array.type != pa.string():
            return self
        found = pc.is_in(self.array, value_set=pa.array(texts, pa.string()))
        return ArrowColumn(pc.if_else(found, pa.scalar(None, pa.string()), self.array)) if found.true_count else self

    def text_bytes(self) -> tuple[bytes, memoryview]:
        """Give all texts as one, in UTF-8, and where each starts and the last ends; the first start may be above 0."""
        _, offsets, values = self.array.buffers()
        start = self.array.offset
        starts = (
            memoryview(offsets).cast("i")[start : start + len(self) + 1] if offsets is not None else memoryview(b"")
        )
        if values is None or not starts:
            return b"", starts
        return values.slice(starts[0], starts[-1] - starts[0]).to_pybytes(), starts

    def counted(self, part: str) -> tuple[list[int], list[int]]:
        """Give where texts stand that hold `part`, and how often each does; all are texts."""
        import pyarrow.compute as pc

        if part.encode() not in self.text_bytes()[0]:
            return [], []
        counts = pc.count_substring(self.array, part)
        rows = pc.indices_nonzero(counts)
        return rows.to_pylist(), counts.take(rows).to_pylist()

    def beyond(self, characters: bytes) -> list[int]:
        """Give where texts stand that hold another byte than those of `characters`; all are texts."""
        whole, starts = self.text_bytes()
        other = whole.translate(bytes(byte not in characters for byte in range(256)))
        found, at = list[int](), other.find(1)
        while at >= 0:
            found.append(bisect_right(starts, at + starts[0]) - 1)
            at = other.find(1, starts[found[-1] + 1] - starts[0])
        return found

    def unlike(self, form: str) -> list[int]:
        """Give where texts stand that are not of a form, a regular expression without look-around; all are texts."""
        import pyarrow.compute as pc

        fits = pc.match_substring_regex(self.array, rf"\A(?:{form})\z")
        return [] if fits.true_count == len(self) else pc.indices_nonzero(pc.invert(fits)).to_pylist()

    def without(self, indices: Sequence[int]) -> ArrowColumn:
        """Give all values but some, whose indices ascend."""
        import pyarrow as pa

        edges = [-1, *indices, len(self)]
        return ArrowColumn(
            pa.concat_arrays([self.array.slice(low + 1, high - low - 1) for low, high in pairwise(edges)])
        )


def part(column: Sequence[Any], start: int, stop: int) -> Sequence[Any]:
    """Give some values in a row of a column."""
    if isinstance(column, ArrowColumn):
        return ArrowColumn(column.array.slice(start, stop - start))
    return column[start:stop]


def value(column: Sequence[Any], index: int) -> Any:
    """Give one value of a column, without making Python's of the others."""
    return column.array[index].as_py() if isinstance(column, ArrowColumn) else column[index]


def falls(numbers: Sequence[Any]) -> Iterable[int]:
    """Give where a number stands that is not above the one before it. Raises TypeError, at the latest there, at a NULL."""
    if not isinstance(numbers, ArrowColumn):
        return compress(count(1), map(ge, numbers, islice(numbers, 1, None)))
    if numbers.array.null_count:
        raise TypeError("NULL")
    import pyarrow.compute as pc

    below = pc.less_equal(numbers.array.slice(1), numbers.array.slice(0, max(0, len(numbers) - 1)))
    found: list[int] = pc.indices_nonzero(below).to_pylist() if below.true_count else []
    return [index + 1 for index in found]


def among(column: Sequence[Any], values: Collection[Any]) -> Iterable[int]:
    """Give where values of a column stand that are one of `values`, as Python compares: 0.0 is -0.0."""
    if not isinstance(column, ArrowColumn) or column.is_floating:
        return compress(count(), map(values.__contains__, column))
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.is_in(column.array, value_set=pa.array(list(values), column.array.type))
    places: list[int] = pc.indices_nonzero(found).to_pylist()
    return places


def without(column: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Give all values of a column but some, whose indices ascend."""
    if isinstance(column, ArrowColumn):
        return column.without(indices)
    left = list(column)
    for index in reversed(indices):
        del left[index]
    return left
