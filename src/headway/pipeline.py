"""Pipeline: the declaration, and the ways to run it.

What a run does is decided in core/ and carried out in run/; here it is only described and started.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)  # fmt: skip
from dataclasses import replace
from typing import Any, Generic, Literal, NoReturn, TypeVar, Unpack, overload

from headway.core import plan as core
from headway.core.block import Drop
from headway.core.spec import BatchSpec, Kind, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.errors import Failure, HeadwayError, PlanError
from headway.how import How
from headway.ports import Sink, Source
from headway.resuming import effect, read_once
from headway.run.crew import recipe_of
from headway.run.outlet import Discard, take_one
from headway.run.source import open_rows
from headway.running import Run
from headway.running_inline import InlineRun
from headway.sim.whatif import simulated_rate
from headway.simulated import Services, simulate
from headway.stages import StageOptions, make_stage, pack_stage, unique
from headway.watch import predict
from headway.watch.plan import Plan
from headway.watch.report import Report

predict.simulator[:] = [simulated_rate]  # `watch` may not know `sim`

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


Rows = Iterable[T] | AsyncIterable[T] | Source[T]


class Pipeline(Generic[T]):
    """An immutable description: a source, stages, and what takes their outputs. Nothing runs until it is asked to.

    `source`: an iterable, an async iterable, a `Source`, or a function without arguments that
    returns one. `window`: most items read and not yet through (None: sized by the engine;
    "auto": grows with throughput x slow tail);
    `window_bytes`: the same in bytes; `size`: a function giving a value's bytes, 1 KB where it raises. `on_error`: what an
    item's failure means where a stage does not say. `mode="inline"` runs every stage on the calling thread.

    Each method returns a new pipeline and raises PlanError for what cannot work. Stages take the options

    * ``workers`` (1), ``on``: "task" (async functions), "thread" (others), "process" or a
      `concurrent.futures.Executor` of your own, which stays yours,
    * ``needs="input"``: the function relies on input order; a re-sequencer is placed where it is lost,
    * ``queue``: most items that wait in front of it (behind a batch: batches),
    * ``on_error``: "raise", "skip", "keep" (a `Failure` at its place) or "dead_letter"; ``max_failures``,
    * ``setup``: called once in each worker; its result, entered if it is a context manager, is the
      function's second argument,
    * ``idempotent``: may be run again after a worker died; ``atomic`` (flat_map): children leave together,
    * ``name``.
    """

    def __init__(
        self,
        source: Rows[T] | Callable[[], Rows[T]],
        *,
        name: str = "pipeline",
        window: int | Literal["auto"] | None = None,
        window_bytes: int = 256 * 1024 * 1024,
        size: Callable[[Any], int] | None = None,
        on_error: Literal["raise", "skip", "keep", "dead_letter"] = "raise",
        mode: Literal["concurrent", "inline"] = "concurrent",
    ) -> None:
        if not callable(source) and not any(hasattr(source, m) for m in ("__iter__", "__aiter__", "read")):
            raise PlanError(
                "a source is an iterable, an async iterable, a Source or a function that returns one, "
                f"not {type(source).__name__}"
            )
        self._source, self._name, self._size, self._mode = source, name, size, mode
        self._spec = PipelineSpec(name, (), window=window, window_bytes=window_bytes, on_error=on_error)
        self._used = [False]
        How(mode=mode)

    # ---- building

    def _with(self, *steps: Step, order: str | None = None, order_key: Any = None) -> Pipeline[Any]:
        if self._steps and isinstance(self._steps[-1], StageSpec) and self._steps[-1].kind == "sink":
            raise PlanError(f"{self._steps[-1].name!r} is the sink, and nothing can stand behind it")
        if order is None:
            order, order_key = self._spec.order, self._spec.order_key
        return self._copy(replace(self._spec, steps=self._steps + steps, order=order, order_key=order_key))

    def _copy(self, spec: PipelineSpec) -> Pipeline[Any]:
        copy: Pipeline[Any] = object.__new__(Pipeline)
        copy.__dict__.update(self.__dict__)
        copy._spec = spec
        return copy

    @property
    def _steps(self) -> tuple[Step, ...]:
        return self._spec.steps

    def _stage(self, kind: Kind, fn: Any, options: Any) -> Pipeline[Any]:
        return self._with(make_stage(kind, fn, dict(options), self._steps))

    @overload
    def map(self, fn: Callable[[T], Awaitable[U | Drop]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def map(self, fn: Callable[[T], U | Drop], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def map(self, fn: Callable[[T, R], Awaitable[U | Drop]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def map(self, fn: Callable[[T, R], U | Drop], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    def map(self, fn: Callable[..., Any], **stage: Unpack[StageOptions]) -> Pipeline[Any]:
        """One value in, one out. None is an ordinary value; ``return DROP`` filters the item."""
        return self._stage("map", fn, stage)

    @overload
    def filter(self, fn: Callable[[T], object], **stage: Unpack[StageOptions]) -> Pipeline[T]: ...
    @overload
    def filter(self, fn: Callable[[T, R], object], **stage: Unpack[StageOptions]) -> Pipeline[T]: ...
    def filter(self, fn: Callable[..., object], **stage: Unpack[StageOptions]) -> Pipeline[T]:
        """Keep the items for which `fn` is true."""
        return self._stage("filter", fn, stage)

    @overload
    def flat_map(self, fn: Callable[[T], AsyncIterable[U]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def flat_map(self, fn: Callable[[T], Awaitable[Iterable[U]]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def flat_map(self, fn: Callable[[T], Iterable[U]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    @overload
    def flat_map(self, fn: Callable[[T, R], Iterable[U]], **stage: Unpack[StageOptions]) -> Pipeline[U]: ...
    def flat_map(self, fn: Callable[..., Any], **stage: Unpack[StageOptions]) -> Pipeline[Any]:
        """Each item becomes the values that `fn` returns or yields, in order.

        Generators are read only as far as there is room, so one item may become endlessly many.
        """
        return self._stage("flat_map", fn, stage)

    def scan(
        self,
        fn: Callable[..., Any],
        initial: Any,
        **stage: Unpack[StageOptions],
    ) -> Pipeline[Any]:
        """``state, out = fn(state, value)``, in input order, or with `key` in that of each key, each with its own state.

        `initial`: the first state, copied deeply for each key, or a function that makes it. `fn` may be
        async. A failing item leaves the state as it was: give a new state back rather than change the old
        one. The final states: ``report.states[stage]``, by key (None without one). One worker, or with
        `key` several, whose lanes keep two items of a key apart; in a process only one.
        """
        options: dict[str, Any] = dict(stage)
        if options.get("key") is None:
            options["needs"] = "input"
        return self._with(make_stage("scan", fn, options, self._steps, initial=initial))

    def batch(self, size: int, *, within: float | None = None, bytes: int | None = None) -> Pipeline[list[T]]:
        """Lists of up to `size` items, or `bytes` bytes.

        A batch leaves when it is full, at the end of the input or at a drain; with `within` also
        that many seconds after its first item came.
        """
        return self._with(BatchSpec(size, within, bytes))

    def unbatch(self: Pipeline[list[U]]) -> Pipeline[U]:
        """The reverse of `batch`. A list of another length than its batch is an expansion of it."""
        return self._with(UnbatchSpec())

    @overload
    def map_batches(
        self, fn: Callable[[list[T]], Awaitable[Sequence[U | Drop | Failure]]], size: int, *,
        within: float | None = None, **stage: Unpack[StageOptions],
    ) -> Pipeline[U]: ...  # fmt: skip
    @overload
    def map_batches(
        self, fn: Callable[[list[T]], Sequence[U | Drop | Failure]], size: int, *,
        within: float | None = None, **stage: Unpack[StageOptions],
    ) -> Pipeline[U]: ...  # fmt: skip
    @overload
    def map_batches(
        self, fn: Callable[[list[T], R], Sequence[U | Drop | Failure]], size: int, *,
        within: float | None = None, **stage: Unpack[StageOptions],
    ) -> Pipeline[U]: ...  # fmt: skip
    def map_batches(
        self, fn: Callable[..., Any], size: int, *, within: float | None = None, **stage: Unpack[StageOptions]
    ) -> Pipeline[Any]:
        """``fn(list) -> list`` of the same length, up to `size` items a call; each item keeps its place and fate.

        ``Failure(error)`` in a slot fails that item alone, `DROP` filters it. If `fn` raises, every item of the call fails.
        """
        spec = make_stage("map_batches", fn, dict(stage), self._steps)
        return self._with(BatchSpec(size, within, for_map=True), spec)

    def to(
        self,
        sink: Sink[T] | Callable[[T], object] | Callable[[T, Any], object],
        *,
        order: Literal["input", "key", "none"] = "input",
        **stage: Unpack[StageOptions],
    ) -> Pipeline[NoReturn]:
        """The last step: a function (one item a call, a list behind `batch`) or a `Sink`.

        `order`: in which its items come: that of the input, that of the input for each `key` (None: the key of
        the nearest stage before that has one), or any. With a key it may have several workers.
        """
        options: dict[str, Any] = dict(stage)
        key = options.pop("key", None)
        if order == "key" and options.get("workers", 1) != 1:
            options["key"] = key if key is not None else self._last_key()
        spec = make_stage("sink", sink, options, self._steps)
        return self._with(spec, order=order, order_key=key)

    def _last_key(self) -> Any:
        """The key of the nearest keyed stage."""
        return next((s.key for s in reversed(self._steps) if isinstance(s, StageSpec) and s.key is not None), None)

    def ordered(
        self, order: Literal["input", "key", "none"] = "input", key: str | Callable[[T], Any] | None = None
    ) -> Pipeline[T]:
        """The order in which a consumer that iterates wants the outputs. See `to`."""
        return self._with(order=order, order_key=key)

    def with_workers(self, workers: dict[str, int]) -> Pipeline[T]:
        """The same pipeline with other numbers of workers, by stage name."""
        names = [step.name for step in self._steps if isinstance(step, StageSpec)]
        for name in workers:
            if name not in names:
                raise PlanError(f"there is no stage {name!r}; there are {', '.join(map(repr, names)) or 'none'}")
        steps = tuple(
            replace(step, workers=workers[step.name], most=0)
            if isinstance(step, StageSpec) and step.name in workers
            else step
            for step in self._steps
        )
        return self._copy(replace(self._spec, steps=steps))

    def with_mode(self, mode: Literal["concurrent", "inline"]) -> Pipeline[T]:
        """The same pipeline, run concurrently or with every stage on the calling thread."""
        How(mode=mode)
        copy = self._copy(self._spec)
        copy.__dict__["_mode"] = mode
        return copy

    # ---- running

    def plan(self) -> Plan:
        """What will run and why. Raises PlanError for what cannot work."""
        plan = self._prepare("concurrent")[0]
        return Plan(plan, effect(plan))

    def simulate(self, service: Services, *, items: int = 1000, seed: int = 0) -> Report:
        """The report of this pipeline on a virtual clock: the same engine, with no function called and nothing read.

        `service`: what a call takes by stage name, in seconds or as a function of (random, value); a stage
        that is not named takes no time. Or the report of a real run: its times and selectivities. The source
        costs nothing. The same `seed` gives the same run. Raises PlanError for a stage that there is not.
        """
        return simulate(self._prepare("inline")[0], service, items, seed)

    def _prepare(self, mode: str) -> tuple[core.Plan, dict[str, bytes]]:
        """The plan, and the functions of process stages as they will be sent."""
        spec = self._spec
        if not spec.steps or not (isinstance(spec.steps[-1], StageSpec) and spec.steps[-1].kind == "sink"):
            last = next((s for s in reversed(spec.steps) if isinstance(s, StageSpec)), None)
            output = StageSpec("consume", None, unique("output", spec.steps), queue=last.queue if last else None)
            spec = replace(spec, steps=(*spec.steps, output))
        plan = core.make_plan(spec)
        packed: dict[str, bytes] = {}
        for stage in plan.stages if mode == "concurrent" else ():
            packed |= pack_stage(stage.spec, recipe_of(stage, self._size, plan.window(), plan.spec.name))
        return plan, packed

    def _open(self, how: How) -> Run[T]:
        plan, packed = self._prepare("concurrent")
        return Run(plan, self._take_source(how.goes_on), self._name, how, self._size, packed)

    def _take_source(self, anew: bool = False) -> Any:
        """The source, once only if it is its own iterator; never such a one if each run has to begin `anew`."""
        source: Any = self._source
        once = read_once(source)
        if once and anew:
            raise PlanError(
                "a run with checkpoint= or job= has to be able to begin anew, and this source is an iterator, which gives "
                "its items once: give a list, a Source, or a function that returns a new iterator, as in lambda: open(path)"
            )
        if once and self._used[0]:
            raise HeadwayError(
                f"the source of {self._name!r} is an iterator and was used up by the first run; "
                "give a list, or a function that returns a new iterator"
            )
        self._used[0] = True
        return source

    def _how(self, how: dict[str, Any]) -> How:
        known = How.__dataclass_fields__
        for name in how:
            if name not in known:
                raise PlanError(f"there is no way to run with {name}=; there are {', '.join(known)}")
        return How(**{"mode": self._mode, **{k: v for k, v in how.items() if v is not None or k != "mode"}})

    def __iter__(self) -> Iterator[T]:
        if self._mode == "inline":
            return self._inline(How(mode="inline")).values()
        return self._iterate()

    def _iterate(self) -> Generator[T, None, None]:
        with self._open(How()) as run:
            yield from run

    async def __aiter__(self) -> AsyncIterator[T]:
        hand: list[T] = []
        if self._mode == "inline":
            values: AsyncIterator[T] = self._inline(How(mode="inline")).avalues()
            while await take_one(values, hand):
                yield hand.pop()
            return
        async with self._open(How()) as run:
            values = aiter(run)
            while await take_one(values, hand):
                yield hand.pop()

    def open(self, **how: Any) -> Run[T]:
        """The run as a context manager, `with` or `async with`: iterate it, or wait for it; at the end all is gone."""
        made = self._how(how)
        if made.mode == "inline":
            raise PlanError(
                'mode="inline" has no run beside the caller: iterate the pipeline, or use .collect() or .run()'
            )
        return self._open(made)

    def collect(self, **how: Any) -> list[T]:
        """All outputs."""
        made = self._how(how)
        if made.goes_on:
            raise PlanError("collect() gives all outputs, and a run that goes on only the rest: use run() or open()")
        if made.mode == "inline":
            return list(self._inline(made).values())
        values: list[T] = []
        self._open(made).run_to_end(Discard(values), signals=False)
        return values

    def run(self, **how: Any) -> Report:
        """To the end: into the sink, or discarding outputs.

        The first SIGINT or SIGTERM drains, the second cancels, the third aborts; then
        KeyboardInterrupt or RunError is raised, with ``.report``.
        """
        made = self._how(how)
        if made.mode == "inline":
            inline = self._inline(made)
            for _ in inline.values():
                pass
            return inline.report
        return self._open(made).run_to_end(Discard(), signals=True)

    async def arun(self, **how: Any) -> Report:
        """As `run`, on the caller's event loop. Signals only with ``handle_signals=True``."""
        made = self._how(how)
        if made.mode == "inline":
            inline = self._inline(made)
            async for _ in inline.avalues():
                pass
            return inline.report
        return await self._open(made).start_task(Discard()).run_to_end_async()

    def start(self, **how: Any) -> Run[T]:
        """Run in the background, with a sink or discarding outputs."""
        made = self._how(how)
        if made.mode == "inline":
            raise PlanError('mode="inline" runs on the calling thread and so not in the background')
        return self._open(made).start_thread(Discard())

    # ---- in one thread

    def _inline(self, how: How) -> InlineRun[T]:
        plan, _ = self._prepare("inline")
        return InlineRun(plan, open_rows(self._take_source(how.goes_on)), self._name, how, self._size)
