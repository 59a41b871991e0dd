"""What code inside a stage can ask about the item that it was called for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.claim import current
from headway.core.block import Tag
from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class Item:
    """The item that a stage's function was called for; of a call for several items, the first.

    ``seq`` is its number from 0, for a child of an expansion a tuple that begins with it; ``key`` that of
    a keyed stage, else None; ``attempt`` counts calls from 1; ``trace_id`` is ``run/shard/seq/path``, the
    same in every stage; ``age`` the seconds since it was read.
    """

    seq: Tag
    key: Any
    attempt: int
    trace_id: str
    age: float


def current_item() -> Item:
    """The item that the running function was called for: in threads, tasks, processes and inline.

    What a function leaves running after it has returned is told of the item of that moment. Raises
    HeadwayError outside a stage, and where a worker opens or closes.
    """
    cell = current.get(None)
    job, at = (cell.job, cell.at) if cell is not None else (None, -1)
    if cell is None or job is None or not 0 <= at < len(job.tags):
        raise HeadwayError("current_item() tells of the item of a stage's call; no such call is running here")
    seq = job.tags[at]
    path = (seq,) if isinstance(seq, int) else seq
    return Item(
        seq,
        job.keys[at] if job.keys is not None else None,
        job.attempt,
        "/".join((cell.run, "0", *map(str, path))),
        max(0.0, cell.clock() - job.born) if cell.clock is not None else 0.0,
    )
