"""Random pipelines under random schedules in virtual time: invariants I1 to I3, I5 to I7, I12 and I13.

A failing seed is named in the message; `run_one(seed)` replays it exactly. More seeds:
HEADWAY_SEEDS=20000 with `-k random`.
"""

from __future__ import annotations

import os

import pytest

from property.pipelines import run_one

SEEDS = int(os.environ.get("HEADWAY_SEEDS", "600"))
SHARE = 100


@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_random_pipelines_keep_order_lose_nothing_and_end(first: int) -> None:
    for seed in range(first, first + SHARE):
        run_one(seed)


@pytest.mark.parametrize("seed", range(0, 4000, 97))
def test_a_seed_replays_bit_by_bit(seed: int) -> None:
    assert run_one(seed) == run_one(seed)
