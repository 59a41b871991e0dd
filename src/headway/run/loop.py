"""An event loop of a run's own, which ends although a call of the user's does not; and what of a processor a loop takes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

CANCELLED_S = 0.5
"""How long tasks that are left have to take their cancellation."""


class LoopTime:
    """Processor seconds of the thread that runs the loop, from `begin` to `stop`.

    It is read from the thread's own clock when somebody asks, from any thread; nothing is noted on the way.
    """

    def __init__(self) -> None:
        self._clock: int | None = None
        self._begun = self._ended = (0.0, 0.0)

    def begin(self) -> None:
        """Called by the thread that is measured. Where threads have no clocks for others (not on Linux) nothing is."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
            self._begun = self._ended = self._now(self._clock)

    def stop(self) -> None:
        """What comes from here on is not counted: the thread may end, and its clock with it."""
        if self._clock is not None:
            self._ended, self._clock = self._now(self._clock), None

    def spent(self) -> tuple[float, float]:
        """Seconds on a processor, and seconds in all; 0 where it was not measured."""
        clock = self._clock
        cpu, wall = self._ended if clock is None else self._now(clock)
        return cpu - self._begun[0], wall - self._begun[1]

    @staticmethod
    def _now(clock: int) -> tuple[float, float]:
        return time.clock_gettime(clock), time.perf_counter()


def run_on_own_loop(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but tasks that swallow their cancellation, and threads that they wait for, are left behind."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                _, left = loop.run_until_complete(asyncio.wait(left, timeout=CANCELLED_S))
            for task in left:
                # It was told of when it was given up; its end would be told as a defect of the loop.
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            if not left:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
