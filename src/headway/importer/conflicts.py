"""Which source rows a key refuses, exactly as a plain loop over the file would find.

The meaning: source rows in order; each is written to all its tables or, if one of its output rows
repeats a value that may stand once (in the target, in a row that stands before it, or within the
row itself), to none of them. A row that overwrites another one may keep the values of that one. Only
values that occur twice or are in the target already can refuse anything, so the loop is walked for
their rows alone. What does not belong here: how a database writes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from headway.errors import HeadwayError
from headway.importer.rowstep import Fault
from headway.io.chunk import among, falls, value
from headway.io.columns import Int
from headway.io.table import Table, Unique
from headway.io.target import ConstraintRefused, Target


class Sources:
    """For each row of a batch the source row that it came from, ascending, counted from 0 in the commit."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._bases: list[int] = []
        self._parts: list[array[int]] = []
        self._length = 0

    def extend(self, base: int, part: array[int]) -> None:
        """Add the rows of a range whose records count from `base`."""
        self._starts.append(self._length)
        self._bases.append(base)
        self._parts.append(part)
        self._length += len(part)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        at = bisect_right(self._starts, index) - 1
        return self._bases[at] + self._parts[at][index - self._starts[at]]

    def rows_of(self, source: int) -> range:
        """Give the rows that came from `source`; behind the last source the empty range at the end."""
        at = max(0, bisect_right(self._bases, source) - 1)
        part, base, start = self._parts[at], self._bases[at], self._starts[at]
        return range(start + bisect_left(part, source - base), start + bisect_right(part, source - base))

    def without(self, rows: Sequence[int]) -> Sources:
        """Give the sources of all rows but some; these ascend."""
        left = Sources()
        for start, base, part in zip(self._starts, self._bases, self._parts, strict=True):
            kept = part[:]
            for row in reversed(rows[bisect_left(rows, start) : bisect_left(rows, start + len(part))]):
                del kept[row - start]
            if kept:
                left.extend(base, kept)
        return left


@dataclass(slots=True)
class Batch:
    """Rows of one table in one commit."""

    table: Table
    rows: Any
    sources: Sources

    def without(self, dropped: Collection[int], end: int, target: Target) -> Batch:
        """Give the rows whose source is not in `dropped` and below `end`."""
        cut = self.sources.rows_of(end).start
        lost = [row for source in sorted(dropped) if source < end for row in self.sources.rows_of(source)]
        lost += range(cut, len(self.sources))
        return Batch(self.table, target.drop(self.rows, lost), self.sources.without(lost)) if lost else self


class Conflict(NamedTuple):
    """Why a source row lost."""

    table: Table
    unique: Unique
    value: Any

    @property
    def message(self) -> str:
        """Say which value of which columns stands already."""
        return f"{self.table.name}: {', '.join(self.unique.columns)} = {self.value!r} stands already"


class _Claim(NamedTuple):
    """A row's claim on a value: `holders` tells who has which, `owner` who this row is, the same for all that overwrite each other."""

    holders: dict[Any, Any]
    owner: Any
    conflict: Conflict


_STRANGER: Any = object()
"""Who holds a value in the target, and is no row of this commit."""


class Refusals:
    """Finds the losers of one commit after the other. Reads the target inside the open transaction."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._highest: dict[tuple[str, tuple[str, ...]], int | None] = {}

    def losers(self, batches: Iterable[Batch], excluded: Collection[int] = ()) -> Mapping[int, Conflict]:
        """Give source row -> conflict; rows of `excluded` take no part."""
        claims: dict[int, list[_Claim]] = {}
        for batch in batches:
            for unique in batch.table.refusals:
                self._collect(batch, unique, claims)
        lost: dict[int, Conflict] = {}
        for source in sorted(claims.keys() - excluded if excluded else claims):
            conflict = _settle(claims[source])
            if conflict is not None:
                lost[source] = conflict
        return lost

    def _collect(self, batch: Batch, unique: Unique, claims: dict[int, list[_Claim]]) -> None:
        """Add, per source row, its claims on values that somebody else might hold."""
        positions = batch.table.positions(unique.columns)
        values = self._target.values(batch.rows, positions)
        if len(positions) == 1 and isinstance(batch.table.columns[positions[0]].type, Int):
            taken, doubtful = self._among_numbers(batch.table, unique, values)
        else:
            distinct = set(values)
            taken = self._target.existing(batch.table, unique.columns, distinct)
            doubtful = taken | _repeated(values, distinct)
        if not doubtful:
            return
        holders: dict[Any, Any] = dict.fromkeys(taken, _STRANGER)
        rows = [index for index in among(values, doubtful) if not _has_null(value(values, index))]
        owners: Mapping[int, Any] = dict(zip(rows, rows, strict=True))
        if batch.table.overwrites:
            owners = self._owners(batch, unique, rows, holders)
        for index in rows:
            claim = _Claim(holders, owners[index], Conflict(batch.table, unique, value(values, index)))
            claims.setdefault(batch.sources[index], []).append(claim)

    def _owners(self, batch: Batch, unique: Unique, rows: Sequence[int], holders: dict[Any, Any]) -> Mapping[int, Any]:
        """Give the key of each row, and note in `holders` which values of the target are of the same key as here.

        A value that is given up by an overwrite is free from the next commit on.
        """
        table, width = batch.table, len(unique.columns)
        more = tuple(name for name in table.key if name not in unique.columns)
        columns = [self._target.values(batch.rows, (place,)) for place in table.positions((*unique.columns, *more))]
        pairs = {index: tuple(value(column, index) for column in columns) for index in rows}
        keys = self._target.values(batch.rows, table.positions(table.key))
        owners = {index: value(keys, index) for index in rows}
        if holders:
            here = self._target.existing(table, (*unique.columns, *more), set(pairs.values())) if more else set()
            for index, pair in pairs.items():
                if not more or pair in here:
                    holders[pair[:width] if width > 1 else pair[0]] = owners[index]
        return owners

    def _among_numbers(self, table: Table, unique: Unique, numbers: Sequence[Any]) -> tuple[set[Any], set[Any]]:
        """Give those that the table holds, and all that somebody else might hold.

        Keys mostly ascend: then only those that do not can stand twice or be in the table already.
        """
        name = table.name, unique.columns
        highest = self._highest.get(name)
        if highest is None:
            highest = self._target.highest(table.name, unique.columns[0])
        order = _out_of_order(numbers)
        if order is not None and (highest is None or value(numbers, 0) > highest):
            late, top = order
            distinct = doubtful = set(late)
        else:
            distinct = set(numbers)
            doubtful = _repeated(numbers, distinct)
            distinct.discard(None)
            top = max(distinct, default=highest)
        self._highest[name] = top if highest is None else max(top, highest)
        old = [number for number in distinct if number <= highest] if highest is not None else []
        taken = self._target.existing(table, unique.columns, old) if old else set()
        return taken, doubtful | taken


class Judged(NamedTuple):
    """Source rows that are not written: those that are rejects, and why; those that are left out."""

    faults: dict[int, Fault]
    skipped: set[int]


def judge(
    refusals: Refusals,
    batches: Sequence[Batch],
    known: Mapping[int, Fault] = MappingProxyType({}),
) -> Judged:
    """Find what cannot be written for what is written already; `known`: what cannot be for another reason."""
    faults = dict(known)
    skipped: set[int] = set()
    for source, conflict in refusals.losers(batches, faults).items():
        if conflict.unique.reason == "skipped":
            skipped.add(source)
        else:
            faults[source] = Fault("write", conflict.unique.reason, conflict.message)
    return Judged(faults, skipped)


MOST_CULPRITS = 100
"""Rows of a commit that are looked for by trials; each takes some seconds."""


def culprits(
    begin: Callable[[], None], target: Target, refusals: Refusals, batches: Sequence[Batch], records: int
) -> dict[int, Fault]:
    """Find the source rows that the database refuses for constraints of its own, by trials that are undone.

    First it is asked for those that it refuses whatever other rows there are. It may refuse others for what nobody else
    knows of, as an index over an expression, a collation, another table: each of them is the last of the shortest part
    that is refused. `begin` begins a transaction. Raises HeadwayError where these are more than `MOST_CULPRITS`.
    """
    found: dict[int, Fault] = {}
    begin()
    try:
        for batch in batches:
            for index, message in target.violations(batch.table, batch.rows).items():
                found.setdefault(batch.sources[index], Fault("write", "constraint", message))
    finally:
        target.rollback()

    def why(end: int) -> str | None:
        begin()
        try:
            judged = judge(refusals, batches, found)
            for batch in batches:
                put(batch.without({*judged.faults, *judged.skipped}, end, target), target)
        except ConstraintRefused as error:
            return str(error)
        finally:
            target.rollback()
        return None

    good = 0
    for _ in range(MOST_CULPRITS):
        bad, refused = records, why(records)
        if refused is None:
            break
        while bad - good > 1:
            middle = (good + bad) // 2
            earlier = why(middle)
            if earlier is None:
                good = middle
            else:
                bad, refused = middle, earlier
        found[good] = Fault("write", "constraint", refused)
    else:
        raise HeadwayError(
            f"the database refuses more than {MOST_CULPRITS} rows of one commit for what only it knows of: {refused}. "
            "Import into a table without that constraint, and go on from there"
        )
    return found


def put(batch: Batch, target: Target) -> int:
    """Write rows that nothing refuses; give their number, an overwritten one counted again."""
    if not len(batch.sources):
        return 0
    if not batch.table.overwrites:
        target.insert(batch.table, batch.rows)
        return len(batch.sources)
    kept = last_per_key(target.values(batch.rows, batch.table.positions(batch.table.key)))
    rows = batch.rows if len(kept) == len(batch.sources) else target.take(batch.rows, kept)
    target.upsert(batch.table, rows)
    return len(batch.sources)


def _settle(claims: list[_Claim]) -> Conflict | None:
    """Take all values of one source row, or none; a reject outranks a skip."""
    lost: Conflict | None = None
    own: dict[tuple[int, Any], Any] = {}
    for holders, owner, conflict in claims:
        held_by = own.setdefault((id(holders), conflict.value), owner)
        held_by = holders.get(conflict.value, held_by)
        if held_by != owner and (lost is None or lost.unique.reason == "skipped"):
            lost = conflict
    if lost is None:
        for holders, owner, conflict in claims:
            holders[conflict.value] = owner
    return lost


def _out_of_order(numbers: Sequence[Any]) -> tuple[list[Any], Any] | None:
    """Give those that are not above all before them, and the highest of all.

    None if there are none at all, where there are NULLs, or more than an eighth are such.
    """
    if not len(numbers) or value(numbers, 0) is None:
        return None
    late, at = list[Any](), 0
    try:
        highest = value(numbers, len(numbers) - 1)
        for fall in falls(numbers):
            if fall < at:
                continue
            top, at = value(numbers, fall - 1), fall
            while at < len(numbers) and (number := value(numbers, at)) <= top:
                late.append(number)
                at += 1
            highest = max(highest, top)
            if len(late) > len(numbers) // 8:
                return None
    except TypeError:  # a NULL
        return None
    return late, highest


def _repeated(values: Sequence[Any], distinct: set[Any]) -> set[Any]:
    if len(distinct) == len(values):
        return set()
    return {value for value, count in Counter(values).items() if count > 1}


def _has_null(value: Any) -> bool:
    return value is None or (type(value) is tuple and None in value)


def last_per_key(keys: Sequence[Any]) -> list[int]:
    """Give where each key stands last, in order."""
    return sorted(dict(zip(keys, range(len(keys)), strict=True)).values())
