"""What CSV and JSON lines have in common: records are lines of text, positions are bytes.

What does not belong here: where a record ends, what it holds.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from headway.errors import HeadwayError
from headway.io.chunk import Chunk, Record, chunked
from headway.io.content import Content, Seal, opened
from headway.io.encoding import Encoding
from headway.io.location import Location
from headway.io.ranges import Cut, Found, Head, Layout, Place, Range

LONGEST_RECORD = 256 << 20
HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class TextFile(ABC):
    """One file of text, as it was found when it was looked at."""

    location: Location
    head: Head
    seal: Seal
    size: int | None

    @property
    @abstractmethod
    def text(self) -> Encoding:
        """Its encoding."""

    @abstractmethod
    def record_end(self, data: bytes) -> int:
        """Give where the last complete record of `data` ends, or 0 if none does."""

    @abstractmethod
    def records(self, data: bytes, span: Range, found: Found) -> Iterator[Record]:
        """Give the good records of a range."""

    def chunks(self, data: bytes, span: Range, found: Found, *, by_column: bool = False) -> Iterator[Chunk]:
        """Give the good records of a range as columns."""
        return chunked(self.records(data, span, found))

    def with_head(self, head: Head) -> Self:
        """Give the same file read as another head says."""
        return replace(self, head=head)

    def open(self) -> Content:
        """Open it, as long as it was."""
        return opened(self.location, self.size)

    def cut(self, content: Content, at: int, line: int, range_bytes: int) -> Cut:
        """Find the end of the range that begins here. Raises HeadwayError where a record is too long."""
        wanted = range_bytes
        while True:
            data, ended = content.peek(at, wanted)
            length = len(data) if ended else self.record_end(data)
            if length or ended:
                break
            wanted *= 2
            if wanted > LONGEST_RECORD:
                raise HeadwayError(
                    f"{self.location.name}: the record that starts at line {line} (byte {at}) is longer than "
                    f"{LONGEST_RECORD >> 20} MiB; is a quote left open there?"
                )
        data = data[:length]
        return Cut(at + length, self.text.line_breaks(data), ended, None if content.whole else data)

    def reader(self) -> TextFile:
        """Reading needs nothing that stays open."""
        return self

    def read(self, span: Range) -> bytes:
        """Give the bytes of a range. Raises HeadwayError if the file has become shorter."""
        if span.data is not None:
            return span.data
        descriptor = os.open(self.location.address, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, span.end - span.start, span.start)
        finally:
            os.close(descriptor)
        if len(data) < span.end - span.start:
            raise HeadwayError(f"{self.location.name} became shorter while it was read")
        return data

    def places(self, data: bytes, span: Range, layout: Layout, records: int) -> TextPlaces:
        """Give where each record stands."""
        return TextPlaces(self.text, data, span, layout, records)

    def nbytes(self, data: bytes) -> int:
        """Give the size of a range."""
        return len(data)

    def close(self) -> None:  # noqa: B027 - a reader that has nothing to close
        """Nothing is open."""

    def printable(self, raw: bytes) -> tuple[str, bool]:
        """Give a record as text."""
        return self.text.printable(raw)


class TextPlaces:
    """The places of records, from the bytes of their range."""

    def __init__(self, text: Encoding, data: bytes, span: Range, layout: Layout, records: int) -> None:
        self._text, self._data, self._span, self._layout, self._records = text, data, span, layout, records
        self._starts = text.line_starts(data)

    def __getitem__(self, record: int) -> Place:
        line = self._layout.line_of(record)
        start = self._starts[line]
        end = self._starts[self._layout.line_of(record + 1)] if record + 1 < self._records else len(self._data)
        raw = self._text.without_ending(self._data[start:end])
        return Place(self._span.file, self._span.line + line, self._span.start + start, len(raw), raw)
