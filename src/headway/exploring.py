"""One schedule of a pipeline, with the user's own functions, on a virtual clock.

A plain function runs whole at the end of its virtual interval, an async one step by step on a loop in
virtual time. How schedules are drawn, compared and shrunk is said in testing.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headway.call import drive
from headway.claim import Cell
from headway.core.plan import Plan
from headway.core.stage import Slot
from headway.core.ticket import Answer, Job
from headway.errors import PlanError
from headway.run.checkpoint import Checkpoint
from headway.run.crew import recipe_of
from headway.run.worker import Session
from headway.sim.driver import VirtualRun, _Running, _Worker
from headway.sim.loop import HeapLoop

Duration = Callable[[str, Any, int], float]
"""(stage, tag, number of the attempt) -> virtual seconds of the call."""

REAL = {
    "socket.connect": "a socket", "socket.bind": "a socket", "socket.getaddrinfo": "a socket",
    "subprocess.Popen": "a process", "os.system": "a process", "os.fork": "a process", "os.posix_spawn": "a process",
}  # fmt: skip
"""What is refused inside a stage: events of `sys.audit`."""

_watched: list[Explored] = []
_hooked: list[bool] = []


def _audit(event: str, _arguments: Any) -> None:
    if _watched and event in REAL and _watched[-1].within is not None:
        raise _watched[-1].refuse(REAL[event])


_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("headway_explored", default=None)
"""The stage whose async call the code is a step of."""


class Explored(VirtualRun):
    """A run whose calls take what `duration` says. ``refused``: what a stage used that is not there, if it did."""

    def __init__(self, plan: Plan, rows: Iterable[Any], duration: Duration, *, size: Any = None, seed: int = 0) -> None:
        super().__init__(plan, rows, seed=seed)
        self._lasts, self._bytes = duration, size
        self.inside: str | None = None
        self.refused: PlanError | None = None
        self.loop = HeapLoop(lambda: self.now, self.at, self.refuse)  # type: ignore[abstract]
        self._checkpoint = Checkpoint()
        self._sessions: list[Session] = []
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    @property
    def within(self) -> str | None:
        """The stage whose code runs."""
        return self.inside or _step.get()

    def refuse(self, what: str) -> PlanError:
        """The error for the use of something real in the stage that runs."""
        name = self.within
        self.refused = PlanError(
            f"stage {name!r} uses {what}, which has no virtual time: give a stand-in for what it calls, as in "
            f"fakes={{'module.name': replacement}}"
        )
        return self.refused

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Refuse sockets, threads and processes in what the stages call."""
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_audit)
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if self.within is not None and threading.get_ident() == here:
                raise self.refuse("a thread")
            start(thread)

        here = threading.get_ident()
        _watched.append(self)
        threading.Thread.start = refused  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            threading.Thread.start = start  # type: ignore[method-assign]
            _watched.remove(self)

    def run(self) -> Explored:
        """Run to the end, and close what was opened. Raises PlanError for something real inside a stage."""
        with self.watched():
            for stage in self.engine.stages:
                for slot in stage.slots:
                    self._worker(slot)
            super().run()
            self._checkpoint.take(self.engine, deque())
            for session in self._sessions:
                self._whole(session.close(None, commit=self.engine.state == "done"), session.asynchronous)
        if self.refused is not None:
            raise self.refused
        return self

    def _whole(self, coroutine: Any, asynchronous: bool) -> Any:
        return self.loop.finished(self.loop.create_task(coroutine), self.step) if asynchronous else drive(coroutine)

    def _worker(self, slot: Slot) -> _Worker:
        if slot in self._workers or slot.stage.spec.kind == "consume":
            return super()._worker(slot)
        self.inside = slot.stage.spec.name
        recipe = recipe_of(
            slot.stage.plan, self._bytes, self.engine.window.budget, self.engine.plan.spec.name, self._checkpoint
        )
        if slot.number and slot.stage.slots:
            first = self._workers.get(slot.stage.slots[0])
            recipe = first.recipe if first is not None and first.recipe is not None else recipe
        session = Session(recipe, None)
        self._whole(session.open(), session.asynchronous)
        self._sessions.append(session)
        self.states[slot.stage.spec.name] = recipe.states
        worker = self._workers[slot] = _Worker(session, recipe=recipe)
        self.inside = None
        return worker

    def _duration(self, slot: Slot, value: Any) -> float:
        return self._due

    def _time(self, slot: Slot, job: Job) -> _Running:
        name = slot.stage.spec.name
        self._due = self._lasts(name, job.tags[0] if job.tags else 0, job.attempt)
        return super()._time(slot, job)

    def _begin(self, slot: Slot) -> None:
        worker = self._worker(slot)
        if not (isinstance(worker.caller, Session) and worker.caller.asynchronous):
            super()._begin(slot)
            return
        if worker.running is not None or not worker.queue:
            return
        job = worker.queue.popleft()
        lasts = 0.0
        if not job.resumed:
            lasts = self._lasts(slot.stage.spec.name, job.tags[0] if job.tags else 0, job.attempt)
        running = worker.running = _Running(job, self.now, [])
        cell = Cell()
        coroutine = self._call(slot, worker, running, cell, lasts)
        task = self.loop.create_task(coroutine)
        self._tasks[job.ticket] = task
        limit = slot.stage.spec.timeout
        if limit is not None and not job.resumed:
            self.at(self.now + limit, self._out_of_time, slot, worker, running, task)

    async def _call(self, slot: Slot, worker: _Worker, running: _Running, cell: Cell, lasts: float) -> None:
        """A job of async calls. What it takes beside its own waiting lies before and behind it."""
        job, session = running.job, worker.caller
        assert isinstance(session, Session)
        if job.ticket in worker.recalled:
            cell.cut()
        _step.set(slot.stage.spec.name)
        await asyncio.sleep(lasts / 2)
        answer = await session.run(job, cell)
        await asyncio.sleep(lasts / 2)
        _step.set(None)
        self._answered(slot, worker, running, answer)

    def _out_of_time(self, slot: Slot, worker: _Worker, running: _Running, task: asyncio.Task[Any]) -> None:
        if worker.running is not running:
            return
        task.cancel()
        self._answered(slot, worker, running, self._give_up(slot, running.job, Answer(running.job.ticket, 0), 0))

    def _answered(self, slot: Slot, worker: _Worker, running: _Running, answer: Answer) -> None:
        if worker.running is not running:
            return
        worker.running = None
        self._tasks.pop(running.job.ticket, None)
        answer.started, answer.stopped = running.started, self.now
        for tag in running.job.tags[: answer.taken + answer.parked]:
            self.log.append((slot.stage.spec.name, slot.number, tag, running.started, self.now))
        if answer.halted:
            for queued in [q for q in worker.queue if not q.resumed]:
                worker.queue.remove(queued)
                self.at(self.now, self._answer_unstarted, queued.ticket)
        self.engine.done(running.job.ticket, answer, self.now)
        self._begin(slot)

    def _complete(self, slot: Slot, running: _Running) -> None:
        self.inside = slot.stage.spec.name if slot.stage.spec.kind != "consume" else None
        try:
            super()._complete(slot, running)
        finally:
            self.inside = None
