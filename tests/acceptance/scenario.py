"""What the scenarios share: their modes, their stage, and how to count across processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway import Pipeline

MODES = ("task", "thread", "process")
WORKERS, QUEUE, WINDOW = 4, 4, 64


def one_stage(source: Any, fn: Any, mode: str, **options: Any) -> Pipeline[Any]:
    """One stage of 4 workers with a queue of 4 in a window of 64, in input order."""
    window = options.pop("window", WINDOW)
    on_error = options.pop("on_error", "raise")
    stage = {"on": mode, "workers": WORKERS, "queue": QUEUE} | options
    return Pipeline(source, window=window, on_error=on_error).map(fn, **stage)


def repeats(few: int, full: int) -> Any:
    """Run a test a few times in the fast suite and as often as the scenario says in the slow one."""
    return pytest.mark.parametrize(
        "times", [few, pytest.param(full, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
    )


class Tally:
    """A counter that a function can bump in any process: one byte a call in a file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def bump(self) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, b".")
        os.close(handle)

    @property
    def count(self) -> int:
        return os.path.getsize(self._path) if os.path.exists(self._path) else 0  # noqa: PTH110, PTH202 - picklable and brief


def iterate(pipeline: Pipeline[Any], mode: str, look: Callable[[Any], bool | None], **how: Any) -> Any:
    """Give each output to `look` until it returns False; sync, or async in mode task. Returns the run, ended."""
    if mode != "task":
        run = pipeline.open(**how)
        with run:
            for value in run:
                if look(value) is False:
                    break
        return run

    async def main() -> Any:
        run = pipeline.open(**how)
        async with run:
            async for value in run:
                if look(value) is False:
                    break
        return run

    return asyncio.run(main())
