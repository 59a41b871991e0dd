"""Public test kit: explore the schedules of a pipeline on a virtual clock, and replay the one that fails.

`explore` runs a pipeline many times. Each time every call takes another time, drawn from a seed, so its
items overtake each other in another way; what comes out is compared with a run on one thread. A schedule
that gives something else is shrunk to the few calls whose times matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest import mock

from headway.core.lanes import named
from headway.core.plan import Plan
from headway.core.spec import StageSpec
from headway.core.stage import Slot
from headway.errors import Failure, PlanError, RunError
from headway.exploring import Duration, Explored
from headway.pipeline import Pipeline
from headway.sim.whatif import measured_service
from headway.text import shown, told
from headway.watch.report import Report, make_report

MEAN_S = 0.01
"""Mean virtual seconds of a call where no report says otherwise."""
SLOW, SLOW_SHARE = 10.0, 0.05
"""One call in 20 takes ten times as long."""
TRIALS = 80
"""Most runs to shrink a failing schedule."""
TOLD_CALLS = 24

Made = Pipeline[Any] | tuple[Pipeline[Any], Callable[[Report], object]]


@dataclass(frozen=True)
class Finding:
    """A schedule that gives a wrong result: its seed, what is wrong, and the hand-offs that lead there."""

    seed: int
    message: str
    schedule: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.message}", *(f"  {line}" for line in self.schedule)])


@dataclass(frozen=True)
class Exploration:
    """What `explore` found: ``failures`` with their schedules, ``seeds`` of these, number of ``schedules`` that were run."""

    failures: list[Finding]
    seeds: list[int]
    schedules: int

    def __bool__(self) -> bool:
        """Whether every schedule gave the right result."""
        return not self.failures

    def __str__(self) -> str:
        if not self.failures:
            return f"{self.schedules} schedules, all with the right result"
        return "\n".join([f"{len(self.failures)} of {self.schedules} schedules fail", *map(str, self.failures)])


def explore(
    make: Callable[[], Made] | Pipeline[Any],
    *,
    schedules: int = 500,
    seed: int = 0,
    service: Report | None = None,
    faults: bool = False,
    fakes: Mapping[str, Any] | None = None,
    stop_at: int = 1,
) -> Exploration:
    """Run the pipeline that `make` gives under so many schedules, from `seed` on, and compare what comes out.

    `make` is called for each schedule and returns a Pipeline over a source that can be read again, or
    ``(Pipeline, verify)``: ``verify(report)`` then raises AssertionError where the end state is wrong. Without
    it the outputs, or what the sink was given, are compared with ``mode="inline"``: as a list, per key or as a
    multiset, by the order that the sink asks for. Functions are the user's own: a plain one runs whole at the
    end of its virtual interval, an async one step by step. `service`: a report whose times calls take
    (otherwise exponential, one in 20 ten times as long). `faults`: workers of process stages are killed, and
    results may lack what died with them. `fakes`: ``"module.name"`` -> what stands there meanwhile. It ends
    after `stop_at` failing schedules.

    Raises PlanError for a stage that uses a real socket, thread or process, naming the stage.
    """
    maker = (lambda: make) if isinstance(make, Pipeline) else make
    failures: list[Finding] = []
    done = 0
    with ExitStack() as stack:
        for name, fake in (fakes or {}).items():
            stack.enter_context(_faked(name, fake))
        explorer = _Explorer(maker, service, faults=faults)
        for number in range(seed, seed + schedules):
            done += 1
            wrong = explorer.fails(number)
            if wrong is not None:
                failures.append(explorer.shrunk(number, wrong))
                if len(failures) >= stop_at:
                    break
    return Exploration(failures, [finding.seed for finding in failures], done)


def _faked(name: str, fake: Any) -> Any:
    try:
        patch = mock.patch(name, fake)
        patch.get_original()
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise PlanError(f"fakes: there is no {name!r} to replace: {told(error)}") from None
    return patch


class _Explorer:
    def __init__(self, make: Callable[[], Made], service: Report | None, *, faults: bool) -> None:
        self._make, self._faults = make, faults
        self._drawn = measured_service(service.figures()) if service is not None else None
        self._expected: tuple[Any, str | None] | None = None

    def fails(self, seed: int, only: frozenset[tuple[str, Any, int]] | None = None) -> str | None:
        """What is wrong with the result under `seed`; None if nothing is."""
        return self._run(seed, only)[0]

    def _run(
        self, seed: int, only: frozenset[tuple[str, Any, int]] | None = None
    ) -> tuple[str | None, Explored, list[tuple[str, Any, int]]]:
        made = self._make()
        pipeline, verify = made if isinstance(made, tuple) else (made, None)
        if not isinstance(pipeline, Pipeline):
            raise PlanError(f"a Pipeline is needed, or (Pipeline, verify), not {type(pipeline).__name__}")
        plan, got = _recorded(pipeline)
        called: list[tuple[str, Any, int]] = []
        duration = self._durations(seed, only, called)
        run = Explored(plan, _rows(pipeline), duration, seed=seed)
        if self._faults:
            self._kill(run, Random(f"{seed}/faults"))
        run.run()
        error = told(run.engine.cause.error) if run.engine.cause is not None else None
        if verify is not None:
            report = make_report(run.engine, plan.spec.name, run.now, dead_letters=run.dead, states=run.states)
            try:
                verify(report)
            except AssertionError as wrong:
                return (str(wrong).splitlines() or ["verify(report) failed"])[0], run, called
            return None, run, called
        values = got if got is not None else run.outputs
        if self._expected is None:
            self._expected = self._inline()
        return _difference(plan, values, error, *self._expected, lacking=self._faults), run, called

    def _durations(
        self, seed: int, only: frozenset[tuple[str, Any, int]] | None, called: list[tuple[str, Any, int]]
    ) -> Duration:
        """The time of each call depends on the seed and the call alone, so that one can be changed and the others stay."""

        def lasts(stage: str, tag: Any, attempt: int) -> float:
            call = stage, tag, attempt
            called.append(call)
            if only is not None and call not in only:
                return MEAN_S
            rng = Random(f"{seed}/{stage}/{tag}/{attempt}")
            if self._drawn is not None:
                return self._drawn[stage](rng, None) if stage in self._drawn else 0.0
            return rng.expovariate(1 / MEAN_S) * (SLOW if rng.random() < SLOW_SHARE else 1.0)

        return lasts

    def _kill(self, run: Explored, rng: Random) -> None:
        slots: list[Slot] = [slot for stage in run.engine.stages if stage.spec.on == "process" for slot in stage.slots]
        for slot in slots:
            if rng.random() < 0.5:
                run.at(rng.expovariate(1 / (20 * MEAN_S)), lambda slot=slot: None if run.engine.finished else run.kill(slot))  # fmt: skip

    def _inline(self) -> tuple[Any, str | None]:
        """Outputs of a run on one thread, and how it failed if it did."""
        made = self._make()
        pipeline = made[0] if isinstance(made, tuple) else made
        copy, got = _recording(pipeline)
        outputs: list[Any] = []
        error = None
        try:
            outputs.extend(copy.with_mode("inline"))
        except RunError as failed:
            error = told(failed.__cause__ or failed)
        return (got if got is not None else outputs), error

    def shrunk(self, seed: int, wrong: str) -> Finding:
        """The same failure with as few calls as possible that take another time than the others."""
        _, run, called = self._run(seed)
        odd = list(dict.fromkeys(called))
        trials, size = 0, max(1, len(odd) // 2)
        while odd and trials < TRIALS:
            for first in range(0, len(odd), size):
                rest = odd[:first] + odd[first + size :]
                trials += 1
                if trials > TRIALS:
                    break
                message, tried, _ = self._run(seed, frozenset(rest))
                if message is not None:
                    odd, wrong, run = rest, message, tried
                    break
            else:
                if size == 1:
                    break
                size = max(1, size // 2)
        return Finding(seed, wrong, _told(run, set(odd)))


def _told(run: Explored, odd: set[tuple[str, Any, int]]) -> list[str]:
    """The calls whose times matter, and those that overlap with them, as they ended."""
    calls = sorted((stop, start, stage, slot, tag) for stage, slot, tag, start, stop in run.log if stop > start)
    mine = [(start, stop) for stop, start, stage, _, tag in calls if any((stage, tag) == call[:2] for call in odd)]
    shown_ = [c for c in calls if any(start < c[0] and c[1] < stop for start, stop in mine)] if mine else calls
    lines = [
        f"{stop * 1e3:8.1f} ms  {stage}[{slot}] ends item {tag}, begun at {start * 1e3:.1f} ms"
        + ("  <- took its own time" if any((stage, tag) == call[:2] for call in odd) else "")
        for stop, start, stage, slot, tag in shown_[:TOLD_CALLS]
    ]
    more = len(shown_) - TOLD_CALLS
    return [*lines, f"and {more} calls more"] if more > 0 else lines


def _rows(pipeline: Pipeline[Any]) -> Any:
    source = pipeline._take_source()
    source = source() if callable(source) else source
    if hasattr(source, "__aiter__"):
        return _all(source)
    return source if hasattr(source, "__iter__") else iter(lambda: source.read(1), [])  # pragma: no branch


def _all(source: Any) -> list[Any]:
    async def read() -> list[Any]:
        return [row async for row in source]

    return asyncio.run(read())


def _recording(pipeline: Pipeline[Any]) -> tuple[Pipeline[Any], list[Any] | None]:
    """The pipeline with a sink that notes what it was given; None where it has no sink."""
    steps = pipeline._spec.steps
    last = steps[-1] if steps else None
    if not isinstance(last, StageSpec) or last.kind != "sink":
        return pipeline, None
    got: list[Any] = []
    noted = replace(last, fn=_noting(last.fn, got))
    return pipeline._copy(replace(pipeline._spec, steps=(*steps[:-1], noted))), got


def _recorded(pipeline: Pipeline[Any]) -> tuple[Plan, list[Any] | None]:
    copy, got = _recording(pipeline)
    return copy._prepare("inline")[0], got


def _noting(sink: Any, got: list[Any]) -> Any:
    from headway.call import is_async

    if not callable(sink):
        return _NotingSink(sink, got)
    if is_async(sink):

        async def write_async(*arguments: Any) -> Any:
            await sink(*arguments)
            got.append(arguments[0])

        return write_async

    def write(*arguments: Any) -> Any:
        sink(*arguments)
        got.append(arguments[0])

    return write


class _NotingSink:
    """A `Sink` that notes what the real one has written."""

    def __init__(self, sink: Any, got: list[Any]) -> None:
        self._sink, self._got = sink, got
        from headway.call import is_async

        if is_async(sink.write):
            self.write = self._write_async  # type: ignore[method-assign]

    def open(self, resume: dict[str, Any] | None) -> Any:
        return self._sink.open(resume)

    def write(self, items: Any) -> Any:
        self._sink.write(items)
        self._got.extend(items)

    async def _write_async(self, items: Any) -> None:
        await self._sink.write(items)
        self._got.extend(items)

    def commit(self, state: dict[str, Any]) -> Any:
        return self._sink.commit(state)

    def close(self, error: BaseException | None) -> Any:
        return self._sink.close(error)


def _difference(
    plan: Plan, values: list[Any], error: str | None, expected: list[Any], expected_error: str | None, *, lacking: bool
) -> str | None:
    """What of `values` is not as on one thread."""
    if not lacking and (error is None) != (expected_error is None):
        return f"this schedule {'fails with ' + error if error else 'ends well'}, on one thread it {'fails with ' + expected_error if expected_error else 'ends well'}"
    order = plan.spec.order
    got, want = list(map(_plain, values)), list(map(_plain, expected))
    if error is not None:  # what had left before depends on the schedule
        return None
    if order == "input":
        parts = [(got, want, "")]
    elif order == "key":
        parts = _by_key(plan, values, expected)
    else:
        parts = [(sorted(got), sorted(want), " (in any order)")]
    for mine, theirs, what in parts:
        if lacking:
            left = iter(theirs)
            if all(value in left for value in mine):
                continue
        elif mine == theirs:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
        )
        one = mine[at] if at < len(mine) else "nothing"
        other = theirs[at] if at < len(theirs) else "nothing"
        return f"output {at}{what} is {one}, on one thread it is {other}"
    return None


def _by_key(plan: Plan, values: list[Any], expected: list[Any]) -> list[tuple[list[str], list[str], str]]:
    key = plan.spec.order_key
    if key is None:
        key = next((s.spec.key for s in reversed(plan.stages) if s.spec.key is not None), None)
    of = named(key) if isinstance(key, str) else key
    keys = list(dict.fromkeys(map(_plain, map(of, [*expected, *values]))))
    return [
        ([_plain(v) for v in values if _plain(of(v)) == k], [_plain(v) for v in expected if _plain(of(v)) == k], f" of key {k}")
        for k in keys
    ]  # fmt: skip


def _plain(value: Any) -> str:
    """A value in comparable form."""
    if type(value) is Failure:
        return f"Failure of {value.stage}: {told(value.error)}"
    return shown(value, 2000)
