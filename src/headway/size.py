"""Cheap estimates of how many bytes values hold. Nothing here is exact, and nothing here raises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

FLAT = frozenset((int, float, bool, type(None), complex))
"""Types whose values all have about the same few bytes."""


def size_of(value: Any) -> int:
    """A cheap estimate of a value's bytes: `nbytes`, the length of bytes and text, `sys.getsizeof`, else 1 KB."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    try:
        nbytes = getattr(value, "nbytes", None)
        return nbytes if isinstance(nbytes, int) else sys.getsizeof(value)
    except Exception:  # a user's class may raise anything here
        return 1024


def sizes(values: Sequence[Any], size: Callable[[Any], int] | None = None) -> int:
    """Bytes of all `values`. A size function that raises counts 1 KB."""
    if size is not None:
        return sum(one_size(size, value) for value in values)
    kinds = set(map(type, values))
    if kinds <= FLAT:
        return 28 * len(values)
    if kinds <= {str} or kinds <= {bytes}:
        return sum(map(len, values))
    return sum(map(size_of, values))


def one_size(size: Callable[[Any], int], value: Any) -> int:
    """What a user's size function says of a value; 1 KB if it raises."""
    try:
        return int(size(value))
    except Exception:  # an estimate must not fail an item
        return 1024


def largest(values: Sequence[Any], size: Callable[[Any], int] | None = None) -> int:
    """Bytes of the largest of `values`."""
    if size is None and set(map(type, values)) <= FLAT:
        return 28
    return max((one_size(size or size_of, value) for value in values), default=1)
