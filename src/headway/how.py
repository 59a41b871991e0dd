"""The options of a run, checked before anything begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headway.core.plan import Plan
from headway.core.policy import seconds
from headway.errors import PlanError
from headway.io.deadletter import Letters
from headway.page import Page, check_page, make_page
from headway.resuming import checkpoint_of
from headway.run.checkpoint import Checkpoint
from headway.run.source import close_unread


@dataclass(frozen=True)
class How:
    """How a pipeline is to be run."""

    progress: bool | str = False
    total: int | None = None
    dead_letters: Any = None
    drain_timeout: float = 30.0
    handle_signals: bool | None = None
    mode: Literal["concurrent", "inline"] | None = None
    ui: bool | str = False
    checkpoint: Any = None
    job: Any = None
    accept_changed: bool = False
    target_rate: float | None = None
    stall_after: float | None = None
    trace: Any = None
    metrics: str | None = None
    study: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        if self.metrics:
            raise PlanError("metrics= is not available in this version")
        if self.job is not None and not (isinstance(self.job, str) and self.job):
            raise PlanError(f"job is a name, or None, not {self.job!r}")
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise PlanError(f"checkpoint is the path of a file, or None, not {self.checkpoint!r}")
        if self.accept_changed and not self.goes_on:
            raise PlanError("accept_changed= is for a run that goes on: it goes with job= or checkpoint=")
        if self.progress not in (True, False, "rich", "log"):
            raise PlanError(f'progress must be True, False, "rich" or "log", not {self.progress!r}')
        if self.drain_timeout < 0:
            raise PlanError(f"drain_timeout must be 0 or more seconds, not {self.drain_timeout!r}")
        check_page(self.ui)
        if self.study is not None and len(self.study) != len(("stage", "share")):
            raise PlanError(f'study is a stage and a share of its time, as ("parse", 0.5), or None, not {self.study!r}')
        for name in ("trace", "ui", "study"):
            if self.mode == "inline" and getattr(self, name):
                raise PlanError(
                    f'{name}= shows a concurrent run; leave it out with mode="inline", where calls follow each other'
                )
        if self.target_rate is not None and not seconds(self.target_rate):
            raise PlanError(f"target_rate must be above 0 rows a second, or None, not {self.target_rate!r}")
        if self.stall_after is not None and not seconds(self.stall_after):
            raise PlanError(f"stall_after must be above 0 seconds, or None, not {self.stall_after!r}")
        if self.mode not in (None, "concurrent", "inline"):
            raise PlanError(f'mode must be "concurrent" or "inline", not {self.mode!r}')

    @property
    def goes_on(self) -> bool:
        """Whether the run is one of a job, which goes on where the one before it stopped."""
        return self.checkpoint is not None or self.job is not None

    def make_checkpoint(
        self, plan: Plan, rows: Any, name: str, letters: Letters, refused: Callable[[], None]
    ) -> Checkpoint:
        """The checkpoint of a run over `rows`. Raises PlanError and CheckpointError, having closed the source and called `refused`."""
        try:
            return checkpoint_of(
                plan,
                rows,
                letters,
                path=self.checkpoint,
                job=self.job,
                default=name,
                accept_changed=self.accept_changed,
            )
        except BaseException:
            close_unread(rows)
            refused()
            raise

    def make_page(self, run: Any, rows: Any, refused: Callable[[], None]) -> Page | None:
        """The page of a run over `rows`, if one is wanted. Raises PlanError, having closed the source and called `refused`."""
        if not self.ui:
            return None
        try:
            return make_page(run, self.ui)
        except BaseException:
            close_unread(rows)
            refused()
            raise
