"""The values of one source row, with names. What does not belong here: where they come from."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any


class Row(tuple[Any, ...]):
    """The values of one source row, with names.

    Iterating gives values in column order; ``row.account``, ``row["account"]`` and ``row[1]`` give
    one value; a column whose name is no identifier has only the last two.
    """

    __slots__ = ()
    _index: Mapping[str, int] = {}
    _names: tuple[str, ...] = ()

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self._index[key] if type(key) is str else key)

    def asdict(self) -> dict[str, Any]:
        """Give column name -> value."""
        return dict(zip(self._names, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as names and values: the type is made anew where it arrives."""
        return _row, (self._names, tuple(self))


def row_type(names: Sequence[str]) -> type[Row]:
    """Make the type of the rows of one file, with an attribute per column."""
    return _type_of(tuple(names))


@lru_cache(maxsize=64)
def _type_of(names: tuple[str, ...]) -> type[Row]:
    index = {name: place for place, name in enumerate(names)}
    members: dict[str, Any] = {"__slots__": (), "_index": index, "_names": names}
    # Attribute access at C speed; the names are positions, so any header will do.
    getters: Any = namedtuple("getters", [f"f{place}" for place in range(len(names))])  # type: ignore[misc]  # noqa: PYI024
    for place, name in enumerate(names):
        if name.isidentifier() and name not in ("asdict", "_index", "_names") and not name.startswith("__"):
            members[name] = getattr(getters, f"f{place}")
    return type("Row", (Row,), members)


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return _type_of(names)(values)
