"""Proves the order on every edge, and places a re-sequencer where, and only where, it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, UnbatchSpec
from headway.errors import PlanError

SMALL_QUEUE = 16
LARGE_QUEUE = 4096
BLOCK = 1024

Level = str | tuple[str, Any]
"""What is proven or needed: "input", ("key", which), "none"."""


@dataclass(frozen=True, slots=True)
class GatePlan:
    """Place of a re-sequencer."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batcher: with `total` it covers contiguous intervals; `limit` is its size in bytes."""

    spec: BatchSpec
    total: bool
    limit: int


@dataclass(slots=True)
class StagePlan:
    """One running stage: what stands in front of it, and what its edge is proven to keep.

    ``keeps_total``: one worker, FIFO, fed in input order, so its output is in input order too.
    ``lanes``: items of one key wait for each other there. ``holds``: while one waits for another attempt,
    the whole stage does. ``on_error`` and ``queue`` are final; ``queue`` None is sized by the engine.
    """

    spec: StageSpec
    intake: list[GatePlan | BatchPlan | UnbatchSpec] = field(default_factory=list)
    keeps_total: bool = False
    on_error: str = "raise"
    batched: bool = False
    lanes: bool = False
    holds: bool = False

    @property
    def per_member(self) -> bool:
        """Whether the members of a batch have a fate each: a written batch has one fate where its failure ends the run."""
        writes = self.spec.kind == "sink" and self.batched and not callable(self.spec.fn)
        return self.spec.kind == "map_batches" or (writes and self.on_error != "raise")

    @property
    def halts(self) -> bool | tuple[type[BaseException], ...]:
        """The exceptions (True: any) after which a job ends, since what follows may have to wait for another attempt."""
        spec = self.spec
        if spec.on_key_failure != "continue" or (spec.kind == "sink" and self.on_error == "raise"):
            return True
        if spec.retry is None or not (self.lanes or self.holds):
            return ()
        return spec.retry.on if isinstance(spec.retry.on, tuple) else (spec.retry.on,)


@dataclass(slots=True)
class Edge:
    """What holds between two neighbours."""

    source: str
    target: str
    proven: str
    needed: str
    placed: str | None
    why: str
    max_items: int
    max_bytes: int


@dataclass(slots=True)
class Plan:
    """What will run and why."""

    spec: PipelineSpec
    stages: list[StagePlan]
    edges: list[Edge]

    def window(self, capacities: int | None = None) -> int:
        """Most rows in flight, and most children. `capacities`: the sum of the queues now (None: at their largest)."""
        if isinstance(self.spec.window, int):
            return self.spec.window
        slots = sum(s.spec.width for s in self.stages)
        if capacities is None:
            capacities = sum(s.spec.queue or LARGE_QUEUE for s in self.stages)
        batches = sum(s.size for s in self.spec.steps if isinstance(s, BatchSpec))
        return max(4 * (slots + capacities), 2 * batches, 256)


def told(level: Level) -> str:
    """A level in words."""
    if isinstance(level, str):
        return level
    key = level[1]
    return f"key({key if isinstance(key, str) else getattr(key, '__name__', type(key).__name__)})"


def holds_level(proven: Level, needed: Level) -> bool:
    """Whether what is proven is enough."""
    return needed == "none" or proven in ("input", needed)


def _retries(step: StageSpec) -> bool:
    """Whether an item may be tried again, also after its worker died."""
    return step.retry is not None or (step.idempotent and step.on not in ("auto", "task", "thread"))


def make_plan(spec: PipelineSpec) -> Plan:
    """Walk from the source to the last consumer with a proven level of order on each edge.

    The source is in total order. A stage with one worker and no second attempts keeps what is proven;
    one with lanes keeps the order of its key alone; any other loses it. A re-sequencer is placed at the
    last point before a consumer whose need exceeds what is proven: a stage with ``needs="input"``, a
    scan, a keyed stage, a batcher behind which order is needed, the sink or consumer.
    Raises PlanError for what cannot work.
    """
    return _Planner(spec).plan()


class _Planner:
    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.stages: list[StagePlan] = []
        self.edges: list[Edge] = []
        self.intake: list[GatePlan | BatchPlan | UnbatchSpec] = []
        self.level: Level = "input"
        self.batched = False
        self.at, self.lost = "source", ""
        keyed = [s.key for s in spec.steps if isinstance(s, StageSpec) and s.key is not None]
        self.order: Level = spec.order
        if spec.order == "key":
            if spec.order_key is None and not keyed:
                raise PlanError('order="key" needs to know the key: give key=, or put it on a stage before')
            self.order = ("key", spec.order_key if spec.order_key is not None else keyed[-1])

    def plan(self) -> Plan:
        spec = self.spec
        batchers = [s for s in spec.steps if isinstance(s, BatchSpec)]
        for name, value, least in (
            ("window", spec.window, 2 * sum(b.size for b in batchers)),
            ("window_bytes", spec.window_bytes, 2 * sum(b.bytes or 0 for b in batchers)),
        ):
            if isinstance(value, int) and value < least:
                raise PlanError(
                    f"{name}={value} is below twice the sum of the batches ({least}), which then could not be filled: "
                    f"set {name}={least} or more, or make the batches smaller"
                )
        share = spec.window_bytes // (2 * len(batchers)) if batchers else 0
        for index, step in enumerate(spec.steps):
            if isinstance(step, BatchSpec):
                self._batch(step, index, share)
            elif isinstance(step, UnbatchSpec):
                if not self.batched:
                    raise PlanError(
                        ".unbatch() needs a .batch() before it; to flatten lists use .flat_map(lambda x: x)"
                    )
                self.intake.append(step)
                self.batched = False
            else:
                self._stage(step)
        plan = Plan(spec, self.stages, self.edges)
        for placed in (e for e in self.edges if e.placed):
            placed.max_items = plan.window() - 1
        return plan

    def _need(self, step: StageSpec) -> Level:
        """What a stage relies on. The stronger of its own need and, at the end, of the order asked for."""
        own: Level = "none"
        if step.needs == "input" or (step.kind == "scan" and step.key is None):
            own = "input"
        elif step.key is not None:
            own = ("key", step.key)
        if step is self.spec.steps[-1] and own != "input" and self.order != "none":
            if own not in ("none", self.order) and self.order != "input":
                raise PlanError(f"{step.name}: key= and the order asked for are different keys")
            return self.order
        return own

    def _keeps(self, step: StageSpec, need: Level) -> tuple[bool, bool, bool]:
        """Whether a stage keeps the order it is given, has lanes, and holds everything during a pause."""
        lanes = not isinstance(need, str) and not self.batched and (step.width > 1 or _retries(step))
        holds = need != "none" and not lanes
        return step.width == 1 and not lanes and (holds or not _retries(step)), lanes, holds

    def _edge(self, target: str, need: Level, reason: str) -> None:
        placed, why = None, reason
        if need != "none" and holds_level(self.level, need):
            why = "one worker at a time has kept it" if self.level == "input" else "lanes have kept it"
        elif need != "none":
            placed, why = "re-sequencer", f"{reason}, and {self.lost} loses it"
            self.intake.append(GatePlan())
        bytes_held = self.spec.window_bytes if placed else 0
        self.edges.append(Edge(self.at, target, told(self.level), told(need), placed, why, 0, bytes_held))
        self.level, self.at = "input" if placed else self.level, target

    def _batch(self, step: BatchSpec, index: int, share: int) -> None:
        if self.batched:
            raise PlanError(f"batch({step.size}) of batches: put .unbatch() before it (map_batches batches too)")
        behind = [s for s in self.spec.steps[index + 1 :] if isinstance(s, StageSpec) and self._need(s) != "none"]
        need: Level = "none"
        reason = "a batch may hold any items"
        if behind:
            # A re-sequencer behind a batcher needs batches that cover intervals. Order by key passes whole
            # batches only where they stay in sequence up to who needs it.
            first = self.spec.steps.index(behind[0])
            between = [s for s in self.spec.steps[index + 1 : first + 1] if isinstance(s, StageSpec)]
            self.batched = True
            plain = all(s.width == 1 and (s is behind[0] or not _retries(s)) for s in between)
            self.batched = False
            need = self._need(behind[0]) if len(behind) == 1 and plain else "input"
            reason = f"{behind[0].name}, behind it, is in {_order(need)}"
        self._edge(f"batch({step.size})", need, reason)
        self.intake.append(BatchPlan(step, self.level == "input", step.bytes or max(1, share)))
        self.batched = True

    def _stage(self, step: StageSpec) -> None:
        last, need = step is self.spec.steps[-1], self._need(step)
        if step.key is not None and self.batched and step.width > 1:
            raise PlanError(
                f"stage {step.name!r}: a batch holds items of several keys, and two batches at once may hold the same; "
                "set workers=1, or put the keyed stage before the batch"
            )
        if last and need == "input" and step.width > 1:
            raise PlanError(
                f'{step.name}: one worker writes in input order; set workers=1, or order="none" for {step.width}'
            )
        if need != "none" and step.key is None and step.width > 1:
            raise PlanError(f"{step.name}: give key= to write in the order of a key with {step.width} workers")
        reason = f"{step.name} takes items in any order"
        if need != "none":
            reason = f"{step.name} {'is in' if last else 'relies on'} {_order(need)}"
        self._edge(step.name, need, reason)
        keeps, lanes, holds = self._keeps(step, need)
        on_error = step.on_error or self.spec.on_error
        if step.max_failures is not None and on_error == "raise":
            raise PlanError(
                f'stage {step.name!r}: max_failures has no meaning with on_error="raise", which stops at the '
                'first failure; set on_error="dead_letter" or "skip"'
            )
        total = keeps and self.level == "input"
        self.stages.append(StagePlan(step, self.intake, total, on_error, self.batched, lanes, holds))
        self.intake = []
        if not keeps:
            self.level = ("key", step.key) if lanes else "none"
            self.lost = f"{step.name}, with {step.width} workers," if step.width > 1 else f"{step.name}, with retries,"
        if step.kind in ("flat_map", "map_batches"):
            self.batched = False


def _order(level: Level) -> str:
    return "input order" if level == "input" else f"the order of {told(level)}"
