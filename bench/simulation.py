"""What a simulation costs: 10,000 items of the staircase, as a page asks for them at every move of a slider.

The same pipeline on the engine itself, with nothing left out, shows what the plain line of `sim/line.py` saves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headway import Pipeline
from headway.core.plan import make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.sim.driver import VirtualRun
from measure import Table, interleave, median

ITEMS = 10_000
TARGET_S = 0.5
TIMES = {"read": 2.0, "parse": 1.0, "process": 4.0, "write": 3.0}
FORMS = {"as it is": (1, 1), "Process x 3, Write x 2": (3, 2)}
UNITS = {"1 s": 1.0, "1 ms": 1e-3}


def same(row: Any) -> Any:
    """Return the row."""
    return row


def simulate(workers: tuple[int, int], unit: float) -> int:
    """The public way: rows written."""
    many = dict(zip(("process", "write"), workers, strict=True))
    pipeline: Pipeline[Any] = Pipeline(list[int]())
    for name in TIMES:
        pipeline = pipeline.map(same, name=name, workers=many.get(name, 1))
    service = {name: seconds * unit for name, seconds in TIMES.items()}
    return int(pipeline.simulate(service, items=ITEMS).items.written)


def on_the_engine() -> int:
    """The staircase as it is, on the engine: rows written."""
    stages = [StageSpec("map", None, name) for name in TIMES]
    plan = make_plan(PipelineSpec("staircase", (*stages, StageSpec("consume", None, "output"))))
    return VirtualRun(plan, range(ITEMS), TIMES, modelled={}).run().engine.fates.written


def bench() -> Table:
    """Measure all variants in turn."""
    variants: dict[str, Callable[[], int]] = {
        f"{form}, unit {unit}": partial(simulate, workers, seconds)
        for form, workers in FORMS.items()
        for unit, seconds in UNITS.items()
    }
    samples = interleave({**variants, "as it is, on the engine": on_the_engine}, rounds=3)
    table = Table(f"Simulation: {ITEMS:,} items of the staircase", ("variant", "CPU s", "x engine"))
    engine = median(sample.cpu for sample in samples["as it is, on the engine"])
    for name, found in samples.items():
        if any(sample.result != ITEMS for sample in found):
            raise AssertionError(f"{name}: rows are missing")
        cpu = median(sample.cpu for sample in found)
        table.row(name, cpu, cpu / engine)
        if name in variants:
            table.judge(name, cpu, TARGET_S, " s")
    return table
