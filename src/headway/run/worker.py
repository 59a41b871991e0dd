"""What a worker is: the contract that all kinds fulfil, and what each of them opens and closes.

A worker takes jobs one after another and answers each once. It knows no engine, queue or order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headway.call import Caller, is_async, raised
from headway.claim import Cell
from headway.core.policy import Retry
from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout, Raised
from headway.run.setup import Common, Resource, Shared, SharedResource, settled

if TYPE_CHECKING:  # not by a child process, which has no sink and would load an event loop with it
    from headway.run.checkpoint import Checkpoint


class Spent(NamedTuple):
    """When something ran, on the clock of the run, and how many seconds of that on a processor."""

    started: float
    stopped: float
    cpu: float


class Worker(Protocol):
    """The hands of one slot. All methods are called on the loop's thread and return at once."""

    name: str

    def start(self) -> None:
        """Begin to open; `Events.ready` or `Events.broken` follows."""

    def submit(self, job: Job) -> None:
        """Run `job`; `Events.answered` follows."""

    def recall(self, ticket: int) -> None:
        """Answer for `ticket` as soon as the call that runs ends, with the rest un-started."""

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs now: its ticket, when it began, and when its item's deadline is (`Job.until`)."""

    def where(self) -> tuple[int, int, int] | None:
        """Ticket of the job in hand, offset of the input of its call, outputs of the job so far; None if unknown."""

    def stack(self, timeout_s: float) -> str:
        """Where the code of the job in hand is, as text."""

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """Do not wait for the call that runs under `ticket`: its item fails with `why`.

        A thread answers at once, with the item failed and what follows un-started, reports
        `Events.zombie` and starts nothing more. A task does the same, is cancelled, and is a zombie only
        if it has not ended within the recipe's grace. A process is terminated, after the grace killed,
        and reports `Events.died`.
        """

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Close what was opened once the running call has ended, and end."""

    async def join(self, timeout_s: float) -> bool:
        """Wait until it has ended; whether it has."""


class Commits(Protocol):
    """What the worker of a `Sink` object does besides."""

    def commit(self) -> None:
        """Commit before the next job, with the state that ``Recipe.checkpoint`` has now; `Events.committed` follows."""


class Events(Protocol):
    """Where a worker reports, from any thread."""

    def ready(self, worker: Any) -> None:
        """It is open and takes jobs."""

    def broken(self, worker: Any, why: Raised) -> None:
        """It could not be opened, or its sink could not be committed or closed."""

    def answered(self, worker: Any, answer: Answer) -> None:
        """A job is done, or paused."""

    def died(self, worker: Any, why: Raised, answer: Answer | None, cursor: int | None) -> None:
        """Its process ended without being told to, or was killed for an `ItemTimeout` (then that is `why`).

        `answer` is for the job in hand: the outcomes that it had published (idempotent stages: none taken);
        `cursor`: the offset in that job of the call that ran, None if none did. Jobs that it had not begun
        are not answered for.
        """

    def committed(self, worker: Any, spent: Spent) -> None:
        """Its sink has committed, as it was asked to."""

    def zombie(self, worker: Any, *, alive: bool) -> None:
        """The worker has a call that cannot be ended (`alive`): another has to take its place. Later: it ended."""


@dataclass(frozen=True)
class Recipe:
    """Everything a worker needs to make its own session; it travels to child processes by cloudpickle.

    A job ends at a failure whose exception is of the classes ``halts`` (True: any). ``timed``: the stage has a
    time limit, so the start of each call is published. ``states`` are those of a scan by key, shared by all
    workers of the stage in this process, as is ``common``. ``run`` is the name of the run. ``checkpoint`` is
    that of the run, where `fn` is a `Sink` object.
    """

    kind: str
    name: str
    fn: Any
    setup: Callable[[], Any] | None = None
    size: Callable[[Any], int] | None = None
    atomic: bool = False
    most_children: int = 1 << 20
    halts: bool | tuple[type[BaseException], ...] = False
    batched: bool = False
    per_member: bool = False
    grace: float = 1.0
    setup_timeout: float = 30.0
    idempotent: bool = False
    retry: Retry | None = None
    timed: bool = False
    initial: Any = None
    states: dict[Any, Any] = field(default_factory=dict)
    run: str = "run"
    common: Common = field(default_factory=Common)
    checkpoint: Checkpoint | None = None

    @property
    def is_sink(self) -> bool:
        """Whether `fn` is an object with the methods of `Sink`, not a function."""
        return self.kind == "sink" and not callable(self.fn)

    @property
    def asynchronous(self) -> bool:
        """Whether its calls need an event loop."""
        if self.is_sink:
            return any(is_async(getattr(self.fn, name)) for name in ("open", "write", "commit", "close"))
        return is_async(self.fn)


def late_setup(limit_s: float) -> Raised:
    """What to report as broken where a set-up is not over within its limit."""
    return raised(TimeoutError(f"it took longer than setup_timeout={limit_s:g} s"))


class Session:
    """A function with its set-up, opened, used and closed where the worker runs.

    Its methods are coroutines that wait only if the function or set-up does (see `call.drive`).
    """

    def __init__(self, recipe: Recipe, cpu_clock: Callable[[], float] | None) -> None:
        self._recipe = recipe
        self._cpu_clock = cpu_clock
        setup = recipe.setup
        self._resource: Resource | SharedResource | None = None
        if setup is not None:
            self._resource = recipe.common.make(setup) if isinstance(setup, Shared) else Resource(setup)

    @property
    def asynchronous(self) -> bool:
        """Whether an event loop is needed."""
        made = self._resource.made if self._resource is not None else None
        return self._recipe.asynchronous or hasattr(made, "__aenter__") or inspect.isawaitable(made)

    async def open(self) -> None:
        """Enter the set-up, open the sink. Raises what they raise."""
        recipe, fn, resource = self._recipe, self._recipe.fn, self._resource
        if recipe.is_sink:
            await settled(fn.open(await recipe.checkpoint.load(fn) if recipe.checkpoint is not None else None))
            fn = fn.write
        if resource is not None:
            try:
                entered = await resource.enter()
            except BaseException as error:
                await resource.leave(error)
                raise
            fn = _with_resource(fn, entered, scans=recipe.kind == "scan")
        self._caller = Caller(
            recipe.kind, fn, size=recipe.size, atomic=recipe.atomic, most_children=recipe.most_children,
            writes=recipe.is_sink and (recipe.per_member or not recipe.batched), per_member=recipe.per_member, halts=recipe.halts, retry=recipe.retry,
            timed=recipe.timed, initial=recipe.initial, states=recipe.states, run=recipe.run,
            clock=perf_counter, cpu_clock=self._cpu_clock,
        )  # fmt: skip

    async def run(self, job: Job, cell: Cell) -> Answer:
        """Run a job."""
        return await self._caller.run(job, cell)

    async def commit(self) -> Spent:
        """Commit the sink."""
        checkpoint, cpu_clock = self._recipe.checkpoint, self._cpu_clock or float
        started, cpu = perf_counter(), cpu_clock()
        await settled(self._recipe.fn.commit(dict(checkpoint.current) if checkpoint is not None else {}))
        return Spent(started, perf_counter(), cpu_clock() - cpu)

    async def close(self, error: BaseException | None, *, commit: bool) -> None:
        """Close paused generators, commit and close the sink, leave the set-up. Raises the first error of these."""
        first: BaseException | None = None
        if hasattr(self, "_caller"):
            await self._caller.close()
            if self._recipe.is_sink:
                try:
                    if commit:
                        await self.commit()
                except BaseException as failed:
                    first = error = raised(failed).error
                try:
                    await settled(self._recipe.fn.close(error))
                except BaseException as failed:
                    first = first or failed
        if self._resource is not None:
            try:
                await self._resource.leave(error)
            except BaseException as failed:
                first = first or failed
        if first is not None:
            raise first


def _with_resource(fn: Callable[..., Any], resource: Any, *, scans: bool) -> Callable[..., Any]:
    """`fn` with its set-up's result as last argument."""
    if scans and not is_async(fn):
        return lambda state, value: fn(state, value, resource)
    if not is_async(fn):
        return lambda value: fn(value, resource)
    if inspect.isasyncgenfunction(fn):

        async def generate(value: Any) -> Any:
            async for child in fn(value, resource):
                yield child

        return generate

    async def call(*values: Any) -> Any:
        return await fn(*values, resource)

    return call
