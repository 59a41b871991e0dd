"""A table to write: its columns, its key, and what a key that comes again means.

::

    mode     keep
    append   -              only the table's own constraints (a key is one); a violation is a reject
    fail     first          reject `duplicate_key`
    ignore   first          counted as skipped
    replace  first | last   the table is emptied first; then reject, or overwrite
    upsert   last           overwrite

What does not belong here: SQL, and the databases' names for types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from headway.errors import PlanError
from headway.io.columns import ColumnType, Text

LEGAL = {
    "append": (None,),
    "fail": ("first",),
    "ignore": ("first",),
    "replace": ("first", "last"),
    "upsert": ("last",),
}
"""Mode -> what `keep` may be, the default first."""

_NEAREST_MODE = {"fail": "upsert", "ignore": "upsert", "upsert": "fail"}


@dataclass(frozen=True)
class Column:
    """A column; `required` refuses NULL."""

    name: str
    type: ColumnType = field(default_factory=Text)
    required: bool = False


@dataclass(frozen=True)
class Unique:
    """Columns whose values may stand once, and what becomes of a row that repeats them."""

    columns: tuple[str, ...]
    reason: str = "duplicate_key"
    """`duplicate_key` or `constraint` for a reject, `skipped` for a row that is left out."""


@dataclass(frozen=True)
class Table:
    """A checked declaration. Raises PlanError where the parts contradict each other.

    `uniques` are constraints that the table in the database has besides `key`; `has_rules`: it has others besides, so
    that it has to see each row, one that is overwritten later too.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    mode: str = "append"
    keep: str | None = None
    uniques: tuple[Unique, ...] = ()
    has_rules: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise PlanError(f"table {self.name}: it has no columns")
        if len({name.casefold() for name in names}) < len(names):
            raise PlanError(f"table {self.name}: a column name occurs twice in {', '.join(names)}")
        for name in self.key:
            if name not in names:
                raise PlanError(f"table {self.name}: key column {name!r} is not one of {', '.join(names)}")
        if len(set(self.key)) < len(self.key):
            raise PlanError(f"table {self.name}: a column stands twice in the key")
        keep = checked_keep(self.mode, self.keep, has_key=bool(self.key), table=self.name)
        object.__setattr__(self, "keep", keep)
        columns = tuple(replace(c, required=True) if c.name in self.key else c for c in self.columns)
        object.__setattr__(self, "columns", columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def overwrites(self) -> bool:
        """Whether a later row replaces an earlier one with the same key."""
        return bool(self.key) and self.keep == "last"

    @property
    def refusals(self) -> tuple[Unique, ...]:
        """What can refuse a row because of rows that stand before it, as far as the row's own columns tell."""
        own = tuple(
            unique
            for unique in self.uniques
            if set(unique.columns) != set(self.key) and {*unique.columns} <= {*self.names}
        )
        if not self.key or self.overwrites:
            return own
        return (Unique(self.key, "skipped" if self.mode == "ignore" else "duplicate_key"), *own)

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Where the columns stand."""
        all_names = self.names
        return tuple(all_names.index(name) for name in names)


def default_mode(key: Sequence[str]) -> str:
    """Give the mode of a table for which none was named."""
    return "fail" if key else "append"


def checked_keep(mode: str, keep: str | None, *, has_key: bool, table: str) -> str | None:
    """Give what `keep` means with this mode, its default for None. Raises PlanError naming the nearest legal pair."""
    if mode not in LEGAL:
        raise PlanError(f"table {table}: mode {mode!r} is not known; there are {', '.join(LEGAL)}")
    if keep not in (None, "first", "last"):
        raise PlanError(f"table {table}: --keep {keep}: there are first and last")
    if mode == "append" and keep is not None:
        nearest = "--mode fail" if keep == "first" else "--mode upsert"
        raise PlanError(
            f"table {table}: --mode append knows no --keep; the nearest is {nearest} --keep {keep} with --key"
        )
    if mode == "append":
        return None
    if mode == "replace" and not has_key:
        if keep is not None:
            raise PlanError(f"table {table}: --keep {keep} needs --key; the nearest is --mode replace without --keep")
        return None
    if not has_key:
        raise PlanError(f"table {table}: --mode {mode} needs --key; the nearest without one is --mode append")
    if keep is None:
        return LEGAL[mode][0]
    if keep not in LEGAL[mode]:
        raise PlanError(
            f"table {table}: --mode {mode} knows no --keep {keep}; the nearest is "
            f"--mode {_NEAREST_MODE[mode]} --keep {keep}, or --mode {mode} --keep {LEGAL[mode][0]}"
        )
    return keep


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Make names that a database can tell apart: none empty, none twice in any spelling of case.

    An empty one becomes ``column_N`` (N from 1), a repeated one gets ``_2``, ``_3``, ...; what no
    identifier can hold (NUL, bytes that could not be decoded) becomes U+FFFD.
    """
    clean = [_printable(name) or f"column_{number}" for number, name in enumerate(names, 1)]
    given = {name.casefold() for name in clean}
    taken: set[str] = set()
    result: list[str] = []
    for name in clean:
        free, number = name, 1
        while free.casefold() in taken or (number > 1 and free.casefold() in given):
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        result.append(free)
    return tuple(result)


def _printable(name: str) -> str:
    return "".join("\ufffd" if char == "\x00" or "\ud800" <= char <= "\udfff" else char for char in name)
