"""Drives one worker without an engine: what it reports is kept in order, and waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

from headway.core.ticket import Answer, Job
from headway.run.process import ProcessWorker, check_recipe
from headway.run.worker import Recipe

PATIENCE_S = 60.0


class Heard:
    """The events of a worker."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.events: list[tuple[Any, ...]] = []

    def _add(self, *event: Any) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def ready(self, worker: Any) -> None:
        self._add("ready")

    def broken(self, worker: Any, why: Any) -> None:
        self._add("broken", why)

    def answered(self, worker: Any, answer: Answer) -> None:
        self._add("answered", answer)

    def died(self, worker: Any, why: Any, answer: Answer | None, cursor: int | None) -> None:
        self._add("died", why, answer, cursor)

    def zombie(self, worker: Any, *, alive: bool) -> None:
        self._add("zombie", alive)

    def kinds(self) -> list[str]:
        return [event[0] for event in self.events]

    def wait(self, kind: str, count: int = 1) -> Any:
        """What came with the event number `count` of that kind, once it has come."""

        def found() -> list[tuple[Any, ...]]:
            return [event for event in self.events if event[0] == kind]

        with self._news:
            assert self._news.wait_for(lambda: len(found()) >= count, PATIENCE_S), self.events
        rest = found()[count - 1][1:]
        return rest[0] if len(rest) == 1 else rest


class Hands:
    """A process worker in its own context: it is open inside, and its child is gone after."""

    def __init__(self, fn: Any, kind: str = "map", *, opens: bool = True, **options: Any) -> None:
        recipe = Recipe(kind, "work", fn, **options)
        self.heard, self._opens = Heard(), opens
        self.worker = ProcessWorker(recipe, check_recipe(recipe), self.heard, "headway-work-0")

    def __enter__(self) -> Self:
        self.worker.start()
        if self._opens:
            self.heard.wait("ready")
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop(None, commit=True)
        assert asyncio.run(self.worker.join(PATIENCE_S))

    def submit(self, ticket: int, values: list[Any], **fields: Any) -> None:
        fields.setdefault("tags", list(range(100, 100 + len(values))))
        self.worker.submit(Job(ticket, values, **fields))


def reached(condition: Callable[[], Any]) -> Any:
    """What `condition` gives once that is true: for what another process publishes without telling."""
    wait = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        value = condition()
        if value:
            return value
        wait.wait(0.005)
    raise AssertionError("it never came to that")
