"""Which source rows a key refuses, exactly as a plain loop over the file would find.

The meaning: source rows in order; each is written to all its tables or, if one of its output rows
repeats a value that may stand once (in the target, in a row that stands before it, or within the
row itself), to none of them. A row that overwrites another one may keep the values of that one. Only
values that occur twice or are in the target already can refuse anything, so the loop is walked for
their rows alone. What does not belong here: how a database writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from headway.errors import HeadwayError
from headway.importer.batches import Batch
from headway.importer.rowstep import Fault
from headway.io.chunk import among, falls, value
from headway.io.columns import Int
from headway.io.table import Table, Unique
from headway.io.target import ConstraintRefused, Target, Transaction

MOST_CULPRITS = 100
"""Rows of a commit that are looked for by trials; each takes some seconds."""


class Conflict(NamedTuple):
    """Why a source row lost."""

    table: Table
    unique: Unique
    value: Any

    @property
    def message(self) -> str:
        """Say which value of which columns stands already."""
        return f"{self.table.name}: {', '.join(self.unique.columns)} = {self.value!r} stands already"


class _Holders:
    """Who has which value of a unique, as a plain loop would know it: of those values that could refuse a row.

    An *owner* is all rows that overwrite each other, by their key; where none does, each row by itself. What one source row
    changes is undone if it loses.
    """

    def __init__(self, taken: Mapping[Any, Any]) -> None:
        self._owners = {value: _STRANGER if owner is None else owner for value, owner in taken.items()}
        self._values = {owner: value for value, owner in taken.items() if owner is not None}
        self._given_up: dict[Any, int] = {}
        """value -> row that gave it up last"""
        self.cuts: dict[int, int] = {}
        """rows that take what a row before them gave up, since the cut before them"""
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def take(self, value: Any, owner: Any, row: int) -> bool:
        """Let a row have a value, None for none, and give up the one that its owner had; False if another owner has it."""
        if self._owners.get(value, owner) != owner:
            return False
        had = self._values.get(owner)
        if had == value:
            return True
        if had is not None:
            self._set(self._owners, had, None)
            self._set(self._given_up, had, row)
        self._set(self._values, owner, value)
        if value is not None:
            self._set(self._owners, value, owner)
            if self._given_up.get(value, -1) >= next(reversed(self.cuts), 0):
                self._set(self.cuts, row, row)
        return True

    def settle(self, *, lost: bool) -> None:
        """Keep what one source row has changed, or undo it."""
        while self._undo:
            of, key, before = self._undo.pop()
            if lost:
                _set(of, key, before)

    def _set(self, of: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((of, key, of.get(key)))
        _set(of, key, value)


def _set(of: dict[Any, Any], key: Any, value: Any) -> None:
    """Set an entry, or take it away."""
    if value is None:
        of.pop(key, None)
    else:
        of[key] = value


class _Claim(NamedTuple):
    """A row's claim on a value."""

    holders: _Holders
    owner: Any
    row: int
    conflict: Conflict


_STRANGER: Any = object()
"""Who holds a value in the target, and is no row of this commit."""


class Refusals:
    """Finds the losers of one commit after the other. Reads the target inside the open transaction."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._highest: dict[tuple[str, tuple[str, ...]], int | None] = {}

    def losers(self, batches: Iterable[Batch], excluded: Collection[int] = ()) -> Mapping[int, Conflict]:
        """Give source row -> conflict, and tell the batches where to cut; rows of `excluded` take no part."""
        claims: dict[int, list[_Claim]] = {}
        found = [(batch, self._collect(batch, claims)) for batch in batches]
        lost: dict[int, Conflict] = {}
        for source in sorted(claims.keys() - excluded if excluded else claims):
            conflict = _settle(claims[source])
            if conflict is not None:
                lost[source] = conflict
        for batch, holders in found:
            batch.cuts = sorted({row for each in holders for row in each.cuts})
        return lost

    def _collect(self, batch: Batch, claims: dict[int, list[_Claim]]) -> list[_Holders]:
        """Add, per source row, its claims on values that somebody else might hold."""
        table, found = batch.table, list[_Holders]()
        keys: Sequence[Any] = ()
        if table.overwrites and table.refusals:
            keys = self._target.values(batch.rows, table.positions(table.key))
        for unique in table.refusals:
            positions = table.positions(unique.columns)
            values = self._target.values(batch.rows, positions)
            if len(positions) == 1 and isinstance(table.columns[positions[0]].type, Int):
                taken, doubtful = self._among_numbers(table, unique, values, keys)
            else:
                distinct = set(values)
                taken = self._target.existing(table, unique.columns, distinct, keys)
                doubtful = taken.keys() | _repeated(values, distinct)
            if not doubtful:
                continue
            holders = _Holders(taken)
            found.append(holders)
            rows: Iterable[int] = [row for row in among(values, doubtful) if not _has_null(value(values, row))]
            if keys:  # who gives a value up counts as well
                owners = {value(keys, row) for row in rows}
                rows = among(keys, owners.union(owner for owner in taken.values() if owner is not None))
            for row in rows:
                owner = value(keys, row) if keys else row
                claim = _Claim(holders, owner, row, Conflict(table, unique, value(values, row)))
                claims.setdefault(batch.sources[row], []).append(claim)
        return found

    def _among_numbers(
        self, table: Table, unique: Unique, numbers: Sequence[Any], keys: Sequence[Any]
    ) -> tuple[Mapping[Any, Any], set[Any]]:
        """Give those that the table holds, with their key, and all that somebody else might hold.

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
        taken = self._target.existing(table, unique.columns, old, keys) if old else {}
        return taken, doubtful | taken.keys()


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


def culprits(
    transaction: Transaction, target: Target, refusals: Refusals, batches: Sequence[Batch], records: int
) -> dict[int, Fault]:
    """Find the source rows that the database refuses for constraints of its own, by trials that are undone.

    First it is asked for those that it refuses whatever other rows there are. It may refuse others for what nobody else
    knows of, as an index over an expression, a collation, another table: each of them is the last of the shortest part
    that is refused. Each trial is a `transaction` of its own. Raises HeadwayError where these are more than `MOST_CULPRITS`.
    """
    found = _alone(transaction, target, refusals, batches, records)

    def why(end: int) -> str | None:
        transaction.begin()
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


def _alone(
    transaction: Transaction, target: Target, refusals: Refusals, batches: Sequence[Batch], records: int
) -> dict[int, Fault]:
    """Give the source rows that break a constraint by themselves, each table looked at beside the ones before it."""
    found: dict[int, Fault] = {}
    transaction.begin()
    try:
        judged = judge(refusals, batches)
        for batch in batches:
            left = batch.without(found, records, target)
            for index, message in target.violations(left.table, left.rows).items():
                found.setdefault(left.sources[index], Fault("write", "constraint", message))
            if batch is not batches[-1]:  # a row of the next table may refer to one of this
                put(batch.without({*judged.faults, *judged.skipped, *found}, records, target), target)
    except ConstraintRefused:  # for what only the database knows of: the other tables are left to the trials
        pass
    finally:
        target.rollback()
    return found


def put(batch: Batch, target: Target) -> int:
    """Write rows that nothing refuses; give their number, an overwritten one counted again."""
    length = len(batch.sources)
    if not batch.table.overwrites:
        if length:
            target.insert(batch.table, batch.rows)
        return length
    keys = target.values(batch.rows, batch.table.positions(batch.table.key))
    for start, end in pairwise((0, *(_repeats(keys, batch.cuts) if batch.table.has_rules else batch.cuts), length)):
        if kept := last_per_key(keys, start, end):
            target.upsert(batch.table, batch.rows if len(kept) == length else target.take(batch.rows, kept))
    return length


def _settle(claims: list[_Claim]) -> Conflict | None:
    """Take all values of one source row, or none; a reject outranks a skip."""
    lost: Conflict | None = None
    for holders, owner, row, conflict in claims:
        wanted = None if _has_null(conflict.value) else conflict.value
        if not holders.take(wanted, owner, row) and (lost is None or lost.unique.reason == "skipped"):
            lost = conflict
    for holders, *_ in claims:
        holders.settle(lost=lost is not None)
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


def _repeats(keys: Sequence[Any], cuts: Sequence[int]) -> list[int]:
    """Give `cuts` and, between them, each row whose key stands already behind the last cut."""
    found, known = list[int](), set[Any]()
    given = set(cuts)
    for row, key in enumerate(keys):
        if row in given or key in known:
            found.append(row)
            known = set()
        known.add(key)
    return found


def last_per_key(keys: Sequence[Any], start: int, end: int) -> list[int]:
    """Give where each key of a part stands last, in order."""
    return sorted(dict(zip(keys[start:end], range(start, end), strict=True)).values())
