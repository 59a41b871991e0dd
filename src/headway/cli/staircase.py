"""The staircase of the first rows of a pipeline, and how busy its stages are, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.watch.ceilings import told_s

WIDTH = 72
Call = tuple[str, int, Any, float, float]
"""(stage, slot, row, from, to): a call on the virtual clock."""


def drawing(stages: Sequence[str], calls: Sequence[Call]) -> list[str]:
    """A line for each row: the letter of the stage that has it, and dots while it waits. Time goes to the right."""
    letters = _letters(stages)
    end = max((stop for *_, stop in calls), default=0.0)
    if end <= 0:
        return ["no call takes any time"]
    rows = sorted({row for _, _, row, _, _ in calls})
    out = []
    for row in rows:
        line = [" "] * WIDTH
        mine = sorted((start, stop, stage) for stage, _, r, start, stop in calls if r == row)
        first, last = _column(mine[0][0], end), _column(mine[-1][1], end)
        line[first:last] = ["."] * (last - first)
        for start, stop, stage in mine:
            a, b = _column(start, end), _column(stop, end)
            line[a : max(b, a + 1)] = [letters[stage]] * max(b - a, 1)
        out.append(f"row {row:<3} |{''.join(line[:WIDTH])}|")
    out.append(f"        0{told_s(end):>{WIDTH}}")
    out.append("        " + "  ".join(f"{letters[stage]} {stage}" for stage in stages) + "  . waits")
    return out


def _column(time: float, end: float) -> int:
    return min(WIDTH, round(time / end * WIDTH))


def _letters(stages: Sequence[str]) -> dict[str, str]:
    """A letter of its own for each stage, of its name where that is free."""
    found: dict[str, str] = {}
    for stage in stages:
        wanted = [c for c in (*stage.upper(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#") if c.isalnum() or c == "#"]
        found[stage] = next((c for c in wanted if c not in found.values()), "#")
    return found


def utilisation(report: Any) -> list[str]:
    """A table: what each stage could do, and where the time of its slots went."""
    width = max(5, *(len(stage.name) for stage in report.stages))
    out = [f"{'stage':<{width}}  workers   a call   capacity   busy  blocked  starved"]
    for s in report.stages:
        most = f"{s.capacity:,.4g}/s" if s.capacity else "-"
        out.append(
            f"{s.name:<{width}}  {s.workers:>7}  {told_s(s.service.mean):>7}  {most:>9}  {s.busy:5.0%}  {s.blocked:7.0%}  {s.starved:7.0%}"
        )
    return out
