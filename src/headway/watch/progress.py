"""Progress of a run while it goes on: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from time import monotonic
from typing import Any, Self

from headway.core.engine import Engine

LINE_S = 5.0
"""Between two lines where there is no terminal."""


class Progress:
    """Shows counts and rate to standard error. `how`: False, True (a terminal decides), "rich" or "log"."""

    def __init__(self, how: bool | str, name: str, total: int | None = None) -> None:
        self._how, self._name, self._total = how, name, total
        self._live: Any = None
        self._last = self._started = monotonic()

    def __enter__(self) -> Self:
        if self._how == "rich" or (self._how is True and sys.stderr.isatty()):
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, engine: Engine) -> None:
        """Show where the run stands."""
        if not self._how:
            return
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(self._text(engine)))
        elif monotonic() - self._last >= LINE_S:
            self._last = monotonic()
            sys.stderr.write(self._text(engine) + "\n")

    def _text(self, engine: Engine) -> str:
        fates, seconds = engine.fates, monotonic() - self._started
        rate = engine.times.emitted_roots / seconds if seconds > 0 else 0.0
        text = f"{self._name}: {fates.written:,} written"
        if self._total:
            text += f" of {self._total:,} ({engine.times.emitted_roots / self._total:.0%})"
        if fates.dead:
            text += f", {fates.dead:,} failed"
        busiest = max(engine.stages, key=lambda s: s.meter.spans["busy"] / len(s.slots), default=None)
        text += f", {rate:,.0f} rows/s, {seconds:.0f} s"
        return text + (f", busiest: {busiest.spec.name}" if busiest is not None else "")
