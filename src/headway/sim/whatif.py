"""A measured pipeline run again in virtual time, as it was or with other numbers of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.core.plan import Plan, make_plan
from headway.core.policy import RateLimit
from headway.core.spec import BatchSpec, Kind, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.errors import PlanError
from headway.sim.driver import VirtualRun
from headway.sim.line import Line, plain
from headway.sim.service import Draw, Service, recorded

ROWS, MOST_ROWS = 400, 6_000
"""Rows to simulate: enough for the steady state, which comes when the queues and the window have filled."""
MEASURED = (0.2, 0.85)
"""Between these shares of the rows the rate is taken: behind the fill, before the drain."""


def modelled_run(
    plan: Plan, rows: int, service: Mapping[str, Service], gives: Mapping[str, float], seed: int,
    *, source_s: float = 0.0, think_s: float = 0.0, handover: Mapping[str, float] | None = None,
) -> VirtualRun | Line:  # fmt: skip
    """A finished run of `plan` in which nothing is called: on the engine, or as a `Line` where that is the same."""
    times: dict[str, Any] = {"seed": seed, "source_s": source_s, "think_s": think_s, "handover": handover}
    if plain(plan, gives):
        return Line(plan, rows, service, **times).run()
    return VirtualRun(plan, range(rows), service, modelled=gives, **times).run()


def simulated_rate(report: Mapping[str, Any], workers: Mapping[str, int], seed: int) -> float | None:
    """Rows a second in steady state of the pipeline of a report with these workers; None where it cannot be."""
    model = report["model"]
    try:
        plan = modelled_plan(model, workers)
    except PlanError:
        return None
    held = sum(queue["max_depth"] for queue in report["queues"])
    rows = min(MOST_ROWS, ROWS + 4 * held)
    run = modelled_run(
        plan, rows, measured_service(report), selectivity(report), seed,
        source_s=source_s(report), think_s=consumer_s(report), handover=handover_s(report),
    )  # fmt: skip
    low, high = (next(pair for pair in run.emitted if pair[0] >= share * rows) for share in MEASURED)
    return (high[0] - low[0]) / (high[1] - low[1]) if high[1] > low[1] else None


def modelled_plan(model: Mapping[str, Any], workers: Mapping[str, int] | None = None) -> Plan:
    """The plan of a report's pipeline, with stages that are not called. Raises PlanError for workers that cannot be."""
    steps: list[Step] = []
    for step in model["steps"]:
        if "batch" in step:
            steps.append(BatchSpec(step["batch"], step["within"], for_map=step["for_map"]))
        elif "unbatch" in step:
            steps.append(UnbatchSpec())
        else:
            steps.append(_stage(step, model["stages"].get(step["stage"], {}), (workers or {}).get(step["stage"])))
    last = steps[-1]
    several = isinstance(last, StageSpec) and last.workers > 1  # who asks for that gives up input order at the sink
    order = "none" if several or model["order"] == "key" else model["order"]
    return make_plan(PipelineSpec("what-if", tuple(steps), order=order, window=model["window"], on_error="skip"))


def _stage(step: dict[str, Any], measured: Mapping[str, Any], workers: int | None) -> StageSpec:
    kind: Kind = "map" if step["kind"] == "scan" else step["kind"]
    share = measured.get("hot_share") or 0.0
    key = _Key(share) if step["keyed"] else None
    rate = RateLimit(step["rate"]) if step["rate"] else None
    return StageSpec(
        kind, None if kind == "consume" else _not_called, step["stage"], workers=workers or step["workers"],
        queue=step["queue"], needs="key" if key else "none" if step["needs"] == "key" else step["needs"], key=key, rate=rate,
    )  # fmt: skip


class _Key:
    """Keys of rows by number: a share of them has the one that was most frequent, the others one each."""

    def __init__(self, share: float) -> None:
        self._share = share

    def __call__(self, row: Any) -> int:
        row = hash(row)
        return -1 if (row * 0.6180339887498949) % 1.0 < self._share else row


def _not_called(value: Any) -> Any:
    return value


def measured_service(report: Mapping[str, Any]) -> dict[str, Draw]:
    """What a call of each stage took, as recorded; with its share of handing over where blocks are not known.

    A call that is made several times for an item, as by `retry`, takes as many times as long here.
    """
    service: dict[str, Draw] = {}
    for stage in report["stages"]:
        measured = report["model"]["stages"].get(stage["name"])
        if measured is None or not measured["calls"]:
            continue
        mean = (stage["service"]["mean"] or 0.0) + (0.0 if measured.get("blocks") else measured["overhead_s"])
        again = 1 + stage["retries"] / measured["calls"] if measured["calls"] else 1.0
        service[stage["name"]] = recorded(measured["times"], mean * again)
    return service


def handover_s(report: Mapping[str, Any]) -> dict[str, float]:
    """The way of a block to a worker of each stage and back. It is the same for one item and for many.

    So a stage that was given single items while it waited for others can be given more when it is the one that is
    waited for, and pays less for each.
    """
    known = {stage["name"]: report["model"]["stages"].get(stage["name"], {}) for stage in report["stages"]}
    return {
        name: measured["overhead_s"] * measured["calls"] / measured["blocks"]
        for name, measured in known.items()
        if measured.get("blocks")
    }


def selectivity(report: Mapping[str, Any]) -> dict[str, float]:
    """How many values each stage gives for one that it takes."""
    return {s["name"]: s["out"] / s["in"] for s in report["stages"] if s["in"]}


def source_s(report: Mapping[str, Any]) -> float:
    """Seconds that the source takes for a row, where that is long enough to matter."""
    rate = report["steady"]["rate"] or report["rate"] or 0.0
    seconds = float(report["model"]["source_s"])
    return seconds if seconds * rate > 0.1 else 0.0


def consumer_s(report: Mapping[str, Any]) -> float:
    """Seconds that the consumer takes for a value."""
    return next((s["service"]["mean"] or 0.0 for s in report["model"]["consumer"]), 0.0)
