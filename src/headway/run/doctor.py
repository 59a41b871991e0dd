"""Tells a run that hangs from one that waits: silence is an error, waiting for the source or the consumer is not."""

from __future__ import annotations

from headway.core.block import Tag
from headway.core.engine import Engine
from headway.core.stage import Slot
from headway.core.ticket import Ticket
from headway.errors import StallError
from headway.run.crew import Crew
from headway.run.worker import Worker

STACK_S = 1.0
"""How long another process has to say where it is."""


class Doctor:
    """Looks for calls that do not end while nothing else moves, for `stall_after_s` seconds."""

    def __init__(self, stall_after_s: float, engine: Engine, crew: Crew) -> None:
        self._limit_s, self._engine, self._crew = stall_after_s, engine, crew
        self._moved: float | None = None
        self._books: tuple[int, ...] = ()
        self._calls: dict[Worker, tuple[tuple[int, int, int], float]] = {}

    @property
    def every_s(self) -> float:
        """Seconds between two looks."""
        return min(1.0, self._limit_s / 4)

    def look(self, now: float) -> StallError | None:
        """The error if the run has stalled.

        Moving is: a row read, an item settled or emitted, a call begun. A consumer with a value in hand
        may take its time, and so may everything when no call is in hand.
        """
        calls, books = self._in_hand(now), self._balance()
        consuming = any(s.tickets for stage in self._engine.stages if stage.spec.kind == "consume" for s in stage.slots)
        if self._moved is None or books != self._books or consuming or not calls:
            self._moved, self._books = now, books
        began = max((since for _, since in calls.values()), default=now)
        self._calls = calls
        if now - max(self._moved, began) < self._limit_s:
            return None
        return self._stall(now)

    def _balance(self) -> tuple[int, ...]:
        engine = self._engine
        settled = [
            m for stage in engine.stages for m in (stage.meter.items_in, stage.meter.items_out, stage.meter.retries)
        ]
        return engine.fates.read, engine.times.emitted_roots, *settled

    def _in_hand(self, now: float) -> dict[Worker, tuple[tuple[int, int, int], float]]:
        """The calls that run: where, and since which look."""
        calls = {}
        for slot, worker in self._crew:
            where = worker.where() if slot.tickets and slot.stage.spec.kind != "consume" else None
            if where is not None and any(ticket.number == where[0] for ticket in slot.tickets):
                before = self._calls.get(worker)
                calls[worker] = before if before is not None and before[0] == where else (where, now)
        return calls

    def _stall(self, now: float) -> StallError:
        """The error for the call of the smallest tag."""
        found = []
        for worker, ((number, offset, _), since) in self._calls.items():
            slot = self._crew.slot_of(worker)
            ticket = next((t for t in slot.tickets if t.number == number), None) if slot is not None else None
            if slot is not None and ticket is not None:
                found.append((_order(_tag(ticket, offset)), slot, worker, ticket, _tag(ticket, offset), now - since))
        _, slot, worker, ticket, tag, age = min(found, key=lambda each: each[0])
        error = StallError(
            f"nothing has moved for {self._limit_s:g} s (stall_after): "
            + _told(slot, worker, tag, ticket.attempt, age)
            + "; give the stage a timeout=, or the run a longer stall_after="
            + where_text(worker)
        )
        error.stage, error.seq, error.age = slot.stage.spec.name, tag, age
        return error


def wedged(slot: Slot, zombies: list[Worker]) -> StallError:
    """The error for a stage in which more calls cannot be ended than it has workers."""
    name = slot.stage.spec.name
    error = StallError(
        f"stage {name!r} is wedged: {len(zombies)} calls were given up and none of them has ended; "
        "each goes on beside the run and holds what it has" + "".join(where_text(worker) for worker in zombies)
    )
    error.stage = name
    return error


def where_text(worker: Worker) -> str:
    """The stack of a worker's call, to be put behind a sentence."""
    stack = worker.stack(STACK_S)
    return f"\n{worker.name} is at\n{stack.rstrip()}" if stack else ""


def _told(slot: Slot, worker: Worker, tag: Tag, attempt: int, age: float) -> str:
    call = f"the call of stage {slot.stage.spec.name!r} for item {tag}"
    return f"{call}, attempt {attempt}, on {worker.name}, has run for {age:.1f} s"


def _order(tag: Tag) -> tuple[int, ...]:
    return (tag,) if isinstance(tag, int) else tag


def _tag(ticket: Ticket, offset: int) -> Tag:
    tags = [tag for block in ticket.blocks for tag in block.tags]
    return tags[min(offset, len(tags) - 1)]
