"""R09: a worker is killed: what it costs, who is told, and what goes on."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from acceptance.scenario import one_stage
from headway import Retry, WorkerDied
from headway.core.plan import BLOCK

COUNT, VICTIM = 100, 10


def fatal(value: int) -> tuple[int, int]:
    """Its worker is killed while it holds item 10."""
    if value == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    return value, os.getpid()


def values(outputs: list[tuple[int, int]]) -> list[int]:
    return [value for value, _ in outputs]


def test_by_default_the_run_fails_and_names_stage_item_and_signal():
    with pytest.raises(WorkerDied) as caught:
        one_stage(range(COUNT), fatal, "process").collect()
    error = caught.value
    assert (error.stage, error.seq, error.value, error.signal, error.exitcode) == ("fatal", VICTIM, VICTIM, 9, None)
    assert "'fatal'" in str(error)
    assert "item 10" in str(error)
    assert "SIGKILL" in str(error)
    assert "memory" in str(error)


@pytest.mark.parametrize("queue", [4, BLOCK], ids=["blocks of one", "large blocks"])
def test_with_dead_letters_the_item_is_the_only_one_lost_and_the_pool_is_whole_again(queue):
    letters: list[Any] = []
    pipeline = one_stage(range(COUNT), fatal, "process", queue=queue, window=2 * BLOCK, on_error="dead_letter")
    with pipeline.open(dead_letters=letters) as run:
        outputs = list(run)
    assert values(outputs) == [n for n in range(COUNT) if n != VICTIM]
    (letter,) = letters
    assert (letter.seq, letter.value, letter.attempts) == (VICTIM, VICTIM, 1)
    assert type(letter.error) is WorkerDied
    (stage,) = (stage for stage in run.report.stages if stage["name"] == "fatal")
    assert (stage["restarts"], stage["failed"], stage["workers"]) == (1, 1, 4)
    assert run.report.complete


def test_the_other_workers_go_on_undisturbed(tmp_path):
    """Each worker notes its start: one more than there are slots, and whoever was there before still serves."""
    path = tmp_path / "pids"

    def setup() -> None:
        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def work(value: int, _: None) -> tuple[int, int]:
        if value != VICTIM:
            return value, os.getpid()
        return fatal(value)

    letters: list[Any] = []
    pipeline = one_stage(range(600), work, "process", setup=setup, on_error="dead_letter")
    with pipeline.open(dead_letters=letters) as run:
        outputs = list(run)
    assert len(outputs) == 599
    assert len(path.read_text().split()) == 5
    assert len({pid for value, pid in outputs if value > 300}) == 4


def test_an_item_that_kills_its_worker_each_time_is_tried_once_more_then_set_aside_as_poison():
    letters: list[Any] = []
    pipeline = one_stage(
        range(COUNT), fatal, "process", on_error="dead_letter", retry=Retry(2, on=WorkerDied, backoff=0.0)
    )
    with pipeline.open(dead_letters=letters) as run:
        outputs = list(run)
    assert values(outputs) == [n for n in range(COUNT) if n != VICTIM]
    (letter,) = letters
    assert (letter.seq, letter.attempts) == (VICTIM, 2)
    assert type(letter.error) is WorkerDied
    assert letter.error.signal == 9
    (stage,) = (stage for stage in run.report.stages if stage["name"] == "fatal")
    assert stage["restarts"] == 2
    assert run.report.complete


def test_an_idempotent_stage_loses_nothing_when_a_worker_dies_once(tmp_path):
    marker = tmp_path / "killed"

    def once(value: int) -> int:
        if value == VICTIM and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    for queue in (4, BLOCK):
        marker.unlink(missing_ok=True)
        pipeline = one_stage(range(COUNT), once, "process", queue=queue, window=2 * BLOCK, idempotent=True)
        assert pipeline.collect() == list(range(COUNT))


def test_where_every_worker_dies_at_once_the_run_ends_with_the_reason():
    def dead(value: int) -> int:
        os._exit(3)

    with pytest.raises(Exception, match=r"(?i)exit code 3") as caught:
        one_stage(range(COUNT), dead, "process", on_error="dead_letter").run(dead_letters=[])
    assert "dead" in str(caught.value)
