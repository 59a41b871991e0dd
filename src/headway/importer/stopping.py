"""An import's pipeline, run with the first request to stop told while the drain goes on.

What does not belong here: what a stop means; the run decides that.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headway.importer.bookkeeping import RejectRecord
from headway.pipeline import Pipeline
from headway.run.driver import Mode
from headway.run.stop import SignalStops, Terminated
from headway.running import Run
from headway.watch.report import Report

DRAIN_S = 30.0
"""How long what was read may take after the first signal."""


@dataclass(slots=True)
class Told:
    """Who is told of a run: `run` is set when it begins, `stopping` called at the first signal, on the main thread.

    `shown` turns a report over ranges into the one that the page of the run (`ui`) shows.
    """

    stopping: Callable[[], None]
    shown: Callable[[Report], Report]
    ui: bool | str = False
    run: Run[Any] | None = None

    def rejected(self, records: Iterable[RejectRecord]) -> None:
        """Show rows that were set aside on the page of the run, if it has one."""
        if self.run is None or self.run.page is None:
            return
        for found in records:
            self.run.page.tell_letter({
                "seq": found.seq, "stage": found.stage, "attempts": 1, "error": found.reason,
                "message": f"line {found.line}: {found.message}", "value": found.raw,
            })  # fmt: skip


def run_until_stopped(pipeline: Pipeline[Any], told: Told) -> Report:
    """Run to the end, as `Pipeline.run` does with signals.

    Raises KeyboardInterrupt or Terminated, with ``.report``, if a signal ended it before its input did.
    """
    opened = pipeline.open(drain_timeout=DRAIN_S, ui=told.ui)
    opened.shown = told.shown
    with opened as run:
        told.run = run

        def ask(mode: Mode) -> None:
            {"drain": run.drain, "cancel": run.cancel, "abort": run.abort}[mode]()
            if mode == "drain":
                told.stopping()

        with SignalStops(ask, wanted=True) as stops:
            report = run.wait()
    if stops.first is None or report.to_dict()["state"] not in ("drained", "cancelled"):
        return report
    error = KeyboardInterrupt() if stops.first == signal.SIGINT else Terminated("stopped by SIGTERM")
    error.report = report  # type: ignore[union-attr]
    raise error
