"""R08: leaving early cleans up."""

from __future__ import annotations

import asyncio
import gc
import resource
from typing import Any

import pytest

from acceptance.scenario import MODES, WORKERS, Tally, one_stage
from headway import Pipeline
from support.census import Census

ROWS = 100_000
FEW, FULL = {"task": 15, "thread": 15, "process": 1}, 100


def cases() -> list[Any]:
    return [pytest.param(mode, FEW[mode]) for mode in MODES] + [
        pytest.param(mode, FULL, marks=[pytest.mark.slow, pytest.mark.timeout(900)]) for mode in MODES
    ]


class Scene:
    """A source and a set-up that note how often they were opened and closed."""

    def __init__(self, folder: Any) -> None:
        self.closed = 0
        self.made, self.taken_down = Tally(folder / "made"), Tally(folder / "taken down")

    def rows(self) -> Any:
        try:
            yield from range(ROWS)
        finally:
            self.closed += 1

    def pipeline(self, mode: str) -> Pipeline[Any]:
        made, taken_down = self.made, self.taken_down

        class Connection:
            def __enter__(self) -> int:
                made.bump()
                return 1

            def __exit__(self, *error: object) -> None:
                taken_down.bump()

        def add(value: int, one: int) -> int:
            return value + one

        return one_stage(self.rows, add, mode, setup=Connection)

    def check(self, times: int) -> None:
        assert self.closed == times
        assert self.made.count == self.taken_down.count == times * WORKERS


def take_five(pipeline: Pipeline[Any], form: str) -> list[int]:
    taken: list[int] = []
    if form == "open":
        with pipeline.open() as run:
            for value in run:
                taken.append(value)
                if len(taken) == 5:
                    break
    else:
        values = iter(pipeline)
        taken += [next(values) for _ in range(5)]
        values.close()  # type: ignore[attr-defined]
    return taken


async def take_five_async(pipeline: Pipeline[Any], form: str) -> list[int]:
    taken: list[int] = []
    if form == "open":
        async with pipeline.open() as run:
            async for value in run:
                taken.append(value)
                if len(taken) == 5:
                    break
    else:
        values = aiter(pipeline)
        taken += [await anext(values) for _ in range(5)]
        await values.aclose()  # type: ignore[attr-defined]
    return taken


@pytest.mark.parametrize("form", ["open", "close"])
@pytest.mark.parametrize(("mode", "times"), cases())
def test_when_the_block_ends_everything_is_closed_and_gone(tmp_path, mode, times, form):
    scene = Scene(tmp_path)
    before = Census()
    memory = []
    for number in range(times):
        assert take_five(scene.pipeline(mode), form) == [1, 2, 3, 4, 5]
        scene.check(number + 1)
        assert before.left(patience_s=0) == []
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    gc.collect()
    assert memory[-1] - memory[times // 2] <= 4 * 1024


@pytest.mark.parametrize("form", ["open", "close"])
@pytest.mark.parametrize(("mode", "times"), cases())
def test_when_the_async_block_ends_everything_is_closed_and_gone(tmp_path, mode, times, form):
    scene = Scene(tmp_path)

    async def main() -> None:
        before = Census()
        for number in range(times):
            assert await take_five_async(scene.pipeline(mode), form) == [1, 2, 3, 4, 5]
            scene.check(number + 1)
            assert before.left(patience_s=0) == []

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_an_error_in_the_consumer_cleans_up_and_reaches_the_caller(tmp_path, mode):
    scene = Scene(tmp_path)
    before = Census()
    with pytest.raises(KeyError, match="mine"), scene.pipeline(mode).open() as run:
        for _ in run:
            raise KeyError("mine")
    scene.check(1)
    assert before.left(patience_s=0) == []


def test_a_bare_break_cleans_up_when_the_iterator_goes(tmp_path):
    scene = Scene(tmp_path)
    for _ in scene.pipeline("thread"):
        break
    gc.collect()
    scene.check(1)


def test_an_error_beside_a_run_into_an_endless_sink_ends_the_run():
    def endless() -> Any:
        while True:
            yield 1

    written = []
    with pytest.raises(KeyError, match="mine"), Pipeline(endless).to(written.append).open():
        raise KeyError("mine")
