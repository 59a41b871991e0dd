"""Records as columns, some at a time: what is worked on together on the way from a file to a database.

What does not belong here: where they come from, what their values mean.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import Any, overload

Record = tuple[int, Sequence[Any]]
"""A record's number within its range, from 0, and its values."""

RECORDS_AT_ONCE = 512
"""Records that are worked on together: few enough to be still near the processor, and few to look at one by one where
one of them is out of the ordinary."""


class Chunk:
    """Some records: their numbers within their range, ascending, and their values by row or by column, as given."""

    def __init__(
        self,
        sources: array[int],
        *,
        rows: Sequence[Sequence[Any]] | None = None,
        columns: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        self.sources, self._rows, self._columns = sources, rows, columns

    @property
    def rows(self) -> Iterable[Sequence[Any]]:
        """The values by row; not empty."""
        return self._rows if self._rows is not None else zip(*self.columns, strict=True)

    @property
    def columns(self) -> Sequence[Sequence[Any]]:
        """The values by column."""
        if self._columns is None:
            self._columns = list(zip(*self._rows or (), strict=True))
        return self._columns


def chunked(records: Iterable[Record]) -> Iterator[Chunk]:
    """Give records as chunks."""
    given = iter(records)
    while some := list(islice(given, RECORDS_AT_ONCE)):
        numbers, rows = zip(*some, strict=True)
        yield Chunk(array("q", numbers), rows=rows)


def whole(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Give all records of chunks as one; nothing if there are none."""
    parts = list(chunks)
    if len(parts) > 1:
        columns = zip(*(part.columns for part in parts), strict=True)
        sources = array("q", chain.from_iterable(part.sources for part in parts))
        yield Chunk(sources, columns=[list(chain.from_iterable(column)) for column in columns])
    else:
        yield from parts


def pieces(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk of many records to those that are worked on together."""
    if len(chunk.sources) <= RECORDS_AT_ONCE:
        yield chunk
        return
    for start in range(0, len(chunk.sources), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        yield Chunk(chunk.sources[start:stop], columns=[column[start:stop] for column in chunk.columns])


class TextColumn(Sequence[str]):
    """Texts that Arrow holds, without NULL: a sequence of `str` to whoever looks at values, made only then."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def _texts(self) -> list[str]:
        return self.array.to_pylist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    @overload
    def __getitem__(self, index: int, /) -> str: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[str]: ...
    def __getitem__(self, index: int | slice, /) -> str | list[str]:
        return self._texts[index]

    def __contains__(self, value: object) -> bool:
        import pyarrow.compute as pc

        return isinstance(value, str) and bool(pc.any(pc.equal(self.array, value)).as_py())

    def unlike(self, form: str) -> list[int]:
        """Give where texts stand that are not of a form: a regular expression without look-around."""
        import pyarrow.compute as pc

        fits = pc.match_substring_regex(self.array, rf"\A(?:{form})\z")
        return [] if fits.true_count == len(self) else pc.indices_nonzero(pc.invert(fits)).to_pylist()

    def without(self, indices: Sequence[int]) -> TextColumn:
        """Give all texts but some, whose indices ascend."""
        import pyarrow as pa

        edges = [-1, *indices, len(self)]
        return TextColumn(
            pa.concat_arrays([self.array.slice(low + 1, high - low - 1) for low, high in pairwise(edges)])
        )


def without(column: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Give all values of a column but some, whose indices ascend."""
    if isinstance(column, TextColumn):
        return column.without(indices)
    left = list(column)
    for index in reversed(indices):
        del left[index]
    return left
