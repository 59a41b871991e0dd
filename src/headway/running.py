"""A run as its owner holds it: started, iterated, stopped, waited for, reported.

What a pipeline is stands in pipeline.py; how a run is driven in run/.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import Any, Generic, Self, TypeVar

from headway.core.plan import Plan
from headway.errors import Failure, HeadwayError, RunError, raise_clean
from headway.how import How
from headway.io.deadletter import Letters
from headway.page import Page
from headway.resuming import effect
from headway.run.checkpoint import Checkpoint
from headway.run.driver import Driver, Mode
from headway.run.loop import run_on_own_loop
from headway.run.outlet import Discard, LoopOutlet, ThreadOutlet
from headway.run.recording import RecordingDriver
from headway.run.source import open_rows
from headway.run.stop import SignalStops, Terminated
from headway.studying import Studying
from headway.watch.plan import Plan as ShownPlan
from headway.watch.progress import Progress
from headway.watch.recorder import Recorder
from headway.watch.report import Report, make_report, undisturbed

T = TypeVar("T")

_inside: contextvars.ContextVar[Any] = contextvars.ContextVar("headway_run", default=None)


class Run(Studying, Generic[T]):
    """A run of a pipeline. Made by `Pipeline.open` and `Pipeline.start`.

    In a `with` block it runs on a loop in a thread of its own, in an `async with` block on the
    caller's loop. Iterating gives the outputs; when the block ends, everything is gone: workers,
    threads, processes, the source. `drain`, `cancel` and `abort` ask and return at once, from
    anywhere, and do nothing on a run that has ended.
    """

    def __init__(self, plan: Plan, source: Any, name: str, how: How, size: Any, packed: dict[str, bytes]) -> None:
        super().__init__(plan, how)
        self._plan, self._source, self._name, self._how = plan, source, name, how
        self._size, self._packed = size, packed
        self._driver: Driver | None = None
        self._outlet: Any = None
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None
        self._checkpoint = Checkpoint()
        self._letters = Letters(how.dead_letters)
        self.page: Page | None = None
        self._shows: list[Any] = []
        self._recorder = Recorder(how.trace, name, perf_counter()) if how.trace else None
        self.shown: Callable[[Report], Report] = lambda report: report
        """How its page shows a report of it: as it is, or in the units of what it is part of."""
        self._iterated = False
        self._sink = plan.stages[-1].spec.kind != "consume"

    # ---- starting

    def _make(self, outlet: Any) -> Driver:
        if self._driver is not None:
            raise HeadwayError("this run has been started already; a `with` block is for what `pipeline.open()` gives")
        self._outlet = outlet
        rows = open_rows(self._source)
        self._checkpoint = self._how.make_checkpoint(self._plan, rows, self._name, self._letters, self._close_files)
        notes: list[Any] = [self._recorder] if self._recorder is not None else []
        self.page = self._how.make_page(self, rows, self._close_files)
        if self.page is not None:
            notes.append(self.page.notes)
        made = RecordingDriver if notes else Driver
        self._driver = made(
            self._plan, rows, outlet=outlet, set_aside=self._set_aside, size=self._size,
            drain_timeout_s=self._how.drain_timeout, stall_after_s=self._how.stall_after, target_rate=self._how.target_rate, packed=self._packed,
            checkpoint=self._checkpoint,
        )  # fmt: skip
        if isinstance(self._driver, RecordingDriver):
            self._driver.notes = tuple(notes)
        self._study_aside()
        return self._driver

    def _set_aside(self, failure: Failure) -> str | None:
        if self.page is not None:
            self.page.set_aside(failure)
        return self._letters.take(failure)

    def start_thread(self, outlet: Any) -> Self:
        """Run on a loop of its own."""
        self._start_thread(self._make(outlet))
        return self

    def _start_thread(self, driver: Driver) -> None:
        self._begin_showing()
        outlet = self._outlet
        context = contextvars.copy_context()
        context.run(_inside.set, self)

        def main() -> None:
            try:
                run_on_own_loop(driver.run())
            except BaseException as error:  # a defect of ours: it is raised where the run is waited for
                self._crash = error
                outlet.stop(None, commit=False)
            finally:
                self._end_showing()

        self._thread = threading.Thread(target=context.run, args=(main,), name=f"headway-{self._name}", daemon=True)
        self._thread.start()

    def start_task(self, outlet: Any) -> Self:
        """Run on the running loop."""
        driver = self._make(outlet)
        self._begin_showing()
        context = contextvars.copy_context()
        context.run(_inside.set, self)
        main = self._run_task(driver)
        self._task = asyncio.get_running_loop().create_task(main, name=f"headway-{self._name}", context=context)
        return self

    async def _run_task(self, driver: Driver) -> None:
        try:
            await driver.run()
        finally:
            if self._shows:
                await asyncio.to_thread(self._end_showing)

    def _begin_showing(self) -> None:
        if self.page is not None:
            self._shows.append(self.page)
        if self._how.progress:
            self._shows.append(Progress(self._how.progress, lambda: self.snapshot().figures(), self._how.total))
        for show in self._shows:
            show.begin()

    def _end_showing(self) -> None:
        for show in self._shows:
            show.close()

    def __enter__(self) -> Self:
        return self.start_thread(Discard() if self._sink else ThreadOutlet())

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        left = self._leave(error)
        self._join()
        self._close_files()
        self._raise_leaving(error, left)

    async def __aenter__(self) -> Self:
        return self.start_task(Discard() if self._sink else LoopOutlet())

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        left = self._leave(error)
        if self._task is not None:
            await self._task
        self._close_files()
        self._raise_leaving(error, left)

    def _leave(self, error: BaseException | None) -> bool:
        """The block ends. A consumer that goes early, or any error, means that what is left is not wanted."""
        left = (error is not None or not self._sink) and not self.ended
        if left:
            self.cancel()
            if isinstance(self._outlet, ThreadOutlet | LoopOutlet):
                self._outlet.answer()
        return left

    def _raise_leaving(self, error: BaseException | None, left: bool) -> None:
        """Of a run that was left, items may have failed that nobody asked for; what could not be closed is told."""
        if error is None and left and self.driver.unclosed:
            raise_clean(self._with_report(self.driver.unclosed[0]))
        if error is None and not left and not self._iterated:
            self._raise()

    # ---- iterating

    def __iter__(self) -> Iterator[T]:
        self._begin_iteration(ThreadOutlet, "with")
        return self._values()

    def _values(self) -> Iterator[T]:
        hand: list[T] = []  # emptied as it is given: the consumer's reference shall be the only one
        while True:
            try:
                hand.append(self._outlet.take())
            except IndexError:
                break
            yield hand.pop()
        self._join()
        self._close_files()
        self._raise()

    def __aiter__(self) -> AsyncIterator[T]:
        self._begin_iteration(LoopOutlet, "async with")
        return self._avalues()

    async def _avalues(self) -> AsyncIterator[T]:
        hand: list[T] = []
        while True:
            try:
                hand.append(await self._outlet.take())
            except IndexError:
                break
            yield hand.pop()
        if self._task is not None:
            await self._task
        self._close_files()
        self._raise()

    def _begin_iteration(self, kind: type, form: str) -> None:
        if self._sink:
            raise HeadwayError("this pipeline ends in a sink: it has no outputs to iterate; use .run()")
        if not isinstance(self._outlet, kind):
            raise HeadwayError(f"iterate this run inside `{form} pipeline.open() as run:`")
        if self._iterated:
            raise HeadwayError("this run was iterated before; run the pipeline again for its outputs")
        self._iterated = True

    # ---- stopping

    def drain(self, timeout: float | None = None) -> None:
        """Read nothing more and finish what was read, for at most `timeout` seconds (None: `drain_timeout`)."""
        self._ask("drain", timeout)

    def cancel(self, timeout: float = 0) -> None:
        """Start nothing more; running calls have `timeout` seconds."""
        self._ask("cancel", timeout)

    def abort(self) -> None:
        """End now; only what the sink has committed stands."""
        self._ask("abort", 0.0)

    def scale(self, stage: str, workers: int) -> None:
        """From now on `stage` has so many workers; order is kept. Raises PlanError for what cannot be.

        New workers start at once; those that go end what they have in hand first. Returns at once, from anywhere.
        """
        if self._driver is not None and not self.ended:
            self._driver.scale(stage, workers)

    def _ask(self, mode: Mode, timeout: float | None) -> None:
        if self._driver is not None and not self.ended:
            self._driver.ask(mode, timeout)

    # ---- waiting

    @property
    def ended(self) -> bool:
        """Whether the run is over and everything of it closed."""
        if self._thread is not None:
            return not self._thread.is_alive()
        return self._task is not None and self._task.done()

    def wait(self) -> Report:
        """Wait for the end. Returns the report, or raises why the run failed."""
        self._refuse_inside()
        if self._thread is None:
            raise HeadwayError("this run is on an event loop: use `await run.wait_async()`")
        self._join()
        self._close_files()
        self._raise()
        return self.report

    async def wait_async(self) -> Report:
        """As `wait`, without blocking the caller's loop."""
        self._refuse_inside()
        if self._task is not None:
            await asyncio.shield(self._task)
        else:
            while not self.ended:  # noqa: ASYNC110 - the run is on another thread, which may end at any time
                await asyncio.sleep(0.005)
        self._close_files()
        self._raise()
        return self.report

    def run_to_end(self, outlet: Any, *, signals: bool) -> Report:
        """Start and wait, with signals as asked; `signals`: whether they stop it where nobody says."""
        how = self._how
        wanted = signals if how.handle_signals is None else how.handle_signals
        driver = self._make(outlet)
        with SignalStops(lambda mode: self._ask(mode, None), wanted=wanted) as stops:
            try:
                self._start_thread(driver)
                while not self.ended:
                    self._join(0.1)
            except BaseException:
                self.cancel()
                self._join()
                raise
            finally:
                self._close_files()
        self._raise_stopped(stops.first)
        return self.report

    async def run_to_end_async(self) -> Report:
        """The same on the caller's loop; signals only if `handle_signals` is true."""
        how = self._how
        assert self._task is not None
        with SignalStops(lambda mode: self._ask(mode, None), wanted=bool(how.handle_signals)) as stops:
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError:
                self._task.cancel()
                await asyncio.wait([self._task])
                raise
            finally:
                self._close_files()
        self._raise_stopped(stops.first)
        return self.report

    def _join(self, timeout: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _close_files(self) -> None:
        self._end_study()
        self._letters.close()
        self._checkpoint.close()
        if self._recorder is not None:
            self._recorder.close()

    def _refuse_inside(self) -> None:
        if _inside.get() is self:
            raise HeadwayError("a stage cannot wait for its own run: it would wait for itself")

    # ---- the outcome

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._name

    @property
    def plan(self) -> ShownPlan:
        """What runs and why."""
        return ShownPlan(self.driver.engine.plan, effect(self._plan))

    @property
    def state(self) -> str:
        """Where it stands: running, draining, done, drained, cancelled or failed."""
        engine = self.driver.engine
        if self.driver.errors or engine.state == "failed":
            return "failed"
        return engine.state if engine.finished or engine.state == "running" else "draining"

    @property
    def driver(self) -> Driver:
        """What drives the run. Raises HeadwayError before it was started."""
        if self._driver is None:
            raise HeadwayError("this run has not been started: use it in a `with` or `async with` block")
        return self._driver

    def snapshot(self) -> Report:
        """The report as it stands now, from any thread."""
        return undisturbed(
            lambda: make_report(
                self.driver.engine, self._name, perf_counter(),
                dead_letters=self._letters.kept, states=self.driver.states(), job=self._checkpoint.told(),
                trace=str(self._recorder.path) if self._recorder is not None else None, notes=self._notes, loop=self.driver.loop_time.spent(),
            )
        )  # fmt: skip

    @property
    def report(self) -> Report:
        """The report so far; the final one when the run has ended."""
        return self.snapshot()

    def _raise_stopped(self, number: int | None) -> None:
        error = self.driver.error()
        interrupted = number is not None and self.driver.engine.state in ("drained", "cancelled")
        if not interrupted or error is not None:
            self._raise()
            return
        if number == signal.SIGINT:
            stopped: BaseException = KeyboardInterrupt(self.report.summary)
            stopped.report = self.report  # type: ignore[attr-defined]
            raise stopped
        raise self._with_report(Terminated(f"stopped by SIGTERM: {self.report.summary}"))

    def _with_report(self, error: BaseException) -> BaseException:
        if isinstance(error, RunError):
            error.report = self.report
        return error

    def _raise(self) -> None:
        if self._crash is not None:
            raise self._crash
        error = self.driver.error()
        if error is not None:
            raise_clean(self._with_report(error))
        if self._driver is not None and self._driver.aborted:
            raise_clean(self._with_report(RunError(f"the run was aborted: {self.report.summary}")))
