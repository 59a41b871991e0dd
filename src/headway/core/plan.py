"""Proves the order on every edge, and places a re-sequencer where, and only where, it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, UnbatchSpec
from headway.errors import PlanError

SMALL_QUEUE = 16
LARGE_QUEUE = 4096
BLOCK = 1024


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
    ``on_error`` and ``queue`` are final; ``queue`` None is sized by the engine as block sizes grow.
    """

    spec: StageSpec
    intake: list[GatePlan | BatchPlan | UnbatchSpec] = field(default_factory=list)
    keeps_total: bool = False
    on_error: str = "raise"
    batched: bool = False

    @property
    def unbatches(self) -> bool:
        """Whether it takes batches and gives items."""
        return self.spec.kind == "map_batches"


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

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.source, "to": self.target, "proven": self.proven, "needed": self.needed,
            "placed": self.placed, "why": self.why, "max_items": self.max_items, "max_bytes": self.max_bytes,
        }  # fmt: skip


@dataclass(slots=True)
class Plan:
    """What will run and why. ``str(plan)`` explains it; ``to_dict()`` has the same as data."""

    spec: PipelineSpec
    stages: list[StagePlan]
    edges: list[Edge]
    warnings: list[str] = field(default_factory=list)

    @property
    def batch_items(self) -> int:
        """Sum of the sizes of all batchers."""
        return sum(s.size for s in self.spec.steps if isinstance(s, BatchSpec))

    def window(self, capacities: int | None = None) -> int:
        """Most rows in flight. `capacities`: the sum of the queues now (None: at their largest)."""
        if self.spec.window is not None:
            return self.spec.window
        slots = sum(s.spec.workers for s in self.stages)
        if capacities is None:
            capacities = sum(s.spec.queue or LARGE_QUEUE for s in self.stages)
        return max(4 * (slots + capacities), 2 * self.batch_items, 256)

    @property
    def budget(self) -> int:
        """Most children of all expansions that may be un-emitted."""
        return max(self.window(), 2 * self.batch_items)

    def to_dict(self) -> dict[str, Any]:
        return {
            "edges": [edge.to_dict() for edge in self.edges],
            "stages": [
                {"name": s.spec.name, "on": s.spec.on, "workers": s.spec.workers, "queue": s.spec.queue,
                 "kind": s.spec.kind, "on_error": s.on_error, "needs": s.spec.needs}
                for s in self.stages
            ],
            "warnings": list(self.warnings),
        }  # fmt: skip

    def __str__(self) -> str:
        window = self.spec.window if self.spec.window is not None else "sized by the engine"
        lines = [f"pipeline {self.spec.name!r}: window {window} items, {_size(self.spec.window_bytes)}"]
        for stage in self.stages:
            spec = stage.spec
            if spec.kind != "consume":
                queue = spec.queue if spec.queue is not None else "auto"
                on = spec.on if isinstance(spec.on, str) else type(spec.on).__name__
                lines.append(f"  stage {spec.name}: {spec.workers} x {on}, queue {queue}, on_error {stage.on_error}")
        width = max((len(f"{e.source} -> {e.target}") for e in self.edges), default=0)
        for edge in self.edges:
            held = f"; holds at most {edge.max_items} items, {_size(edge.max_bytes)}" if edge.placed else ""
            lines.append(
                f"  {f'{edge.source} -> {edge.target}':<{width}}  order {edge.proven}, needs {edge.needed}: "
                f"{edge.placed or 'nothing placed'} ({edge.why}){held}"
            )
        lines += [f"  warning: {text}" for text in self.warnings]
        return "\n".join(lines)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count} GiB"


def make_plan(spec: PipelineSpec) -> Plan:
    """Walk from the source to the last consumer with a proven level of order on each edge.

    The source is in total order. A stage with one worker keeps it; with several it is lost. A
    re-sequencer is placed at the last point before a consumer whose need exceeds what is proven:
    a stage with ``needs="input"``, a batcher behind which order is needed, the sink or consumer.
    Raises PlanError for what cannot work.
    """
    batchers = [s for s in spec.steps if isinstance(s, BatchSpec)]
    _check_window(spec, batchers)
    share = spec.window_bytes // (2 * len(batchers)) if batchers else 0
    stages: list[StagePlan] = []
    edges: list[Edge] = []
    intake: list[GatePlan | BatchPlan | UnbatchSpec] = []
    total, batched, at = True, False, "source"

    def edge(target: str, need: str, reason: str) -> None:
        nonlocal total, at
        placed = None
        if need == "input" and not total:
            placed, why = "re-sequencer", f"{reason}, and {_lost(stages, edges)} loses it"
            intake.append(GatePlan())
        elif need == "input":
            why = "one worker at a time has kept it"
        else:
            why = reason
        proven = "input" if total else "none"
        edges.append(Edge(at, target, proven, need, placed, why, 0, spec.window_bytes if placed else 0))
        total, at = total or placed is not None, target

    for index, step in enumerate(spec.steps):
        if isinstance(step, BatchSpec):
            if batched:
                raise PlanError("a batch of batches: put .unbatch() between the two, or use one larger batch")
            name = f"batch({step.size})"
            behind = _need_behind(spec, index)
            edge(name, "input" if behind else "none", behind or "a batch may hold any items")
            intake.append(BatchPlan(step, total, step.bytes or max(1, share)))
            batched = True
        elif isinstance(step, UnbatchSpec):
            if not batched:
                raise PlanError(".unbatch() needs a .batch() before it; to flatten lists use .flat_map(lambda x: x)")
            intake.append(step)
            batched = False
        else:
            last = index == len(spec.steps) - 1
            need = "input" if step.needs == "input" or (last and spec.order == "input") else "none"
            reason = (
                f"{step.name} {'writes' if step.kind == 'sink' else 'takes its values'} in input order"
                if need == "input" and last
                else f"{step.name} relies on input order"
                if need == "input"
                else f"{step.name} takes items in any order"
            )
            if last and need == "input" and step.workers > 1:
                raise PlanError(
                    f'{step.name}: one worker writes in input order; set workers=1, or order="none" for {step.workers}'
                )
            edge(step.name, need, reason)
            keeps = total and step.workers == 1
            stages.append(StagePlan(step, intake, keeps, step.on_error or spec.on_error, batched))
            if step.max_failures is not None and stages[-1].on_error == "raise":
                raise PlanError(
                    f'stage {step.name!r}: max_failures has no meaning with on_error="raise", which stops at the '
                    'first failure; set on_error="dead_letter" or "skip"'
                )
            intake, total = [], keeps
            if step.kind in ("flat_map", "map_batches"):
                batched = False
    plan = Plan(spec, stages, edges)
    for placed in (e for e in edges if e.placed):
        placed.max_items = plan.window() - 1
    return plan


def _need_behind(spec: PipelineSpec, index: int) -> str | None:
    """Why order is needed somewhere behind step `index`, or None."""
    for step in spec.steps[index + 1 :]:
        if isinstance(step, StageSpec) and step.needs == "input":
            return f"{step.name}, behind it, relies on input order"
    last = spec.steps[-1]
    if spec.order == "input" and isinstance(last, StageSpec):
        return f"{last.name}, behind it, is in input order"
    return None


def _lost(stages: list[StagePlan], edges: list[Edge]) -> str:
    for stage in reversed(stages):
        if stage.spec.workers > 1:
            return f"{stage.spec.name}, with {stage.spec.workers} workers,"
    return edges[-1].target if edges else "the source"


def _check_window(spec: PipelineSpec, batchers: list[BatchSpec]) -> None:
    items = 2 * sum(b.size for b in batchers)
    if spec.window is not None and spec.window < items:
        raise PlanError(
            f"window={spec.window} is below twice the sum of the batch sizes ({items}), so the batches could not be "
            f"filled: set window={items} or more, or make the batches smaller"
        )
    nbytes = 2 * sum(b.bytes or 0 for b in batchers)
    if spec.window_bytes < nbytes:
        raise PlanError(
            f"window_bytes={spec.window_bytes} is below twice the sum of the batches' bytes ({nbytes}): "
            f"set window_bytes={nbytes} or more, or make the batches smaller"
        )
