"""Time limits of calls: one look at all workers, when the first call may be over its limit. No timer for each item."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from headway.core.spec import StageSpec
from headway.core.stage import Slot
from headway.errors import ItemTimeout
from headway.run.worker import Worker

SHORTEST_S = 0.001
"""Between two looks pass at least so many seconds."""
CLOSE_S = 0.02
"""So many seconds pass at most while a job with a deadline is in hand and its call has not begun."""


def sweep(workers: Iterable[tuple[Slot, Worker]], now: float) -> float:
    """Give up the calls that take longer than their stage's ``timeout``, or than their item's ``deadline``.

    Returns when to look again, at the latest; inf if no stage has limits.
    """
    again = inf
    for slot, worker in workers:
        spec = slot.stage.spec
        if spec.timeout is None and spec.deadline is None:
            continue
        if spec.timeout is not None:  # a call that begins from now on
            again = min(again, now + spec.timeout)
        if not slot.tickets:
            continue
        running = worker.running()
        if running is None:
            again = min(again, now + CLOSE_S) if spec.deadline is not None else again
            continue
        ticket, began, until = running
        over = began + spec.timeout if spec.timeout is not None else inf
        due = min(over, inf if until is None else until)
        if due <= now:
            worker.give_up(ticket, too_long(spec, by_deadline=due < over))
        else:
            again = min(again, due)
    return max(again, now + SHORTEST_S)


def too_long(spec: StageSpec, *, by_deadline: bool) -> ItemTimeout:
    """The error of a call that is given up."""
    limit = f"deadline={spec.deadline:g} s of its item" if by_deadline else f"timeout={spec.timeout:g} s"
    return ItemTimeout(f"the call of stage {spec.name!r} was not over within {limit}", stage=spec.name)
