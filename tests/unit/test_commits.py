"""The time of a commit is the sink's: what its slot was thought to do meanwhile is not counted besides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headway.core.meter import StageMeter
from headway.run.commits import count
from headway.run.worker import Spent


@pytest.mark.parametrize(
    ("handed_out", "overhead", "starved", "mark"),
    [
        (None, 0.0, 5.0, None),  # nothing came: the slot was idle before, and is behind it
        (2.0, 1.0, 2.0, 6.0),  # a job waited already as the commit began
        (4.0, 0.0, 3.0, 6.0),  # one came while it ran
        (7.0, 0.0, 4.0, 7.0),  # one came behind it, before the commit was told
    ],
)
def test_a_commit_from_3_to_6_told_at_8(
    handed_out: float | None, overhead: float, starved: float, mark: float | None
) -> None:
    meter = StageMeter(0.0)
    meter.idle(1, "starved", 0.0)
    slot: Any = SimpleNamespace(stage=SimpleNamespace(meter=meter), tickets=[], mark=0.0)
    if handed_out is not None:
        meter.idle(0, "starved", handed_out)
        slot.tickets, slot.mark = ["ticket"], handed_out
    count(slot, Spent(3.0, 6.0, 1.5))
    times = meter.times(8.0)
    assert (times["busy"], times["overhead"], times["starved"]) == (3.0, overhead, starved)
    assert meter.cpu == 1.5
    if mark is not None:
        assert slot.mark == mark
        assert sum(times.values()) + 8.0 - slot.mark == 8.0, "without a gap: the rest is the job's"
