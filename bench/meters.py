"""What measuring costs: the same runs with the instruments, and with instruments that do nothing.

What the engine itself needs to know (how long calls take, for the size of blocks) stays in both. In blocks, runs differ
by more than the instruments take; so what one run asked of them is asked again, by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from headway import Pipeline
from headway.core.dispatch import Dispatching
from headway.core.meter import StageMeter
from headway.gauges import Histogram, Level, Spans
from headway.run import thread
from measure import Table, interleave, median

SLOW, FAST = 1000, 1_000_000
"""Items of a millisecond, and of next to nothing."""

INSTRUMENTS: tuple[tuple[Any, str], ...] = (
    (Histogram, "record"), (Level, "set"), (Spans, "idle"), (StageMeter, "block"), (Dispatching, "_meter"), (thread, "thread_time"),
)  # fmt: skip


def one_ms(value: int) -> int:
    """A call of a millisecond."""
    time.sleep(0.001)
    return value


def slow() -> None:
    """Items of a millisecond, each handed over by itself."""
    Pipeline(range(SLOW)).map(one_ms, name="work").run()


def fast() -> None:
    """Items that take next to nothing, handed over in blocks."""
    Pipeline(range(FAST)).map(abs, name="work").run()


@contextmanager
def unmeasured() -> Iterator[None]:
    """Instruments that do nothing."""

    def nothing(*_arguments: Any, **_options: Any) -> None:
        return None

    def block(
        self: StageMeter, _mark: float, started: float, stopped: float, calls: int, _cpu: float, _sample: float | None
    ) -> None:
        if calls:
            self.timed += calls
            decay = 0.97 if self.recent_calls > 256 else 1.0
            self.recent_calls = self.recent_calls * decay + calls
            self.recent_busy = self.recent_busy * decay + (stopped - started)

    with (
        patch.object(Histogram, "record", nothing), patch.object(Level, "set", nothing), patch.object(Spans, "idle", nothing),
        patch.object(StageMeter, "block", block), patch.object(Dispatching, "_meter", nothing), patch.object(thread, "thread_time", float),
    ):  # fmt: skip
        yield


def instruments_s() -> float:
    """Seconds that the calls of instruments in a run in blocks take; those that one makes of another count twice."""
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            calls.append((call, arguments))
            return call(*arguments)

        return note

    with ExitStack() as patches:
        for owner, name in INSTRUMENTS:
            patches.enter_context(patch.object(owner, name, noted(getattr(owner, name))))
        fast()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for call, arguments in calls:
            call(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def bench() -> Table:
    """Measure both kinds of run with and without."""

    def without(run: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            with unmeasured():
                run()

        return call

    samples = interleave(
        {"1 ms": slow, "1 ms, without": without(slow), "blocks": fast, "blocks, without": without(fast)}, rounds=9
    )
    table = Table("what measuring costs", ("", "µs an item"))
    walls = {name: median(sample.wall for sample in found) for name, found in samples.items()}
    for name, wall in walls.items():
        table.row(name, 1e6 * wall / (SLOW if name.startswith("1 ms") else FAST))
    table.judge("items of 1 ms: share of the time", walls["1 ms"] / walls["1 ms, without"] - 1, 0.05)
    table.judge("blocks: the instruments an item", 1e6 * instruments_s() / FAST, 0.05, " µs")
    return table


if __name__ == "__main__":
    bench().show()
