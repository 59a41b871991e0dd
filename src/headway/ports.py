"""What a pipeline reads from and writes to: the two protocols that users implement. Holds no code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


@runtime_checkable
class Source(Protocol[T_co]):
    """Something to read from in pieces. A source may also have `close()`, called at the end.

    For a run with ``job=`` or ``checkpoint=`` it may have `fingerprint()`, a text that says which content it is, and
    `position()` with `seek(position)`: where the next row comes from, as JSON. Without them it is read from its
    beginning in each run, and what is done is dropped.
    """

    def read(self, n: int, /) -> Sequence[T_co]:
        """Up to `n` items; none at the end."""


class Sink(Protocol[T_contra]):
    """Something to write to. Its methods may be async; they are called one after another, never at once.

    With `load(job)` it is transactional: that is called before `open`, makes the job this sink's, and gives the last
    state that `commit` has stored together with what was written, or None. `close` lets go of the job.
    """

    def open(self, resume: dict[str, Any] | None, /) -> Any:
        """Called once, before the first write. `resume`: where an earlier run of the same job stopped, if one did."""

    def write(self, items: Sequence[T_contra], /) -> Any:
        """Write values, in order: up to 1,000, or those of one batch.

        If it raises, each half is written alone, the left one first; the single item that raises is the
        failure. So a sink that keeps what it could not write has to go on raising.
        """

    def commit(self, state: dict[str, Any], /) -> Any:
        """Make what was written durable. Called about once a second, and at the end unless the run was aborted.

        `state` is JSON and speaks of exactly what was written: ``watermark``, below which every row is done, ``done``
        above it, ``written``, ``finished``, and more with a job.
        """

    def close(self, error: BaseException | None, /) -> Any:
        """Called once, last; `error` is why the run failed."""
