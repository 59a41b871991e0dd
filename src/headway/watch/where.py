"""Where an item is at this moment, and since when it is under way. Looks through the engine and moves nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.block import Block, Position
from headway.core.engine import Engine
from headway.core.stage import Stage


def find(engine: Engine, at: Position) -> tuple[str, float] | None:
    """The place of the item at the position `at` in words, and when it was born; None if it is not under way."""
    for stage in engine.stages:
        found = _in_slots(stage, at) or _in_front(stage, at)
        if found is not None:
            return found
    return None


def _in_slots(stage: Stage, at: Position) -> tuple[str, float] | None:
    name = stage.spec.name
    for slot in (*stage.slots, *stage.leaving):
        for place, ticket in enumerate(slot.tickets):
            for block in ticket.blocks:
                if block.covers(at):
                    if stage.spec.kind == "consume":
                        return "with the consumer", block.born
                    waits = f", {place} blocks behind" if place else ""
                    return f"slot {slot.number} of {name}, attempt {block.attempt}{waits}", block.born
    for ticket in stage.parked:
        if ticket.blocks[0].covers(at):
            return f"parked in slot {ticket.slot.number} of {name}", ticket.blocks[0].born
    return None


def _in_front(stage: Stage, at: Position) -> tuple[str, float] | None:
    name = stage.spec.name
    if (block := _covering(stage.inbox.all(), at)) is not None:
        waits = "waits for its key" if stage.plan.lanes and not stage.inbox.free else "queued"
        return f"{waits} in front of {name}", block.born
    if (block := _covering((entry[2] for entry in stage.backoff), at)) is not None:
        return f"waits for attempt {block.attempt} of {name}", block.born
    for gate in stage.gates:
        if (block := _covering(gate.held(), at)) is not None:
            return f"re-sequencer before {name}", block.born
    for batcher in stage.batchers:
        if any(lo <= at < hi for lo, hi in batcher.spans):
            return f"open batch before {name}", min((born for born, _ in batcher.births), default=0.0)
    return None


def _covering(blocks: Iterable[Block], at: Position) -> Block | None:
    return next((block for block in blocks if block.covers(at)), None)
