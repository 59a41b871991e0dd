"""From a range of a file to the rows and rejects that it holds; runs in the workers.

What does not belong here: how a file is cut into records, order between ranges, conflicts between
rows, the database.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, NamedTuple

from headway.importer.collect import TableRows
from headway.importer.rowstep import Fault, KeyStep, Known, RowJob, RowStep
from headway.io.ranges import Found, InputFile, Layout, Place, Range, Reader

YOUNG_OBJECTS = 50_000
"""New objects before garbage is looked for: a few ranges' rows, which are no garbage."""
_NICER = 10


@dataclass(frozen=True)
class ParseJob:
    """All that a worker needs to know; it is sent to it once."""

    files: Sequence[InputFile]
    rows: RowJob


class RejectedRow(NamedTuple):
    """A row that was set aside. `record` counts from 0 within its range, `place.byte` within the file."""

    record: int
    place: Place
    fault: Fault


@dataclass(slots=True)
class RangeResult:
    """What a range held. Every number of a record is from 0 within the range, blank lines not counted."""

    span: Range
    lines: int
    records: int
    blanks: array[int]
    """for each blank line the number of the record that follows it"""
    filtered: array[int]
    rejects: list[RejectedRow]
    layout: Layout
    tables: dict[str, TableRows]
    nbytes: int


class RangeParser:
    """Parses ranges and calls the row function on each of their records, in order."""

    def __init__(self, job: ParseJob, step: RowStep | KeyStep | None = None) -> None:
        self._files = job.files
        self._step = step if step is not None else RowStep(job.rows)
        self._file = -1
        self._reader: Reader | None = None

    def close(self) -> None:
        """Close the file and the row function's event loop."""
        if self._reader is not None:
            self._reader.close()
        self._step.close()

    def parse(self, span: Range, known: Sequence[Mapping[Any, Known]] = ()) -> RangeResult:
        """Read, parse and convert one range; `known` is what was looked up for its keys.

        A record that cannot become rows is a reject; what the row function raises never goes
        further. Raises HeadwayError if the file is not what it was when its ranges were made.
        """
        reader = self._reader_of(span.file)
        data, found = reader.read(span), Found()
        faults, filtered = dict[int, Fault](), array("q")
        self._step.offer(reader.chunks(data, span, found, by_column=self._step.by_column), faults, filtered, known)
        tables = self._step.take(faults)
        faults.update((record, Fault("parse", *why)) for record, why in found.faults.items())
        rejects: list[RejectedRow] = []
        if faults:
            places = reader.places(data, span, found.layout, found.records)
            rejects = [RejectedRow(record, places[record], faults[record]) for record in sorted(faults)]
        return RangeResult(
            span._replace(data=None), found.lines, found.records, found.blanks, filtered, rejects, found.layout, tables,
            2 * reader.nbytes(data),
        )  # fmt: skip

    def _reader_of(self, file: int) -> Reader:
        if self._reader is None or file != self._file:
            if self._reader is not None:
                self._reader.close()
            self._file, self._reader = file, self._files[file].reader()
        return self._reader


@contextmanager
def open_parser(job: ParseJob) -> Iterator[RangeParser]:
    """Make a worker's parser, and close it at its end. What the row function prints goes to standard error."""
    with redirect_stdout(sys.stderr):
        parser = RangeParser(job)
        before = gc.get_threshold()
        gc.freeze()  # what `setup` loaded stays; collecting would go through it again and again
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
        try:
            yield parser
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()
            parser.close()


@contextmanager
def open_worker(job: ParseJob, writer: int) -> Iterator[RangeParser]:
    """Make a worker's parser; a process of its own gives way to that of the one `writer`, which nobody can do without."""
    if os.getpid() != writer:
        os.nice(_NICER)
    with open_parser(job) as parser:
        yield parser


class Looked(NamedTuple):
    """A range, and what was looked up for its keys: for each look-up key -> `Known`, pickled by a process of our own."""

    span: Range
    known: bytes


def parse_range(item: Range | Looked, parser: RangeParser) -> RangeResult:
    """The stage function: one range in, its rows and rejects out."""
    if isinstance(item, Looked):
        return parser.parse(item.span, pickle.loads(item.known))  # noqa: S301 - made by our own child
    return parser.parse(item)
