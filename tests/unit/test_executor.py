"""Stages on an executor that the user made and keeps."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from headway import DROP, Pipeline, PlanError, StageError, WorkerDied


def test_a_thread_pool_runs_the_calls_keeps_order_and_stays_open():
    with ThreadPoolExecutor(3, thread_name_prefix="mine") as pool:
        names = Pipeline(range(200)).map(lambda x: (x, threading.current_thread().name), on=pool, workers=3).collect()
        assert [x for x, _ in names] == list(range(200))
        assert {name.split("_")[0] for _, name in names} == {"mine"}
        assert pool.submit(lambda: 1).result() == 1


def test_failures_and_filtered_items_keep_their_place():
    def odd(x):
        if x == 7:
            raise ValueError("seven")
        return DROP if x % 2 == 0 else x

    with ThreadPoolExecutor(2) as pool:
        pipeline = Pipeline(range(20), on_error="dead_letter").map(odd, on=pool, workers=2)
        assert pipeline.collect() == [1, 3, 5, 9, 11, 13, 15, 17, 19]
        with pytest.raises(StageError):
            Pipeline(range(20)).map(odd, on=pool).collect()


def test_a_process_pool_gets_functions_by_value_and_survives_what_cannot_be_sent():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        factor = 3
        done = Pipeline(range(50)).map(lambda x: (x * factor, os.getpid()), on=pool, workers=2).collect()
        assert [x for x, _ in done] == [3 * x for x in range(50)]
        assert os.getpid() not in {pid for _, pid in done}
        kept = Pipeline(range(5), on_error="keep").map(lambda x: threading.Lock() if x == 2 else x, on=pool).collect()
        assert kept[:2] + kept[3:] == [0, 1, 3, 4]
        assert isinstance(kept[2].error, TypeError)


def test_a_broken_pool_fails_the_run_and_does_not_hang():
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool, pytest.raises(WorkerDied, match="executor"):
        Pipeline(range(5)).map(lambda x: os._exit(3) if x == 2 else x, on=pool).collect()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda p, pool: p.map(lambda x, _: x, on=pool, setup=dict), "setup="),
        (lambda p, pool: p.flat_map(lambda x: [x], on=pool), "flat_map"),
        (lambda p, pool: p.map(print, on=3), "Executor"),
    ],
)
def test_what_an_executor_cannot_give_is_refused(build, says):
    with ThreadPoolExecutor(1) as pool, pytest.raises(PlanError, match=says):
        build(Pipeline([1]), pool).plan()
