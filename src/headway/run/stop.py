"""Signals on the main thread become stops of a run: drain, then cancel, then abort."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from headway.errors import RunError
from headway.run.driver import Mode

LADDER: tuple[Mode, ...] = ("drain", "cancel", "abort")


class SignalStops:
    """While entered, SIGINT and SIGTERM call `ask` with the next harsher stop; ``first`` is the first of them.

    Off the main thread nothing is installed, since only there Python can.
    """

    def __init__(self, ask: Callable[[Mode], None], *, wanted: bool) -> None:
        self._ask = ask
        self._wanted = wanted and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._count = 0
        self.first: int | None = None

    def __enter__(self) -> Self:
        if self._wanted:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.first = self.first or number
        self._ask(LADDER[min(self._count, 2)])
        self._count += 1


class Terminated(RunError):
    """The run was stopped by SIGTERM; what had been read was finished as far as `drain_timeout` allowed."""

    signal = signal.SIGTERM
