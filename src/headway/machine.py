"""What there is to run on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache


def cores() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def give_back_memory() -> None:
    """Give what was freed back to the system, where the C library keeps it in pieces for later (glibc); some milliseconds."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    with suppress(OSError, TypeError, AttributeError):  # another system, or another C library
        return ctypes.CDLL(None).malloc_trim
    return None
