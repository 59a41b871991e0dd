"""What the user declared, frozen and checked once. Holds no running state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headway.core.policy import RateLimit, Retry, check, seconds, whole
from headway.errors import PlanError

Kind = Literal["map", "filter", "flat_map", "scan", "map_batches", "sink", "consume"]
ON_ERROR = ("raise", "skip", "keep", "dead_letter")
ON_KEY_FAILURE = ("continue", "block_key", "halt")
WORKER_KINDS = ("auto", "task", "thread", "process")


def _one_of(value: Any, known: tuple[str, ...]) -> tuple[bool, Any, str]:
    return value in known, value, "one of " + ", ".join(map(repr, known))


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage: what is called, by how many workers of which kind, and what a failure means.

    ``key`` is a function or the name of a column, item or attribute; ``initial`` the first state of a
    scan, or a function that makes it. ``timeout`` holds for each call, ``deadline`` for an item from its birth.
    ``most``: up to so many workers while it runs (0: `workers`).
    ``queue`` is a capacity in runnable items (behind a batch: in batches), None: by the engine.
    ``max_failures`` is a count, or a share of the items below 1 as a float, armed after 100 items.
    """

    kind: Kind
    fn: Any
    name: str
    workers: int = 1
    most: int = 0
    on: Any = "auto"
    needs: str = "none"
    queue: int | None = None
    on_error: str | None = None
    max_failures: int | float | None = None
    setup: Callable[[], Any] | None = None
    setup_timeout: float = 30.0
    idempotent: bool = False
    atomic: bool = False
    key: Any = None
    on_key_failure: str = "continue"
    timeout: float | None = None
    deadline: float | None = None
    grace: float = 1.0
    retry: Retry | None = None
    rate: RateLimit | None = None
    hedge: bool = False
    initial: Any = None

    def __post_init__(self) -> None:
        limit: Any = self.max_failures
        check(
            f"stage {self.name!r}",
            workers=(whole(self.workers), self.workers, "a whole number from 1"),
            most=(self.most == 0 or self.most >= self.workers, self.most, f"at least {self.workers}, the fewest"),
            on=_one_of(self.on if isinstance(self.on, str) else "auto", WORKER_KINDS),
            needs=_one_of(self.needs, ("none", "key", "input")),
            queue=(self.queue is None or whole(self.queue), self.queue, "a whole number from 1"),
            on_error=_one_of(self.on_error or "raise", ON_ERROR),
            max_failures=(
                limit is None
                or (isinstance(limit, int) and limit >= 0)
                or (isinstance(limit, float) and 0 <= limit < 1),
                limit,
                "a count, or a share below 1",
            ),
            atomic=(not self.atomic or self.kind == "flat_map", self.atomic, "left out but for flat_map"),
            setup_timeout=(seconds(self.setup_timeout), self.setup_timeout, "above 0 seconds"),
            on_key_failure=_one_of(self.on_key_failure, ON_KEY_FAILURE),
            timeout=(self.timeout is None or seconds(self.timeout), self.timeout, "above 0 seconds"),
            deadline=(self.deadline is None or seconds(self.deadline), self.deadline, "above 0 seconds"),
            grace=(seconds(self.grace, zero=True), self.grace, "0 or more seconds"),
        )
        for refused, text in self._refused():
            if refused:
                raise PlanError(f"stage {self.name!r}: {text}")

    @property
    def width(self) -> int:
        """The most workers that it may have, by which its order is planned."""
        return max(self.workers, self.most)

    def _refused(self) -> list[tuple[bool, str]]:
        """What does not go together, and what would."""
        known = isinstance(self.key, str) or callable(self.key)
        return [
            (self.key is not None and not known, f"key is a name or a function, not {self.key!r}"),
            (self.needs == "key" and self.key is None, 'needs="key" goes with key=, a name or a function'),
            (
                self.needs == "input" and self.width > 1,
                (
                    f'needs="input" relies on input order and so has one worker, not {self.width}: set workers=1, '
                    "give key= if order by key is enough, or take the part that needs no order out into a stage of its own"
                ),
            ),
            (self.needs == "input" and self.key is not None, 'key= is order by key; leave out needs="input"'),
            (
                self.on_key_failure != "continue" and self.key is None,
                f"on_key_failure={self.on_key_failure!r} goes with key=",
            ),
            (
                self.kind == "flat_map" and self.retry is not None and not self.atomic,
                "retry= of a flat_map goes with atomic=True, since children that have left cannot be taken back",
            ),
            (
                self.kind == "scan" and self.on == "process" and self.width > 1,
                f'its state cannot be in {self.width} processes; set workers=1, or on="thread"',
            ),
            (self.hedge and not self.idempotent, "hedge=True makes a call twice; it goes with idempotent=True"),
        ]


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """Lists of up to `size` items; `bytes` closes a batch early, `within` seconds after its first item."""

    size: int
    within: float | None = None
    bytes: int | None = None
    for_map: bool = False

    def __post_init__(self) -> None:
        check(
            "batch",
            size=(whole(self.size), self.size, "a whole number from 1"),
            within=(self.within is None or self.within > 0, self.within, "above 0 seconds"),
            bytes=(self.bytes is None or whole(self.bytes), self.bytes, "a whole number from 1"),
        )


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
    order_key: Any = None
    window: int | Literal["auto"] | None = None
    window_bytes: int = 256 * 1024 * 1024
    on_error: str = "raise"

    def __post_init__(self) -> None:
        check(
            f"pipeline {self.name!r}",
            order=_one_of(self.order, ("input", "key", "none")),
            window=(self.window in (None, "auto") or whole(self.window), self.window, 'a number from 1, or "auto"'),
            window_bytes=(whole(self.window_bytes), self.window_bytes, "a whole number from 1"),
            on_error=_one_of(self.on_error, ON_ERROR),
        )
