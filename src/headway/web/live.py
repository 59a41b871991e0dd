"""A run of this process as the page sees it. It is looked at four times a second, on the server's own loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from headway.errors import Failure, HeadwayError, PlanError
from headway.running import Run
from headway.watch.report import Report
from headway.watch.show import sentence
from headway.watch.timeline import Timeline
from headway.web.feed import Feed
from headway.web.shown import MOST_SPANS, Refused, detail, memory_bytes, told_dead, told_live

LOOK_S = 0.25
MOST_LETTERS = 1_000
"""Between two looks; all are counted, and all are where dead letters go."""
STATES = {"drained": "done"}


class LiveRun:
    """`begin` and `end` are called by whoever serves it; `watch` is a task on the server's loop until it has ended."""

    def __init__(self, run: Run[Any], name: str) -> None:
        self.id, self._run, self._name, self._started = name, run, run.name, time.time()
        self.notes = Timeline(keep=True)
        self.feed = Feed()
        self._dead: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def begin(self) -> None:
        """The engine is there."""
        engine = self._run.driver.engine
        self.notes.start = engine.times.started_at
        self.notes.hidden = {stage.spec.name for stage in engine.stages if stage.spec.kind == "consume"}

    def set_aside(self, failure: Failure) -> None:
        """An item became a dead letter; shown at the next look."""
        self.tell_letter(told_dead(failure))

    def tell_letter(self, letter: dict[str, Any]) -> None:
        """Show one at the next look; of very many at once the first ones."""
        with self._lock:
            if len(self._dead) < MOST_LETTERS:
                self._dead.append(letter)

    def end(self) -> None:
        """The run is over."""
        self._over.set()

    async def watch(self) -> None:
        """Publish what can be seen until the run is over."""
        at = 0.0
        while True:
            over = self._over.is_set()
            data = self._data()
            snapshot = {
                "t": data["elapsed"],
                "snapshot": _lean(data),
                "sentence": sentence(data),
                "memory_bytes": memory_bytes(),
            }
            with self._lock:
                dead, self._dead = self._dead, []
            self.feed.publish("snapshot", snapshot)
            self.notes.slots = self._slots()
            self.feed.publish("timeline", self.notes.between(at, data["elapsed"], MOST_SPANS))
            at = data["elapsed"]
            for letter in dead:
                self.feed.publish("dead", letter)
            if over:
                self.feed.end({"state": self.state, "snapshot": data})
                return
            for _ in range(5):
                await asyncio.sleep(LOOK_S / 5)
                if self._over.is_set():
                    break

    def _slots(self) -> dict[tuple[str, int], None]:
        """The slots that there are; those that have gone are drawn while they have calls to show."""
        return {
            (stage.spec.name, slot.number): None
            for stage in self._run.driver.engine.stages
            if stage.spec.name not in self.notes.hidden
            for slot in (*stage.slots, *stage.leaving)
        }

    def _report(self) -> Report:
        return self._run.shown(self._run.snapshot())

    def _data(self) -> dict[str, Any]:
        return told_live(self._report())

    @property
    def state(self) -> str:
        """Where it stands."""
        return STATES.get(self._run.state, self._run.state)

    def line(self) -> dict[str, Any]:
        """Its entry in the list of runs."""
        return {
            "id": self.id, "name": self._name, "state": self.state, "live": not self._over.is_set(),
            "started": self._started, "source": "live",
        }  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """All about it at this moment."""
        return detail(self.line(), self._run.plan.to_dict(), self._data(), controls=not self._over.is_set())

    def figures(self) -> dict[str, Any]:
        """What was measured."""
        return self._report().figures()

    def timeline(self) -> Timeline | None:
        """The last minute."""
        return self.notes

    def stop(self, mode: str) -> str:
        """Drain or cancel. Raises Refused once it is over."""
        if self._over.is_set() or self.state not in ("running", "draining"):
            raise Refused(409, "this run has ended")
        (self._run.drain if mode == "drain" else self._run.cancel)()
        return "draining" if mode == "drain" else "cancelled"

    def scale(self, stage: str, workers: int) -> None:
        """Change the number of workers. Raises Refused for what cannot be."""
        if self._over.is_set() or self.state not in ("running", "draining"):
            raise Refused(409, "this run has ended")
        try:
            self._run.scale(stage, workers)
        except PlanError as error:
            raise Refused(409, str(error)) from None

    async def study(self, stage: str, speedup: float, seconds: float) -> dict[str, Any]:
        """Study a stage. Raises Refused for what cannot be, and where the run ends first."""
        if self._over.is_set() or self.state != "running":
            raise Refused(409, "this run has ended")
        try:
            return (await self._run.study_async(stage, speedup, seconds)).to_dict()
        except HeadwayError as error:
            raise Refused(409, str(error)) from None


def _lean(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != "model"}
