"""A run that goes on, at a glance: on a terminal, as a plain line, and as HTML. From the figures of a report.

What slots did is meant over the whole run, as in the report; rates are those of the last seconds.
"""

from __future__ import annotations

import html
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.text import printable
from headway.watch.ceilings import told_s
from headway.watch.show import COLOURS, STATES, sentence

BAR = 20
"""Characters of a bar."""
LETTERS = {
    "busy": "#",
    "overhead": "+",
    "blocked": "!",
    "starved": ".",
    "lane_wait": "k",
    "throttled": "t",
    "paused": "p",
}
LATELY_S = 3.0


@dataclass(frozen=True, slots=True)
class StageGlance:
    """A stage in words: its name and workers, the shares of its slots' time, its queue, what it gives, what failed."""

    name: str
    workers: str
    shares: dict[str, float]
    queue: str
    age: str
    rate: str
    rejects: str


COLUMNS = ("queue", "oldest", "rows/s", "rejects")


class Glance:
    """Looks, one after another, at one run. `total`: the rows that will come, if that is known."""

    def __init__(self, total: int | None = None) -> None:
        self._total = total
        self._looks: deque[tuple[float, dict[str, int]]] = deque()
        self.data: Mapping[str, Any] = {}

    def look(self, data: Mapping[str, Any]) -> None:
        """From now on `data` is what is shown."""
        self.data = data
        out = {stage["name"]: stage["out"] for stage in data["stages"]}
        self._looks.append((data["elapsed"], out | {"": data["items"]["written"]}))
        while len(self._looks) > 2 and self._looks[1][0] <= data["elapsed"] - LATELY_S:
            self._looks.popleft()

    def rate(self, stage: str = "") -> float:
        """Rows a second that a stage gave lately, or that were written."""
        (then, before), (now, after) = self._looks[0], self._looks[-1]
        if len(self._looks) == 1:
            then, before = 0.0, dict.fromkeys(after, 0)
        return max(0.0, (after.get(stage, 0) - before.get(stage, 0)) / (now - then)) if now > then else 0.0

    def head(self) -> list[str]:
        """How far it is, and the sentence about its speed."""
        data, items = self.data, self.data["items"]
        text = f"{printable(data['name'])}: {data['state']}, {items['written']:,} written"
        done = items["written"] + items["filtered"] + items["dead"] + items["expanded"]
        if self._total:
            text += f" of {self._total:,} ({done / self._total:.0%})"
        if items["dead"]:
            text += f", {items['dead']:,} rejects"
        rate = self.rate()
        text += f", {rate:,.0f} rows/s, {data['elapsed']:.0f} s"
        if self._total and rate > 0 and self._total > done:
            text += f", about {told_s((self._total - done) / rate)} left"
        return [text, printable(sentence(data))]

    def stages(self) -> list[StageGlance]:
        """Each stage."""
        queues = {queue["into"]: queue for queue in self.data["queues"]}
        return [self._stage(stage, queues.get(stage["name"])) for stage in self.data["stages"]]

    def _stage(self, stage: Mapping[str, Any], queue: Mapping[str, Any] | None) -> StageGlance:
        fill = f"{queue['now']:,}/{queue['capacity']:,}" if queue is not None else ""
        age = told_s(queue["age"]) if queue is not None and queue["now"] else ""
        shares = {state: stage[state] for state in STATES}
        return StageGlance(
            printable(stage["name"]), f"{stage['workers']} {stage['on']}", shares, fill, age, f"{self.rate(stage['name']):,.0f}",
            f"{stage['failed']:,}" if stage["failed"] else "",
        )  # fmt: skip

    def gates(self) -> list[str]:
        """What each re-sequencer holds back, and what it waits for."""
        found = []
        for gate in self.data["reorder"]:
            text = f"before {printable(gate['before'])} {gate['held']:,} held back, window {gate['window_used']:,}/{gate['window']:,}"
            if gate["awaiting"] is not None:
                text += f"; awaits {gate['awaiting']} for {told_s(gate['awaiting_age'])}"
                where = gate["awaiting_where"]
                text += f": {printable(where)}" if where else ""
            found.append(text)
        return found

    # ---- shown

    def line(self) -> str:
        """All of it in one line, for where there is no terminal."""
        parts = []
        for stage in self.stages():
            shares = " ".join(f"{state} {stage.shares[state]:.0%}" for state in ("busy", "blocked", "starved"))
            queue = f", queue {stage.queue}" + (f" for {stage.age}" if stage.age else "") if stage.queue else ""
            parts.append(f"{stage.name} {shares}{queue}")
        return "; ".join([self.head()[0], *parts, *self.gates()])

    def drawn(self) -> Any:
        """For a terminal: a rich renderable. Names are text, never markup."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for title in ("stage", "workers", "time of its slots", *COLUMNS):
            table.add_column(Text(title), no_wrap=True)
        for stage in self.stages():
            bar = Text(no_wrap=True)
            for state, cells in bar_of(stage.shares):
                bar.append(LETTERS[state] * cells, style=COLOURS[state])
            table.add_row(Text(stage.name), Text(stage.workers), bar, *map(Text, _beside(stage)))
        key = Text("  ".join(f"{LETTERS[state]} {state.replace('_', ' ')}" for state in STATES), style="dim")
        first, second = self.head()
        return Group(Text(first, style="bold"), Text(second), table, *map(Text, self.gates()), key)

    def page(self) -> str:
        """The same as HTML. It holds no script and loads nothing."""
        rows = ""
        for stage in self.stages():
            bar = "".join(
                f'<span title="{state} {share:.0%}" style="display:inline-block;height:1em;width:{100 * share:.1f}%;background:{COLOURS[state]}"></span>'
                for state, share in stage.shares.items()
            )
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in _beside(stage))
            rows += (
                f"<tr><td>{html.escape(stage.name)}</td><td>{html.escape(stage.workers)}</td>"
                f'<td><div style="width:16em;font-size:0;white-space:nowrap">{bar}</div></td>{cells}</tr>'
            )
        titles = "".join(f"<th>{title}</th>" for title in ("stage", "workers", "time of its slots", *COLUMNS))
        head, foot = (
            "".join(f"<div>{html.escape(text)}</div>" for text in texts) for texts in (self.head(), self.gates())
        )
        return f'<div class="headway">{head}<table><tr>{titles}</tr>{rows}</table>{foot}</div>'


def bar_of(shares: Mapping[str, float]) -> list[tuple[str, int]]:
    """How many of the characters of a bar each state has: BAR in all, by largest remainder."""
    if not shares:
        return []
    exact = {state: share * BAR for state, share in shares.items()}
    cells = {state: int(share) for state, share in exact.items()}
    rest = sorted(exact, key=lambda state: cells[state] - exact[state])
    for state in rest[: max(0, BAR - sum(cells.values()))]:
        cells[state] += 1
    return list(cells.items())


def _beside(stage: StageGlance) -> tuple[str, ...]:
    return stage.queue, stage.age, stage.rate, stage.rejects
