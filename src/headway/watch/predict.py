"""What another number of workers would give: the least of all bounds, times what a simulation reaches of it.

The simulation is the engine itself on a virtual clock, with this pipeline's queues, window and order and
with the times that its calls took. It lives elsewhere and is reached through `simulator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headway.watch.ceilings import BUSY_CPU, Ceiling, cpu_s, shared_ceilings, slot_ceiling, told_rate, told_s, visits_of

Simulator = Callable[[Mapping[str, Any], Mapping[str, int], int], float | None]
"""(the figures of a report, workers by stage, seed) -> rows a second in steady state; None where it cannot be built."""

simulator: list[Simulator] = []
"""The one in use, registered by whoever may import it."""

SEEDS = 3
LEAST_ERROR = 0.05
BESIDE_HANDING_OVER = 0.85
"""Share of the processors that is left for calls where all of them are busy."""
PROCESS_ERROR = 0.15
"""Of a prediction for processes, which nothing was measured of."""
NEAR = 0.99
"""A target counts as reached from this share of it."""
MOST_WORKERS = 4096


@dataclass(frozen=True, slots=True)
class Prediction:
    """The rate expected in rows a second, its interval, the stage that limits it then, and why that one."""

    rate: float
    low: float
    high: float
    next_bottleneck: str | None
    because: str = ""

    def __str__(self) -> str:
        return f"{told_rate(self.rate)} rows/s ({told_rate(self.low)} to {told_rate(self.high)}); then {self.next_bottleneck}: {self.because}"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No number of workers gives `target` rows a second. ``best`` is what would be reached, and why not more. Falsy."""

    target: float
    best: float
    because: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{told_rate(self.target)} rows/s cannot be reached with more workers: {told_rate(self.best)} at most, since {self.because}"


class Predictor:
    """Predictions from the data of one report."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._model: Mapping[str, Any] = data["model"]
        self._stages: list[dict[str, Any]] = [*data["stages"], *data["model"]["consumer"]]
        self._source: Mapping[str, Any] = data["source"]
        self._rate: float | None = data["steady"]["rate"] or data["rate"]
        self._reached: dict[tuple[tuple[str, int], ...], list[float]] = {}
        self._off = 0.0

    def resized(self, queue: int | None = None, window: int | None = None) -> Predictor:
        """One for the same pipeline with so many places in every queue, and rows under way; None: as it is."""
        if queue is None and window is None:
            return self
        steps = [step | {"queue": queue} if queue and "stage" in step else step for step in self._model["steps"]]
        model = {**self._model, "steps": steps, "window": window or self._model["window"]}
        other = Predictor({**self._data, "model": model})
        other._off = self._error()  # what was measured was so with the sizes as they were
        return other

    @property
    def possible(self) -> bool:
        """Whether enough was measured."""
        return bool(self._rate) and any(stage["capacity"] for stage in self._stages)

    @property
    def rate(self) -> float:
        """What was measured: rows a second."""
        return self._rate or 0.0

    @property
    def cores(self) -> int:
        """Processors of the machine that was measured."""
        return int(self._model["cores"])

    def scalable(self) -> list[str]:
        """Stages whose number of workers may be changed."""
        return [stage["name"] for stage in self._stages if not stage["alone"]]

    def workers(self, name: str) -> int:
        """The number of workers that a stage has now."""
        return int(next(stage["workers"] for stage in self._stages if stage["name"] == name))

    def check(self, changes: Mapping[str, Any]) -> None:
        """Raise ValueError for a stage that there is not, or that has one worker by its nature."""
        for name, count in changes.items():
            if name not in self.scalable():
                known = [stage["name"] for stage in self._stages]
                why = "has one worker, which cannot be changed" if name in known else "is no stage of this pipeline"
                raise ValueError(f"{name!r} {why}; there are {', '.join(map(repr, self.scalable()))}")
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"the workers of {name!r} must be a whole number from 1, not {count!r}")

    def ceilings(self, changes: Mapping[str, int], *, slots_only: bool = False) -> list[Ceiling]:
        """All bounds with these numbers of workers, the lowest first."""
        found = [c for s in self._stages if (c := slot_ceiling(s, changes.get(s["name"]))) is not None]
        shared = shared_ceilings(self._stages, self._model)
        found += [c for c in shared if not slots_only or c.verdict in ("rate_limited", "key_limited")]
        if self._model["source_s"] > 0:
            found.append(
                Ceiling(1 / self._model["source_s"], "source_limited", "source", "rows come no faster from the source")
            )
        return sorted(found, key=lambda ceiling: ceiling.rate)

    def _efficiency(self, changes: Mapping[str, int], seeds: int) -> list[float]:
        """What simulations of the pipeline reach of the bounds that they know."""
        key = tuple(sorted(changes.items()))
        known = self._reached.setdefault(key, [])
        bound = self.ceilings(changes, slots_only=True)[0].rate
        while simulator and len(known) < seeds:
            rate = simulator[0](self._data, changes, len(known))
            if rate is None:
                break
            known.append(min(1.0, rate / bound))
        return known or [1.0]

    def _error(self) -> float:
        """What was measured, as a share of what would have been predicted for it."""
        if not self._off:
            reached = self._efficiency({}, 1)
            self._off = min(1.25, max(0.25, self.rate / (self.ceilings({})[0].rate * reached[0])))
        return self._off

    def _shaky(self, name: str) -> float:
        """How far the time of handing over may change: it is half of it that the machine's other work decides."""
        found = next((stage for stage in self._stages if stage["name"] == name), None)
        held = found["busy"] + found["overhead"] if found is not None else 0.0
        return float(found["overhead"] / held / 2) if found is not None and held > 0 else 0.0

    def predict(self, changes: Mapping[str, int], *, seeds: int = SEEDS) -> Prediction:
        """The rate with these numbers of workers. Raises ValueError for what cannot be changed."""
        self.check(changes)
        low, *_ = ceilings = self.ceilings(changes)
        reached, off = self._efficiency(changes, seeds), self._error()
        share = sum(reached) / len(reached)
        rate = low.rate * share * off
        if low == self.ceilings({})[0]:  # what limits it now does so still
            now = self._data.get("bottleneck") or {}
            met = now.get("verdict") == low.verdict and low.verdict not in ("stage_limited", "sink_limited")
            rate = self.rate if met else max(self.rate, rate)  # more workers come no nearer to a bound they share
        width = max(LEAST_ERROR, abs(1 - off), (max(reached) - min(reached)) / share) + self._shaky(low.stage)
        named = next((c for c in ceilings if c.rate <= low.rate * 1.0001 and c.verdict == "stage_limited"), low)
        return Prediction(
            rate,
            rate * (1 - min(width, 0.9)),
            min(rate * (1 + width), max(low.rate, rate) * 1.05),
            named.stage,
            named.because,
        )

    def processes(self, name: str) -> int:
        """For how many processes in place of the threads of stage `name` there is a prediction.

        One for each processor. No fewer than there were threads: how much of their calls was waiting for the lock, and
        would end with it, was not measured, but in a process of its own no call takes longer.
        """
        return max(self.cores, self.workers(name))

    def in_processes(self, name: str) -> Prediction | None:
        """The rate if stage `name` computed in `processes`. None where it is not known to compute, or has one worker by its nature.

        Calls that compute take a processor for as long as they take; a share of it goes into handing over.
        """
        before = next(stage for stage in self._stages if stage["name"] == name)
        if before["alone"] or not cpu_s(before, self._model):
            return None
        workers = self.processes(name)
        moved = {
            **before, "on": "process", "workers": workers, "slots": float(workers),
            "capacity": before["capacity"] * workers / before["slots"],
        }  # fmt: skip
        stages = [moved if stage is before else stage for stage in self._stages]
        found = [c for s in stages if (c := slot_ceiling(s)) is not None] + shared_ceilings(stages, self._model)
        spent = sum(
            max(cpu_s(s, self._model), slot_s * ((s["cpu"] or 0.0) > BUSY_CPU * s["busy"]))
            for s in stages
            if (slot_s := (s["service"]["mean"] or 0.0) * visits_of(s))
        )
        found.append(
            Ceiling(self.cores / spent, "core_limited", name, f"a row needs {told_s(spent)} of {self.cores} processors")
        )
        low = min(found, key=lambda ceiling: ceiling.rate)
        rate = BESIDE_HANDING_OVER * low.rate
        return Prediction(rate, rate * (1 - PROCESS_ERROR), rate * (1 + PROCESS_ERROR), low.stage, low.because)

    def workers_for(self, target: float) -> dict[str, int] | Unreachable:
        """The fewest workers that reach `target` rows a second, by stage: those whose number changes."""
        workers: dict[str, int] = {}
        for _ in range(64):
            low = self.ceilings(workers)[0]
            made = self.predict(workers, seeds=1)
            if made.rate >= NEAR * target:
                return {name: count for name, count in workers.items() if count != self.workers(name)}
            if low.verdict not in ("stage_limited", "sink_limited") or low.stage not in self.scalable():
                return Unreachable(target, made.rate, low.because)
            now = workers.get(low.stage, self.workers(low.stage))
            more = max(now + 1, int(now * target / low.rate))
            if more > MOST_WORKERS:
                best = low.rate * MOST_WORKERS / now
                return Unreachable(target, best, f"{low.stage} would need more than {MOST_WORKERS} workers")
            workers[low.stage] = more
        return Unreachable(target, made.rate, "what is gained by each worker becomes too little")


class WhatIf(list[dict[str, Any]]):
    """The changes worth making, best first: change, rate, gain, next_bottleneck. Called with workers by stage: a `Prediction`."""

    def __init__(self, rows: Iterable[dict[str, Any]], predictor: Predictor | None) -> None:
        super().__init__(rows)
        self._predictor = predictor

    def __call__(self, workers: Mapping[str, int]) -> Prediction:
        """Predict the rate with these numbers of workers, by stage name. Raises ValueError for what cannot be."""
        if self._predictor is None:
            raise ValueError("too little was measured for a prediction: no call has ended, or no row was emitted")
        return self._predictor.predict(workers)


def changes(predictor: Predictor, *, simulated: bool) -> list[dict[str, Any]]:
    """The three changes that give most: more workers where the bound is, for that stage and with the next one."""
    seeds = 1 if simulated else 0
    tried: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    reached = predictor.rate
    for _ in range(3):
        low = predictor.ceilings(tried)[0]
        if low.verdict == "gil_limited" and not tried:
            moved, count = predictor.in_processes(low.stage), predictor.processes(low.stage)
            if moved is not None and moved.rate > 1.03 * reached:
                rows.append(_row(f'{low.stage} on="process", workers={count}', {low.stage: count}, moved, predictor))
            break
        if low.verdict not in ("stage_limited", "sink_limited") or low.stage not in predictor.scalable():
            break
        rest = [c.rate for c in predictor.ceilings(tried) if c.stage != low.stage or c.verdict != low.verdict]
        now = tried.get(low.stage, predictor.workers(low.stage))
        most = min(rest, default=2 * low.rate)
        tried[low.stage] = max(now + 1, min(8 * now, -int(-now * min(most, 8 * low.rate) // low.rate)))
        made = predictor.predict(tried, seeds=seeds)
        if made.rate < 1.03 * reached:
            break
        reached = made.rate
        told = ", ".join(f"{name}={count}" for name, count in tried.items())
        rows.append(_row(f"workers: {told}", dict(tried), made, predictor))
    return rows


def _row(change: str, workers: dict[str, int], made: Prediction, predictor: Predictor) -> dict[str, Any]:
    return {
        "change": change, "workers": workers, "rate": made.rate, "low": made.low, "high": made.high,
        "gain": made.rate / predictor.rate - 1, "next_bottleneck": made.next_bottleneck,
    }  # fmt: skip
