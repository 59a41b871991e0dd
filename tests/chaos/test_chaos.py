"""Real workers killed at random moments: nothing lost, nothing twice, order kept, at most one item a kill.

A failing seed is named with the command that replays it. More kills: HEADWAY_KILLS=5000.
"""

from __future__ import annotations

import os

import pytest

from chaos.conftest import TOTALS
from chaos.runs import Chaos, Tally

KILLS = int(os.environ.get("HEADWAY_KILLS", "1000"))
SHARES = 20

pytestmark = pytest.mark.filterwarnings("ignore:.*was given up at its time limit:RuntimeWarning")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [3, 5])
def test_a_run_whose_workers_are_killed_is_that_of_a_plain_loop(seed):
    TOTALS.add(Chaos(seed).go())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("share", range(SHARES))
def test_many_runs_whose_workers_are_killed_are_those_of_a_plain_loop(share):
    totals, seed = Tally(), share * 10_000
    while sum(totals.kills.values()) < KILLS / SHARES:
        totals.add(Chaos(seed).go())
        seed += 1
    TOTALS.add(totals)
