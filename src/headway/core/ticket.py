"""One dispatch: what a worker is given, what it answers, and the cell that settles once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.core.block import Block, Tag
from headway.errors import Raised

if TYPE_CHECKING:
    from headway.core.lanes import Lane
    from headway.core.stage import Slot, Stage


@dataclass(slots=True, eq=False)
class Job:
    """A ticket as its worker sees it.

    ``values`` are the inputs in order, never a tombstone; ``tags``, and ``keys`` where the stage has
    them, run in parallel. ``limit`` is the number of children that an expansion may make before it must
    pause (0: no expansion). ``attempt``: number of these calls, from 1; ``born``: when the items were;
    ``until``: when their deadline is (both on the driver's clock). ``epoch``: see `Answer.halted`.
    ``resumed``: above 0 it goes on, for so many times now, with the expansion that paused under this
    ticket, and has no values.
    """

    ticket: int
    values: list[Any]
    tags: Sequence[Tag]
    limit: int = 0
    keys: Sequence[Any] | None = None
    attempt: int = 1
    born: float = 0.0
    until: float | None = None
    epoch: int = 0
    resumed: int = 0


@dataclass(slots=True, weakref_slot=True)
class Answer:
    """What a worker did with a job.

    The first ``taken`` inputs are settled; the rest were not started. ``values`` are the outputs in
    order. ``origin[i]`` is the offset of the input that output i came from (None: output i is that
    of input i, none missing); in ``map_batches`` offsets count members over all batches of the job.
    ``failed`` holds (offset, what was raised), offsets rising; an offset in neither list was filtered.
    ``halted``: the last input taken failed in a way that what follows has to wait for; the worker then
    starts no job of the same or an earlier epoch any more, but for one that is resumed, and answers for
    each with nothing taken.
    ``broke`` (map_batches): offsets of the batches, within the job, for which the call itself raised.
    ``again``: a sink's write of what was not taken failed, and is to be made again.
    ``parked``: the input at offset ``taken`` is an expansion that paused after the children given.
    ``started`` and ``stopped`` are readings of the driver's clock; ``cpu`` is the seconds of CPU
    within them, ``sample`` the service time of one call picked at random; ``nbytes`` the size of ``values``.
    """

    ticket: int
    taken: int
    values: list[Any] = field(default_factory=list)
    origin: list[int] | None = None
    failed: list[tuple[int, Raised]] = field(default_factory=list)
    parked: bool = False
    halted: bool = False
    broke: list[int] = field(default_factory=list)
    again: Raised | None = None
    nbytes: int = 0
    started: float = 0.0
    stopped: float = 0.0
    cpu: float = 0.0
    sample: float | None = None


@dataclass(slots=True, eq=False)
class Ticket:
    """The settle-once cell of a dispatch: open while the engine lists it, retired by its one answer.

    ``base`` is the number of children that a paused expansion has delivered; ``expected`` the
    most results that its worker may be making now; ``lanes`` are those of its items. ``twin`` is the
    other of two tickets for the same item, of which the first answer counts.
    """

    number: int
    stage: Stage
    slot: Slot
    blocks: list[Block]
    count: int
    since: float
    base: int = 0
    expected: int = 0
    recalled: bool = False
    resumed: int = 0
    attempt: int = 1
    lanes: list[Lane] = field(default_factory=list)
    twin: Ticket | None = None
