"""R02: keep going and set failures aside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acceptance.scenario import MODES, iterate, one_stage
from headway import Pipeline, StageError, TooManyFailures, read_dead_letters

BAD = (10, 20, 30)


def check(value: int) -> int:
    if value in BAD:
        raise ValueError(f"bad {value}")
    return value


def every_tenth(value: int) -> int:
    if value % 10 == 9:
        raise ValueError(f"bad {value}")
    return value


@pytest.mark.parametrize("mode", MODES)
def test_three_failures_are_set_aside_and_97_outputs_come_in_order(mode):
    letters: list[Any] = []
    outputs: list[int] = []
    run = iterate(
        one_stage(range(100), check, mode, on_error="dead_letter"), mode, outputs.append, dead_letters=letters
    )
    assert outputs == [n for n in range(100) if n not in BAD]
    letters.sort(key=lambda letter: letter.seq)
    assert [(f.seq, f.value, f.stage, type(f.error), str(f.error), f.attempts) for f in letters] == [
        (n, n, "check", ValueError, f"bad {n}", 1) for n in BAD
    ]
    assert all("raise ValueError" in letter.traceback for letter in letters)
    assert run.report.items.dead == 3
    assert run.report.complete


@pytest.mark.parametrize("mode", MODES)
def test_failures_written_as_json_lines_are_a_source_again(tmp_path, mode):
    path = tmp_path / "letters.jsonl"
    report = one_stage(range(100), check, mode, on_error="dead_letter").run(dead_letters=path)
    assert report.items.dead == 3
    lines = sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda line: line["seq"])
    assert [(line["seq"], line["stage"], line["error"], line["message"], line["attempts"], line["value"]) for line in lines] == [
        (n, "check", "ValueError", f"bad {n}", 1, n) for n in BAD
    ]  # fmt: skip
    again = one_stage(read_dead_letters(path), lambda value: value + 1, mode)
    assert sorted(again.collect()) == [11, 21, 31]
    assert sorted(again.collect()) == [11, 21, 31]


@pytest.mark.parametrize("mode", MODES)
def test_failures_in_the_report_are_a_source_again(mode):
    report = one_stage(range(100), check, mode, on_error="dead_letter").run()
    assert sorted(Pipeline(report.dead_letters).map(lambda letter: letter.value).collect()) == list(BAD)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_policy_the_first_failure_ends_the_run(mode):
    with pytest.raises(StageError) as caught:
        one_stage(range(100), check, mode).run()
    assert caught.value.seq == 10


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        pytest.param(mode, policy, marks=[pytest.mark.slow] if mode == "process" and policy != "skip" else [])
        for mode in MODES
        for policy in ("dead_letter", "skip", "keep")
    ],
)
def test_max_failures_of_two_ends_the_run_at_the_third(mode, policy):
    pipeline = one_stage(range(100), check, mode, on_error=policy, max_failures=2)
    with pytest.raises(TooManyFailures, match="3 items failed, max_failures=2") as caught:
        pipeline.run()
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.report.stages[0].failed == 3
    assert one_stage(range(100), check, mode, on_error=policy, max_failures=3).run().items.dead == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_share_of_failures_counts_from_the_hundredth_item_on(mode):
    with pytest.raises(TooManyFailures, match=r"max_failures=0\.05") as caught:
        one_stage(range(1000), every_tenth, mode, on_error="dead_letter", max_failures=0.05).run()
    assert caught.value.report.stages[0]["in"] >= 100
    report = one_stage(range(90), every_tenth, mode, on_error="dead_letter", max_failures=0.05).run()
    assert report.items.dead == 9


@pytest.mark.parametrize("mode", MODES)
def test_the_limit_is_each_stage_s_own(mode):
    pipeline = (
        Pipeline(range(100), on_error="dead_letter")
        .map(check, on=mode, workers=2, max_failures=3)
        .map(every_tenth, on="thread", max_failures=10)
    )
    report = pipeline.run()
    assert [stage.failed for stage in report.stages] == [3, 10]
