"""What the user declared, frozen and checked once. Holds no running state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headway.errors import PlanError

Kind = Literal["map", "filter", "flat_map", "map_batches", "sink", "consume"]
ON_ERROR = ("raise", "skip", "keep", "dead_letter")
WORKER_KINDS = ("auto", "task", "thread", "process")
LATER = ("key", "on_key_failure", "timeout", "deadline", "grace", "retry", "rate", "hedge")


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage: what is called, by how many workers of which kind, and what a failure means.

    ``queue`` is a capacity in runnable items (behind a batch: in batches), None: by the engine.
    ``max_failures`` is a count, or a share of the items below 1 as a float, armed after 100 items.
    """

    kind: Kind
    fn: Any
    name: str
    workers: int = 1
    on: Any = "auto"
    needs: str = "none"
    queue: int | None = None
    on_error: str | None = None
    max_failures: int | float | None = None
    setup: Callable[[], Any] | None = None
    setup_timeout: float = 30.0
    idempotent: bool = False
    atomic: bool = False

    def __post_init__(self) -> None:
        def refuse(text: str) -> PlanError:
            return PlanError(f"stage {self.name!r}: {text}")

        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise refuse(f"workers must be a whole number from 1, not {self.workers!r}")
        if isinstance(self.on, str) and self.on not in WORKER_KINDS:
            kinds = ", ".join(map(repr, WORKER_KINDS))
            raise refuse(f"on={self.on!r} is not one of {kinds}")
        if not isinstance(self.on, str):
            raise refuse(f"on={self.on!r}: an executor of one's own is not available in this version")
        if self.needs == "key":
            raise refuse('needs="key" is not available in this version; needs="input" is')
        if self.needs not in ("none", "input"):
            raise refuse(f'needs must be "none", "key" or "input", not {self.needs!r}')
        if self.needs == "input" and self.workers > 1:
            raise refuse(
                f'needs="input" relies on input order and so has one worker, not {self.workers}: '
                "set workers=1, or take the part that needs no order out into a stage of its own"
            )
        if self.queue is not None and (not isinstance(self.queue, int) or self.queue < 1):
            raise refuse(f"queue must be a whole number from 1, not {self.queue!r}")
        if self.on_error is not None and self.on_error not in ON_ERROR:
            raise refuse(f"on_error must be one of {', '.join(map(repr, ON_ERROR))}, not {self.on_error!r}")
        if self.max_failures is not None:
            ok = isinstance(self.max_failures, int | float) and self.max_failures >= 0
            if not ok or (isinstance(self.max_failures, float) and self.max_failures >= 1):
                raise refuse(f"max_failures must be a count, or a share below 1, not {self.max_failures!r}")
        if self.atomic and self.kind != "flat_map":
            raise refuse("atomic goes with flat_map only")
        if not self.setup_timeout > 0:
            raise refuse(f"setup_timeout must be above 0, not {self.setup_timeout!r}")


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """Lists of up to `size` items; `bytes` closes a batch early, `within` seconds after its first item."""

    size: int
    within: float | None = None
    bytes: int | None = None
    for_map: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise PlanError(f"a batch's size must be a whole number from 1, not {self.size!r}")
        if self.within is not None and not self.within > 0:
            raise PlanError(f"a batch's within must be above 0 seconds, not {self.within!r}")
        if self.bytes is not None and self.bytes < 1:
            raise PlanError(f"a batch's bytes must be above 0, not {self.bytes!r}")


@dataclass(frozen=True, slots=True)
class UnbatchSpec:
    """Takes batches apart."""


Step = StageSpec | BatchSpec | UnbatchSpec


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline without its source: the steps, the last of which is a sink or a consumer."""

    name: str
    steps: tuple[Step, ...]
    order: str = "input"
    window: int | None = None
    window_bytes: int = 256 * 1024 * 1024
    on_error: str = "raise"

    def __post_init__(self) -> None:
        if self.order == "key":
            raise PlanError('order="key" is not available in this version; "input" and "none" are')
        if self.order not in ("input", "none"):
            raise PlanError(f'order must be "input", "key" or "none", not {self.order!r}')
        if self.window == "auto":
            raise PlanError('window="auto" is not available in this version; give a number, or leave it out')
        if self.window is not None and (not isinstance(self.window, int) or self.window < 1):
            raise PlanError(f"window must be a whole number from 1, not {self.window!r}")
        if not isinstance(self.window_bytes, int) or self.window_bytes < 1:
            raise PlanError(f"window_bytes must be a whole number from 1, not {self.window_bytes!r}")
        if self.on_error not in ON_ERROR:
            raise PlanError(f"on_error must be one of {', '.join(map(repr, ON_ERROR))}, not {self.on_error!r}")
