"""When the sink of a run commits, and what stands in the checkpoint then.

A commit has to speak of exactly what the sink was given until then. So when one is due the sink gets
no more jobs until those in its hands are answered for; the state of the engine is then that of the sink. It
costs one way to the sink and back a second, and the stages before it go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from headway.core.engine import Engine
from headway.core.stage import Slot
from headway.core.ticket import Job
from headway.errors import CheckpointError
from headway.run.checkpoint import Checkpoint
from headway.run.source import Reader
from headway.run.worker import Spent

COMMIT_S = 1.0
"""What has been written waits about this long for its commit."""


def commits(engine: Engine) -> Slot | None:
    """The slot of the sink that commits; None where the sink is a function, or a consumer."""
    last = engine.stages[-1]
    return last.slots[0] if last.spec.kind == "sink" and not callable(last.spec.fn) else None


def count(slot: Slot, spent: Spent) -> None:
    """Count a commit as work of the sink's slot, which had nothing in hand or a job on its way to it meanwhile."""
    meter, began = slot.stage.meter, spent.stopped
    if slot.tickets:
        meter.spans["overhead"] += max(0.0, spent.started - slot.mark)
        began, slot.mark = min(max(slot.mark, spent.started), spent.stopped), max(slot.mark, spent.stopped)
    meter.spans[meter.idle_state] -= began - spent.started
    meter.spans["busy"] += spent.stopped - spent.started
    meter.cpu += spent.cpu


class Commits:
    """Keeps back the sink's jobs while a commit is due, has it committed, and saves the checkpoint after it.

    `worker` gives that of a slot, `post` has a call run on the loop, `failed` gets why the checkpoint could not be saved.
    """

    def __init__(
        self,
        engine: Engine,
        checkpoint: Checkpoint,
        worker: Callable[[Slot], Any],
        post: Callable[..., None],
        failed: Callable[[CheckpointError], None],
    ) -> None:
        self._engine, self._checkpoint, self._worker_of, self._post = engine, checkpoint, worker, post
        self._failed = failed
        self._slot = commits(engine)
        self._kept_back: deque[Job] = deque()
        self._due = False
        self._saving: asyncio.Future[None] | None = None
        self._asked: Any = None
        self._state: dict[str, Any] = {}
        self._at = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: Reader | None = None

    def begin(self, reader: Reader) -> None:
        """Look every COMMIT_S seconds, where there is something to commit or to save."""
        self._reader = reader
        self._wait()

    def _wait(self) -> None:
        if self._slot is not None or self._checkpoint.store is not None:
            self._timer = asyncio.get_running_loop().call_later(COMMIT_S, self._post, self._tick)

    def _tick(self) -> None:
        if self._engine.finished:
            return
        under_way = self._saving is not None or (self._asked is not None and self._asked is self._worker_of(self._slot))  # type: ignore[arg-type]
        if not under_way and self._moved != self._at:
            self._due = True
        self._wait()

    @property
    def _moved(self) -> int:
        fates = self._engine.fates
        return self._engine.times.emitted_roots + fates.written + fates.dead

    def keeps_back(self, slot: Slot, job: Job) -> bool:
        """Whether the sink is to commit before it gets `job`, which it will get then."""
        if not (self._due and slot is self._slot):
            return False
        self._kept_back.append(job)
        return True

    def take_back(self, ticket: int) -> bool:
        """Whether the job of `ticket` was kept back; it will not be given out any more."""
        found = [job for job in self._kept_back if job.ticket == ticket]
        for job in found:
            self._kept_back.remove(job)
        return bool(found)

    @property
    def settled(self) -> bool:
        """Whether everything that the sink was given is answered for."""
        return self._slot is None or len(self._slot.tickets) == len(self._kept_back)

    def look(self) -> None:
        """Commit if that is due and can be."""
        if not (self._due and self.settled):
            return
        self._due = False
        self._at = self._moved
        kept = self._take()
        if self._slot is None:
            if kept:
                self._save()
            return
        worker = self._worker_of(self._slot)
        if kept:
            self._asked, self._state = worker, self._checkpoint.current
            worker.commit()
        while self._kept_back:
            worker.submit(self._kept_back.popleft())

    def _take(self, *, finished: bool = False) -> bool:
        marks = self._reader.marks if self._reader is not None else deque[tuple[int, Any]]()
        try:
            return self._checkpoint.take(self._engine, marks, finished=finished)
        except CheckpointError as error:
            self._failed(error)
            return False

    def committed(self, worker: Any, spent: Spent) -> None:
        """The sink has committed."""
        if self._slot is not None:
            count(self._slot, spent)
        if worker is self._asked:
            self._asked = None
            if self._checkpoint.store is not None:
                self._save()

    def _save(self) -> None:
        """Write the checkpoint, beside the loop."""
        state = self._state if self._slot is not None else self._checkpoint.current
        self._saving = asyncio.get_running_loop().run_in_executor(None, self._checkpoint.save, state)
        self._saving.add_done_callback(lambda _: self._post(self._saved))

    def _saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None and not saving.cancelled() and isinstance(error := saving.exception(), CheckpointError):
            self._failed(error)

    async def end(self, commit: bool, *, done: bool) -> bool:
        """No more looks: note where the run ends, if it may `commit` then; whether it may."""
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            await asyncio.wait([self._saving])
        if self._checkpoint.job is None:
            self._take(finished=done)
            return commit
        # What a sink was given after the engine had ended is in its transaction, and nobody knows of it.
        return commit and self.settled and not self._checkpoint.already_finished and self._take(finished=done)

    def save(self) -> None:
        """The sink has ended and closed: keep where it stands."""
        try:
            self._checkpoint.save(self._checkpoint.current)
        except CheckpointError as error:
            self._failed(error)
