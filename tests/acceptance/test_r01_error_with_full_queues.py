"""R01: an error with full queues ends the run."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from acceptance.scenario import MODES, WINDOW, Tally, iterate, one_stage
from headway import StageError

FEW, FULL = {"task": 40, "thread": 40, "process": 2}, 200


def cases() -> list[Any]:
    few = [pytest.param(mode, FEW[mode]) for mode in MODES]
    return few + [
        pytest.param(mode, FULL, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]) for mode in MODES
    ]  # fmt: skip


@pytest.mark.parametrize(("mode", "times"), cases())
def test_the_caller_gets_the_error_after_a_prefix_of_the_outputs(tmp_path, mode, times):
    for n in range(times):
        started = Tally(tmp_path / str(n))

        def check(value: int, started: Tally = started) -> int:
            started.bump()
            assert value != 10
            return value

        outputs: list[int] = []
        with pytest.raises(StageError) as caught:
            iterate(one_stage(range(100), check, mode, queue=1), mode, outputs.append)
        error = caught.value
        assert isinstance(error.__cause__, AssertionError)
        assert (error.stage, error.seq, error.value, error.attempts) == ("check", 10, 10, 1)
        assert "assert value != 10" in "".join(traceback.format_exception(error))
        assert outputs == list(range(10))
        assert 11 <= started.count <= 10 + WINDOW
        items = error.report.items
        assert items.read == items.written + items.dead + items.unread
