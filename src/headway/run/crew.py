"""The workers of a run: one at each slot, those that leave, and those left to a call that does not end."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

from headway.core.plan import StagePlan
from headway.core.stage import Slot, Stage
from headway.run.checkpoint import Checkpoint
from headway.run.task import TaskWorker
from headway.run.thread import ThreadWorker
from headway.run.worker import Events, Recipe, Worker, late_setup

LEFT_BEHIND_S = 1.0
"""How long the end of a run waits for a call that was given up."""
PATIENT_S = 24 * 3600.0
"""How long it waits for set-ups and sinks to close."""


def recipe_of(
    stage: StagePlan,
    size: Callable[[Any], int] | None,
    budget: int,
    run: str = "run",
    checkpoint: Checkpoint | None = None,
) -> Recipe:
    """What a worker of `stage` needs."""
    spec = stage.spec
    return Recipe(
        spec.kind, spec.name, spec.fn, spec.setup, size, spec.atomic, budget,
        halts=stage.halts, batched=stage.batched, per_member=stage.per_member, grace=spec.grace, setup_timeout=spec.setup_timeout,
        idempotent=spec.idempotent, retry=spec.retry, timed=spec.timeout is not None or spec.deadline is not None,
        initial=spec.initial, run=run, checkpoint=checkpoint if spec.kind == "sink" and not callable(spec.fn) else None,
    )  # fmt: skip


class Crew:
    """Makes, replaces, stops and joins workers. `outlet` serves the last stage if that is a consumer."""

    def __init__(
        self, events: Events, outlet: Any, packed: dict[str, bytes], recipe: Callable[[StagePlan], Recipe]
    ) -> None:
        self._events, self._outlet, self._packed, self._recipe = events, outlet, packed, recipe
        self._context = contextvars.copy_context()  # events come in the context of whoever posts them
        self._at: dict[Slot, Worker] = {}
        self._slots: dict[Any, Slot] = {}
        self._recipes: dict[int, Recipe] = {}
        self._warned: set[str] = set()
        self._told: set[str] = set()
        self._leaving: list[Worker] = []
        self._ready: set[Any] = set()
        self._setups: dict[Any, asyncio.TimerHandle] = {}
        self.zombies: list[Worker] = []
        """Those whose call cannot be ended."""

    def place(self, slot: Slot, start: Callable[[Worker], None]) -> None:
        """Put a worker at `slot`, in place of any other, and have it started."""
        if (old := self._at.get(slot)) is not None and old not in self.zombies:
            self._forget(old)
        worker = self._at[slot] = self._make(slot)
        self._slots[worker] = slot
        start(worker)
        spec = slot.stage.spec
        if spec.setup is not None and spec.on in ("task", "thread"):  # a process counts from when it has started
            loop = asyncio.get_running_loop()
            self._setups[worker] = loop.call_later(spec.setup_timeout, self._give_up_setup, worker, spec.setup_timeout)

    def _give_up_setup(self, worker: Worker, limit_s: float) -> None:
        if self._setups.pop(worker, None) is not None and self.slot_of(worker) is not None:
            self._events.broken(worker, late_setup(limit_s))

    def retire(self, slot: Slot) -> None:
        """End the worker of `slot`, without waiting for it."""
        worker = self._at.pop(slot)
        self._leaving.append(worker)
        worker.stop(None, commit=False)

    def bury(self, worker: Worker) -> None:
        """A zombie has ended after all."""
        if worker in self.zombies:
            self.zombies.remove(worker)
            self._forget(worker)

    def zombies_of(self, stage: Stage) -> list[Worker]:
        """Those of `stage`."""
        return [worker for worker in self.zombies if self._slots[worker].stage is stage]

    def warn(self, slot: Slot) -> None:
        """Say once for each stage what a call that was given up may still do."""
        name = slot.stage.spec.name
        if name not in self._told:
            self._told.add(name)
            warnings.warn(
                f"stage {name!r}: a call was given up at its time limit and does not end; it goes on beside the run, "
                "and what it does may still take effect",
                RuntimeWarning,
                stacklevel=2,
            )

    def _forget(self, worker: Worker) -> None:
        self._slots.pop(worker, None)
        self._ready.discard(worker)

    def at(self, slot: Slot) -> Worker:
        """The worker of `slot`."""
        return self._at[slot]

    def slot_of(self, worker: Any) -> Slot | None:
        """Where `worker` is or was; None of one that has been replaced."""
        return self._slots.get(worker)

    def open(self, worker: Any) -> bool:
        """`worker` is ready; whether all are."""
        self._ready.add(worker)
        if (timer := self._setups.pop(worker, None)) is not None:
            timer.cancel()
        return all(each in self._ready for each in self._at.values())

    def is_open(self, worker: Any) -> bool:
        """Whether `worker` has been ready."""
        return worker in self._ready

    def __iter__(self) -> Iterator[tuple[Slot, Worker]]:
        yield from list(self._at.items())

    def states(self, stage: Stage) -> dict[Any, Any]:
        """The states of a scan by key, as far as they are in this process."""
        return self._recipe_of(stage).states

    def _recipe_of(self, stage: Stage) -> Recipe:
        if stage.index not in self._recipes:
            self._recipes[stage.index] = self._recipe(stage.plan)
        return self._recipes[stage.index]

    def _make(self, slot: Slot) -> Worker:
        spec = slot.stage.spec
        name = f"headway-{spec.name}-{slot.number}"
        if spec.kind == "consume":
            self._outlet.events = self._events
            outlet: Worker = self._outlet
            return outlet
        recipe, events, context = self._recipe_of(slot.stage), self._events, self._context.copy()
        if spec.on == "process":
            from headway.run.process import ProcessWorker

            return ProcessWorker(recipe, self._packed[spec.name], events, name)
        if isinstance(spec.on, Executor):
            from headway.run.executor import ExecutorWorker

            return ExecutorWorker(recipe, self._packed.get(spec.name), events, name, spec.on, context)
        if spec.on == "task":
            return TaskWorker(recipe, events, name, self._warned, context)
        return ThreadWorker(recipe, events, name, context)

    async def close(
        self, error: BaseException | None, *, commit: bool, aborted: bool, left_s: float, hurry: asyncio.Event
    ) -> list[str]:
        """Stop all and wait. Calls that were given up have `left_s` seconds; names what is left behind.

        Set-ups and sinks may take their time to close, until `hurry` is set.
        """
        for timer in self._setups.values():
            timer.cancel()
        here = [(slot, worker) for slot, worker in self._at.items() if worker not in self.zombies]
        workers = [*(worker for _, worker in here), *self._leaving]
        for worker in workers:
            if worker not in self._leaving:
                worker.stop(error, commit=commit)
        given_up = [worker for slot, worker in here if slot.tickets or aborted]
        ended = await asyncio.gather(*(worker.join(left_s) for worker in given_up))
        left = [worker for worker, has in zip(given_up, ended, strict=True) if not has]
        for worker in workers:
            if worker not in given_up:
                left += [] if await _joined(worker, hurry, left_s) else [worker]
        for worker in self.zombies:
            worker.stop(error, commit=False)
            await worker.join(0.0)
        names = dict.fromkeys(self._slots[worker].stage.spec.name for worker in left if worker in self._slots)
        return [f"a call of stage {name!r} does not return; it is left behind" for name in names]


async def _joined(worker: Worker, hurry: asyncio.Event, left_s: float) -> bool:
    """Wait for `worker` to end, from when on `hurry` is set for no more than `left_s` seconds; whether it has."""
    waiting = [asyncio.ensure_future(each) for each in (worker.join(PATIENT_S), hurry.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    ended = waiting[0].done()
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    return waiting[0].result() if ended else await worker.join(left_s)
