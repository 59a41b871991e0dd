"""Per-key order under skew: what lanes reach of what is possible, and what a stage's rate limit lets through."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import accumulate

import pytest

from headway.core.plan import make_plan
from headway.core.policy import RateLimit
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun

WORKERS = 8


def zipf(items, seed, keys=200_000, exponent=1.1):
    """Keys drawn by Zipf's law."""
    sums = list(accumulate(rank**-exponent for rank in range(1, keys + 1)))
    return random.Random(seed).choices(range(keys), cum_weights=sums, k=items)


def run(rows, service, *, window=None, order="key"):
    stage = StageSpec("map", lambda row: row, "post", workers=WORKERS, needs="key", key=lambda row: row[0])
    sink = StageSpec("consume", None, "output")
    plan = make_plan(PipelineSpec("p", (stage, sink), order=order, window=window))
    return VirtualRun(plan, rows, {"post": service}).run()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", ["constant", "exponential"])
def test_lanes_reach_97_hundredths_of_the_bound_under_zipf_keys(seed, spread):
    rng = random.Random(seed)
    rows = [(key, 1.0 if spread == "constant" else rng.expovariate(1.0)) for key in zipf(6_000, seed)]
    work: Counter[int] = Counter()
    for key, seconds in rows:
        work[key] += seconds
    bound = max(sum(work.values()) / WORKERS, *work.values())
    simulated = run(rows, lambda _rng, row: row[1], window=4096)
    assert bound / simulated.now >= 0.97, bound / simulated.now


def test_the_other_keys_do_not_wait_for_a_slow_one():
    rows = [(key, item) for item in range(40) for key in range(50)]

    def service(_rng, row):
        return 50.0 if row[0] == 0 else 1.0

    def last_of_others(simulated):
        return max(stop for _, _, tag, _, stop in simulated.log if rows[tag][0] != 0)

    with_slow = run(rows, service)
    others = [row for row in rows if row[0] != 0]
    stage = StageSpec("map", lambda row: row, "post", workers=4, needs="key", key=lambda row: row[0])
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output")), order="key"))
    slow = VirtualRun(plan, rows, {"post": service}).run()
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output")), order="key"))
    alone = VirtualRun(plan, others, {"post": service}).run()
    assert max(stop for name, _, tag, _, stop in slow.log if name == "post" and rows[tag][0] != 0) <= 1.5 * alone.now
    for simulated in (with_slow, slow):
        by_key = defaultdict(list)
        for row in simulated.outputs:
            by_key[row[0]].append(row)
        assert all(mine == [row for row in rows if row[0] == key] for key, mine in by_key.items())
    assert last_of_others(with_slow) < 40 * 50.0


@pytest.mark.parametrize(("burst", "calls"), [(1, 1), (5, 5)])
def test_a_rate_is_kept_to_the_call_and_begins_with_its_burst(burst, calls):
    limit = RateLimit(50, burst=burst)
    stages = [
        StageSpec("map", lambda x: x, name, workers=4, rate=limit) for name in ("one", "two")
    ]  # shared: both together make 50 calls a second
    plan = make_plan(PipelineSpec("p", (*stages, StageSpec("consume", None, "output"))))
    simulated = VirtualRun(plan, range(200)).run()
    starts = sorted(started for name, _, _, started, _ in simulated.log if name in ("one", "two"))
    assert len(starts) == 400
    assert starts[-1] == pytest.approx((400 - burst) / 50)
    assert sum(at < 0.02 - 1e-9 for at in starts) == calls
    assert max(sum(at <= other < at + 1 - 1e-9 for other in starts) for at in starts) <= 50 + burst - 1


def test_the_cost_of_a_call_is_taken_from_its_value():
    limit = RateLimit(10, cost=lambda value: value)
    stage = StageSpec("map", lambda x: x, "one", workers=4, rate=limit)
    plan = make_plan(PipelineSpec("p", (stage, StageSpec("consume", None, "output"))))
    simulated = VirtualRun(plan, [1, 3, 2, 1]).run()
    starts = [round(started, 6) for name, _, _, started, _ in simulated.log if name == "one"]
    assert starts == [0.0, 0.1, 0.4, 0.6]
