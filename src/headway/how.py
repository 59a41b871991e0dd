"""The options of a run, checked before anything begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headway.core.policy import seconds
from headway.errors import PlanError
from headway.page import check_page


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
    job: str | None = None
    target_rate: float | None = None
    stall_after: float | None = None
    trace: Any = None
    metrics: str | None = None

    def __post_init__(self) -> None:
        for name in ("checkpoint", "job", "metrics"):
            if getattr(self, name):
                raise PlanError(f"{name}= is not available in this version")
        if self.progress not in (True, False, "rich", "log"):
            raise PlanError(f'progress must be True, False, "rich" or "log", not {self.progress!r}')
        if self.drain_timeout < 0:
            raise PlanError(f"drain_timeout must be 0 or more seconds, not {self.drain_timeout!r}")
        check_page(self.ui)
        for name in ("trace", "ui"):
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
