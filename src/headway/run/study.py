"""Virtual speed-up: what a faster stage would give, measured on the run itself.

A stage cannot be made faster for a trial, but everything else can be made slower. Whenever the stage under study
finishes a call of duration d, every other slot pays a toll of p x d before its next hand-off; a slot that waited
meanwhile has paid by that. The outputs over the time less the tolls are then the rate that the pipeline would have
with calls shorter by the share p (Curtsinger and Berger, "Coz: Finding Code that Counts with Causal Profiling",
SOSP 2015). Of a stage with n slots each call stands for p x d / n, since n of them go on side by side. The source
pays nothing, so no rate is given that it could not feed.

A study puts itself before three methods of its driver, and takes itself away at its end: a run without one has nothing to
look at. What does not belong here: predictions that are worked out instead of measured.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from headway.core.engine import Engine
from headway.core.plan import Plan
from headway.core.stage import Slot, Stage
from headway.core.ticket import Answer, Job
from headway.errors import HeadwayError, PlanError
from headway.run.crew import Crew
from headway.run.events import PostedEvents

PAIRS = 5
"""Windows without and with tolls, in turn."""
SETTLED = 0.3
"""Share of a window that is not counted: the queues are still as the window before it left them."""
STUDENT = 2.776
"""Two-sided 95% of Student's distribution for PAIRS - 1 degrees of freedom."""
LEAST_S = 0.0005
"""Smaller tolls are gathered: a timer of the loop is no more exact."""
BEGUN_S = 0.05
"""How often is looked whether rows have begun to come out."""
LEAST_ITEMS = 10
"""Fewer outputs in a window say nothing."""


@dataclass(frozen=True)
class Effect:
    """What a stage whose calls were shorter by the share `speedup` would give, in rows a second.

    `base`: the rate as it is, in the windows between; `low` to `high`: the 95% interval of `rate`.
    """

    stage: str
    speedup: float
    base: float
    rate: float
    low: float
    high: float

    @property
    def gain(self) -> float:
        """How much more that is, as a share of `base`."""
        return self.rate / self.base - 1

    def to_dict(self) -> dict[str, Any]:
        """Give the same as a dict, with the gain."""
        return asdict(self) | {"gain": self.gain}

    def __str__(self) -> str:
        return (
            f"with calls of {self.stage} {self.speedup:.0%} shorter about {self.rate:,.4g} rows/s "
            f"({self.low:,.4g} to {self.high:,.4g}), {self.gain:+.0%}, as measured on this run"
        )


def checked_study(plan: Plan, name: str, speedup: float) -> None:
    """Raise PlanError for a stage that cannot be studied, or a share that is none."""
    names = [stage.spec.name for stage in plan.stages if stage.spec.kind != "consume"]
    if name not in names:
        raise PlanError(f"there is no stage {name!r}; there are {', '.join(map(repr, names))}")
    if not 0 < speedup < 1:
        raise PlanError(f"speedup is a share above 0 and below 1, as 0.5 for calls of half the time, not {speedup!r}")


class Tolls:
    """What each slot owes: told when slots begin and end jobs. Seconds, on the driver's clock."""

    def __init__(self, stage: Stage, speedup: float) -> None:
        self._stage, self._speedup = stage, speedup
        self.charged = False
        """Whether calls of the stage cost the others anything now."""
        self.total = 0.0
        self._paid: dict[Slot, float] = {}
        self._idle: dict[Slot, float] = {}

    def began(self, slot: Slot) -> None:
        """A slot is given a job: what fell due while it waited is paid."""
        waited = self.total - self._idle.pop(slot, self.total)
        self._paid[slot] = self._paid.get(slot, self.total) + waited

    def ended(self, slot: Slot, answer: Answer) -> float:
        """A slot has ended its job: how long its answer is to be held back, 0 for not at all."""
        if slot.stage is self._stage:
            if self.charged:
                self.total += self._speedup * (answer.stopped - answer.started) / max(1, len(self._stage.slots))
            return 0.0
        return self.debt(slot)

    def debt(self, slot: Slot) -> float:
        """What a slot that holds an answer owes now, 0 for nothing."""
        debt = self.total - self._paid.setdefault(slot, self.total)
        if debt >= LEAST_S:
            return debt
        self._idle[slot] = self.total
        return 0.0

    def paid(self, slot: Slot, seconds: float) -> None:
        """A slot's answer was held back for so long."""
        self._paid[slot] += seconds


class Studied(PostedEvents):
    """A driver whose stages can be studied while it runs, one at a time."""

    engine: Engine
    crew: Crew
    _loop: asyncio.AbstractEventLoop
    _over: asyncio.Future[None]
    _study: asyncio.Task[None] | None = None

    dispatch: Callable[[Slot, Job], None]
    _later: Callable[..., None]

    def study(self, name: str, speedup: float, seconds: float) -> Future[Effect]:
        """Study a stage for about so long, from any thread. Raises PlanError for what cannot be studied."""
        checked_study(self.engine.plan, name, speedup)
        if not (0 < seconds < math.inf):
            raise PlanError(f"a study takes some seconds, not {seconds!r}")
        found: Future[Effect] = Future()
        self._later(self._begin_study, name, speedup, seconds, found)
        return found

    def _begin_study(self, name: str, speedup: float, seconds: float, found: Future[Effect]) -> None:
        if self._study is not None and not self._study.done():
            found.set_exception(HeadwayError("another stage is being studied; ask again when that has ended"))
            return
        [stage] = [stage for stage in self.engine.stages if stage.spec.name == name]
        self._study = self._loop.create_task(self._studied(stage, speedup, seconds, found), name="headway-study")

    async def _studied(self, stage: Stage, speedup: float, seconds: float, found: Future[Effect]) -> None:
        tolls = Tolls(stage, speedup)
        held: dict[asyncio.TimerHandle, tuple[Any, Answer]] = {}
        dispatch, answered, lost = self.dispatch, self._on_answer, self._on_died

        def begin(slot: Slot, job: Job) -> None:
            tolls.began(slot)
            dispatch(slot, job)

        def hold(worker: Any, answer: Answer) -> None:
            slot = self.crew.slot_of(worker)
            wait_s = tolls.ended(slot, answer) if slot is not None else 0.0
            if slot is None or not wait_s:
                answered(worker, answer)
            else:
                keep(slot, worker, answer, wait_s)

        def keep(slot: Slot, worker: Any, answer: Answer, wait_s: float) -> None:
            since = perf_counter()

            def give() -> None:
                del held[timer]
                tolls.paid(slot, perf_counter() - since)
                if more := tolls.debt(slot):
                    keep(slot, worker, answer, more)
                else:
                    self._post(answered, worker, answer)

            timer = self._loop.call_later(wait_s, give)
            held[timer] = worker, answer

        def died(worker: Any, *rest: Any) -> None:
            for timer, (holder, answer) in list(held.items()):
                if holder is worker:  # it had ended that job
                    timer.cancel()
                    del held[timer]
                    answered(worker, answer)
            lost(worker, *rest)

        try:
            vars(self).update(dispatch=begin, _on_answer=hold, _on_died=died)
            found.set_result(await self._measured(stage, tolls, speedup, seconds))
        except BaseException as error:
            found.set_exception(error if isinstance(error, HeadwayError) else HeadwayError("the run has ended"))
        finally:
            for name in ("dispatch", "_on_answer", "_on_died"):
                del vars(self)[name]
            for timer, (worker, answer) in held.items():
                timer.cancel()
                self._post(answered, worker, answer)

    async def _measured(self, stage: Stage, tolls: Tolls, speedup: float, seconds: float) -> Effect:
        window_s = seconds / (2 * PAIRS)
        rates: dict[bool, list[float]] = {False: [], True: []}
        while not self.engine.times.emitted_roots:
            await self._pass(BEGUN_S)
        before = self._fed(perf_counter())
        for tolled in [False, True] * PAIRS:
            tolls.charged = tolled
            await self._pass(SETTLED * window_s)
            since, items, due = perf_counter(), self.engine.times.emitted_roots, tolls.total
            await self._pass((1 - SETTLED) * window_s)
            came = self.engine.times.emitted_roots - items
            if came < LEAST_ITEMS:
                raise HeadwayError(
                    f"only {came} rows came out in a window of {window_s:.3g} s; give the study more than {seconds:g} seconds"
                )
            rates[tolled].append(came / max(perf_counter() - since - (tolls.total - due), 1e-9))
        pairs = [math.log(on / off) for off, on in zip(rates[False], rates[True], strict=True)]
        base, gain = statistics.fmean(rates[False]), statistics.fmean(pairs)
        off = STUDENT * statistics.stdev(pairs) / math.sqrt(PAIRS)
        rows, reading_s = (now - then for now, then in zip(self._fed(perf_counter()), before, strict=True))
        most = max(base, rows / reading_s) if reading_s > 0 else math.inf
        low, rate, high = (min(most, base * math.exp(gain + each)) for each in (-off, 0.0, off))
        return Effect(stage.spec.name, speedup, base, rate, low, high)

    def _fed(self, now: float) -> tuple[float, float]:
        """Rows that the source has given, and the seconds in which it was asked for them."""
        return float(self.engine.rows), self.engine.times.source.times(now)["reading"]

    async def _pass(self, seconds: float) -> None:
        await asyncio.wait([self._over], timeout=seconds)
        if self._over.done() or self.engine.finished:
            raise HeadwayError("the run ended before the study did")
