"""Random pipelines under faults in virtual time: invariants I1 to I8, I11 and I13. See faulty.py.

A failing seed is named in the message; `run_one(seed)` replays it exactly. More seeds:
HEADWAY_SEEDS=20000 with `-k faults`.
"""

from __future__ import annotations

import os

import pytest

from property.faulty import run_one

SEEDS = int(os.environ.get("HEADWAY_SEEDS", "500"))
SHARE = 100


@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_under_faults_every_outcome_is_that_of_a_plain_loop_with_the_same_faults(first: int) -> None:
    for seed in range(first, first + SHARE):
        run_one(seed)


@pytest.mark.parametrize("seed", range(0, 3000, 101))
def test_a_seed_with_faults_replays_bit_by_bit(seed: int) -> None:
    assert run_one(seed) == run_one(seed)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(5193, id="late items of a blocked key"),
        pytest.param(18456, id="an expansion paused in a block with gaps"),
        pytest.param(19751, id="late items that block each other's key"),
        pytest.param(22376, id="an open batch and the window full behind it"),
    ],
)
def test_what_once_failed_holds(seed: int) -> None:
    run_one(seed)
