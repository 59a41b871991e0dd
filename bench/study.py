"""A measured what-if against what then happens: each stage of the staircase studied at half its time, then made so.

The rate that the study gives is compared with that of a run in which the calls really take half as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from headway import Pipeline
from measure import Table

STAGES = {"read": 2.0, "parse": 1.0, "process": 4.0, "write": 3.0}
"""Milliseconds of a call."""
SPEEDUP = 0.5
SECONDS = 10.0
ROWS = 4000


def waits(ms: float) -> Callable[[Any], Any]:
    """A call that waits."""

    def call(row: Any) -> Any:
        time.sleep(ms / 1e3)
        return row

    return call


def pipeline(stages: Mapping[str, float], rows: int) -> Pipeline[Any]:
    """Four stages in threads."""
    made: Pipeline[Any] = Pipeline(range(rows))
    for name, ms in stages.items():
        made = made.map(waits(ms), name=name)
    return made


def rate(stages: Mapping[str, float]) -> float:
    """Rows a second of a run of about four seconds."""
    report = pipeline(stages, 800).to(lambda _: None, name="end").run()
    return float(report.steady.rate or report.rate)


def bench() -> Table:
    """Study each stage, and make it so."""
    table = Table(
        f"virtual speed-up by {SPEEDUP:.0%}", ("stage", "now", "measured by the study", "", "then", "off", "inside")
    )
    for name, ms in STAGES.items():
        run = pipeline(STAGES, ROWS).to(lambda _: None, name="end").start()
        try:
            effect = run.study(name, SPEEDUP, SECONDS)
        finally:
            run.cancel()
        then = rate({**STAGES, name: ms * (1 - SPEEDUP)})
        off = effect.rate / then - 1
        inside = effect.low <= then <= effect.high
        table.row(
            name,
            effect.base,
            effect.rate,
            f"{effect.low:.4g} to {effect.high:.4g}",
            then,
            f"{off:+.0%}",
            "yes" if inside else "no",
        )
        table.judge(f"{name}: off", abs(off), 0.10)
    return table


if __name__ == "__main__":
    bench().show()
