"""SIGKILL at chosen moments of a pipeline of one's own: the same command again, until it ends, gives what one undisturbed run gives.

A database has every row exactly once. With a function as sink a value may be written again after a kill: its
`trace_id` is the same then, so what is written by that name is what an undisturbed run writes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.checkpointing import MOMENTS, ROWS, expected, letters, run
from support.importing import query
from support.targets import TARGETS

ORDERS = ("input", "none")


def kill_and_go_on(folder: Path, target: str, order: str, kills: list[tuple[str, int]]) -> int:
    """Run until it ends, killed once at each moment; how often it was killed. Then once more, for nothing."""
    killed = 0
    for moment, number in kills:
        report = run(folder, target, order=order, moment=moment, number=number)
        killed += report is None
        if report is not None:
            assert report["complete"]
            break
    else:
        report = run(folder, target, order=order)
        assert report is not None
        assert report["complete"]
    before = held(folder, target)
    third = run(folder, target, order=order)
    assert third is not None
    assert third["job"]["already_finished"]
    assert third["items"]["read"] == 0
    assert held(folder, target) == before
    aside = [json.loads(line)["seq"] for line in (folder / "aside.jsonl").read_text().splitlines()]
    assert set(aside) == letters()
    assert len(aside) <= len(letters()) + killed * 60, "at most what was in the window comes again"
    return killed


def held(folder: Path, target: str) -> Any:
    """What was written, as often as it stands."""
    if target == "file":
        return (folder / "log").read_text(), sorted(path.name for path in (folder / "out").iterdir())
    return sorted(query(target, "SELECT row, number FROM t"))


def drawn(seed: int, kind: str, count: int) -> list[tuple[str, int]]:
    """So many moments: each kind of them, then any."""
    rng = random.Random(seed)
    moments = [*MOMENTS[kind], *rng.choices(MOMENTS[kind], k=count)][:count]
    most = {"stage": 60, "write": 5, "letter": 2}
    return [(moment, rng.randint(1, most.get(moment, 3))) for moment in moments]


def check_file(folder: Path, order: str, kills: list[tuple[str, int]]) -> None:
    killed = kill_and_go_on(folder, "file", order, kills)
    assert killed >= 3
    values = [json.loads(path.read_text()) for path in (folder / "out").iterdir()]
    assert sorted(map(tuple, values)) == expected()
    log = [tuple(map(int, line.split())) for line in (folder / "log").read_text().splitlines()]
    assert set(log) == set(expected())
    assert len(log) < killed * ROWS + len(expected()), "a run goes on, it does not begin anew"


def some(seed: int, *moments: str) -> list[tuple[str, int]]:
    return [
        (moment, number)
        for moment, number in drawn(seed, "file" if "part" in moments else "database", 6)
        if moment in moments
    ]


@pytest.mark.parametrize("target", ["bank.db"], indirect=True)
def test_a_database_has_every_row_once_after_a_kill_in_a_write_in_a_commit_and_behind_it(
    target: str, tmp_path: Path
) -> None:
    assert kill_and_go_on(tmp_path, target, "none", some(1, "write", "inside", "after")) == 3
    assert held(tmp_path, target) == expected()


def test_a_function_as_sink_has_every_value_after_a_kill_before_and_behind_the_save(tmp_path: Path) -> None:
    check_file(tmp_path, "input", some(1, "write", "part", "replaced"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_database_whatever_the_moments(target: str, order: str, seed: int, tmp_path: Path) -> None:
    assert kill_and_go_on(tmp_path, target, order, drawn(seed, "database", 14)) >= 3
    assert held(tmp_path, target) == expected()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("order", ORDERS)
def test_a_function_whatever_the_moments(order: str, seed: int, tmp_path: Path) -> None:
    check_file(tmp_path, order, drawn(seed, "file", 14))
