"""R17: what a caller set is seen in its stages, an item's changes are its own, and records of processes come home once."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from acceptance.scenario import MODES, one_stage
from headway import current_item

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """A handler of the root that keeps what it gets."""
    handler, root = Kept(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_variable_of_the_caller_is_seen_and_a_change_is_not_seen_by_another_item(mode):
    def look(value: int) -> str:
        seen = caller.get()
        caller.set(f"item {value}")
        return seen

    async def look_async(value: int) -> str:
        return look(value)

    token = caller.set("me")
    try:
        assert one_stage(range(200), look_async if mode == "task" else look, mode).collect() == ["me"] * 200
        assert caller.get() == "me"
    finally:
        caller.reset(token)


def test_a_record_of_a_process_reaches_the_handlers_here_once_with_stage_and_seq(kept):
    def warn(value: int) -> int:
        logging.getLogger("x").warning("item %d", value)
        return value

    assert one_stage(range(40), warn, "process").collect() == list(range(40))
    told = sorted((r.headway_seq, r.getMessage(), r.headway_stage, r.name) for r in kept.records)
    assert told == [(n, f"item {n}", "warn", "x") for n in range(40)]


@pytest.mark.parametrize("mode", MODES)
def test_the_trace_id_of_an_item_is_the_same_in_every_stage_and_process(mode):
    def trace(value: Any) -> list[Any]:
        return [*(value if isinstance(value, list) else []), current_item().trace_id]

    pairs = one_stage(range(20), trace, mode).map(trace, on=mode).collect()
    assert all(first == second for first, second in pairs)
    assert len({first for first, _ in pairs}) == 20
