"""Proves the order on every edge, and places a re-sequencer where, and only where, it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        slots = sum(s.spec.workers for s in self.stages)
        if capacities is None:
            capacities = sum(s.spec.queue or LARGE_QUEUE for s in self.stages)
        batches = sum(s.size for s in self.spec.steps if isinstance(s, BatchSpec))
        return max(4 * (slots + capacities), 2 * batches, 256)


def make_plan(spec: PipelineSpec) -> Plan:
    """Walk from the source to the last consumer with a proven level of order on each edge.

    The source is in total order. A stage with one worker keeps it; with several it is lost. A
    re-sequencer is placed at the last point before a consumer whose need exceeds what is proven:
    a stage with ``needs="input"``, a batcher behind which order is needed, the sink or consumer.
    Raises PlanError for what cannot work.
    """
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
    stages: list[StagePlan] = []
    edges: list[Edge] = []
    intake: list[GatePlan | BatchPlan | UnbatchSpec] = []
    total, batched, at, lost = True, False, "source", ""

    def edge(target: str, need: str, reason: str) -> None:
        nonlocal total, at
        placed, why = None, reason
        if need == "input" and total:
            why = "one worker at a time has kept it"
        elif need == "input":
            placed, why = "re-sequencer", f"{reason}, and {lost} loses it"
            intake.append(GatePlan())
        proven = "input" if total else "none"
        edges.append(Edge(at, target, proven, need, placed, why, 0, spec.window_bytes if placed else 0))
        total, at = total or placed is not None, target

    def needs(step: StageSpec) -> bool:
        return step.needs == "input" or (step is spec.steps[-1] and spec.order == "input")

    for index, step in enumerate(spec.steps):
        if isinstance(step, BatchSpec):
            if batched:
                raise PlanError(f"batch({step.size}) of batches: put .unbatch() before it (map_batches batches too)")
            behind = [s.name for s in spec.steps[index + 1 :] if isinstance(s, StageSpec) and needs(s)]
            reason = f"{behind[0]}, behind it, is in input order" if behind else "a batch may hold any items"
            edge(f"batch({step.size})", "input" if behind else "none", reason)
            intake.append(BatchPlan(step, total, step.bytes or max(1, share)))
            batched = True
        elif isinstance(step, UnbatchSpec):
            if not batched:
                raise PlanError(".unbatch() needs a .batch() before it; to flatten lists use .flat_map(lambda x: x)")
            intake.append(step)
            batched = False
        else:
            last = index == len(spec.steps) - 1
            need = "input" if needs(step) else "none"
            reason = f"{step.name} takes items in any order"
            if need == "input":
                reason = f"{step.name} is in input order" if last else f"{step.name} relies on input order"
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
            lost = f"{step.name}, with {step.workers} workers," if step.workers > 1 else lost
            if step.kind in ("flat_map", "map_batches"):
                batched = False
    plan = Plan(spec, stages, edges)
    for placed in (e for e in edges if e.placed):
        placed.max_items = plan.window() - 1
    return plan
