"""A pipeline on a virtual clock: from times to a report. The engine is the real one, and nothing is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.core.plan import Plan
from headway.errors import PlanError
from headway.sim.service import Service
from headway.sim.whatif import handover_s, measured_service, modelled_run, selectivity
from headway.watch.report import Report, make_report

Services = Mapping[str, Service] | Report


def simulate(plan: Plan, service: Services, items: Any, seed: int) -> Report:
    """Run `plan` over so many rows. Raises PlanError for what `service` says wrongly."""
    if not isinstance(items, int) or isinstance(items, bool) or items < 1:
        raise PlanError(f"items must be a whole number from 1, not {items!r}")
    gives: dict[str, float] = {}
    handover: dict[str, float] = {}
    if isinstance(service, Report):
        figures = service.figures()
        gives = {name: share for name, share in selectivity(figures).items() if share > 0}
        service, handover = measured_service(figures), handover_s(figures)
    given: Mapping[str, Any] = service
    names = [stage.spec.name for stage in plan.stages]
    for name, times in given.items():
        if name not in names:
            raise PlanError(f"there is no stage {name!r}; there are {', '.join(map(repr, names))}")
        if not callable(times) and (not isinstance(times, int | float) or isinstance(times, bool) or times < 0):
            raise PlanError(
                f"stage {name!r}: a time is 0 or more seconds, or a function of (random, value), not {times!r}"
            )
    run = modelled_run(plan, items, service, gives, seed, handover=handover)
    report = make_report(run.engine, plan.spec.name, run.now)
    report.calls = run.log
    return report
