"""A file that one run holds, so that no other begins the same work.

The operating system gives the lock back when the process ends, however it ends; a file that a killed
run leaves behind holds nobody up. What does not belong here: what the work is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import HeadwayError


@contextmanager
def held_alone(path: Path, *, refusal: str) -> Iterator[None]:
    """Hold `path` for the block; it is removed at the end.

    Raises HeadwayError, with `refusal` as its text, while another block holds it, in this process or another.
    """
    try:
        descriptor = _locked(path)
    except OSError as error:
        raise HeadwayError(f"{path}: {error.strerror}") from error
    if descriptor is None:
        raise HeadwayError(refusal)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: nobody else can hold it yet
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _stands_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed by its holder in between: take the one that is there now


def _stands_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
