"""Interleaved measurements, medians, and a table with targets.

What does not belong here: anything about what is measured.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sample(Generic[T]):
    """One measured call: wall and CPU seconds (of the whole process), and what the call returned."""

    wall: float
    cpu: float
    result: T


def interleave(variants: Mapping[str, Callable[[], T]], *, rounds: int) -> dict[str, list[Sample[T]]]:
    """Call every variant once per round, so that a slow minute of the machine hits all of them.

    One more round goes before the measured ones and is thrown away. The order turns by one place per
    round. Garbage is collected before each call, outside the measurement.
    """
    names = list(variants)
    samples: dict[str, list[Sample[T]]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            sample = _measure(variants[name])
            if turn:
                samples[name].append(sample)
    return samples


def _measure(call: Callable[[], T]) -> Sample[T]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, result)


def fresh(import_into: Callable[[Path, Path], T], source: Path) -> Callable[[], T]:
    """Make what imports `source` into an empty folder each time."""

    def call() -> T:
        with tempfile.TemporaryDirectory() as folder:
            return import_into(source, Path(folder))

    return call


def median(values: Iterable[float]) -> float:
    """Give the median."""
    return statistics.median(values)


@dataclass
class Table:
    """Rows of text and numbers, and after them the figures that have a target."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    verdicts: list[tuple[str, float, float, str]] = field(default_factory=list)

    def row(self, *cells: object) -> None:
        """Add a row; floats are shown with three digits."""
        self.rows.append(tuple(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells))

    def judge(self, what: str, value: float, target: float, unit: str = "") -> None:
        """Add a figure that should be at most `target`."""
        self.verdicts.append((what, value, target, unit))

    @property
    def missed(self) -> int:
        """Number of figures above their target."""
        return sum(value > target for _, value, target, _ in self.verdicts)

    def show(self) -> None:
        """Print it."""
        print(f"\n{self.title}")
        lines = [self.columns, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        for number, line in enumerate(lines):
            first, *others = (
                cell.ljust(width) if at == 0 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            print("  " + "  ".join([first, *others]).rstrip())
            if number == 0:
                print("  " + "  ".join("-" * width for width in widths))
        wide = max((len(what) for what, *_ in self.verdicts), default=0)
        for what, value, target, unit in self.verdicts:
            off = "" if value <= target else f" by {value / target - 1:.1%}" if target else ""
            print(
                f"  {'ok    ' if value <= target else 'MISSED'}  {what:<{wide}}  "
                f"{value:.4g}{unit} (at most {target:g}{unit}){off}"
            )


def machine() -> str:
    """Say where these numbers come from."""
    load = os.getloadavg()[0]
    gil = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", free-threaded"
    return (
        f"Python {platform.python_version()}{gil}, {len(os.sched_getaffinity(0))} cores, "
        f"load {load:.1f}, {platform.system()} {platform.machine()}"
    )


def busy() -> bool:
    """Say whether other work has kept more than a quarter of the cores in the last minute."""
    return os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 4
