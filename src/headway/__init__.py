"""Headway: concurrent pipelines that keep order, lose nothing and tell the truth about speed.

Every public name is given here and loaded on first use, so that ``import headway`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headway import page

if TYPE_CHECKING:
    from headway.core.block import DROP
    from headway.core.policy import RateLimit, Retry
    from headway.errors import (
        CheckpointError,
        Failure,
        HeadwayError,
        InternalError,
        ItemTimeout,
        PlanError,
        PredecessorFailed,
        RetryAfter,
        RunError,
        RunErrors,
        SinkError,
        SourceError,
        StageError,
        StallError,
        TooManyFailures,
        WorkerDied,
    )  # fmt: skip
    from headway.importer.batchfunction import reject
    from headway.importer.job import import_file
    from headway.importer.lookup import lookup
    from headway.importer.result import ImportResult
    from headway.importer.rowfunction import Reject, per_batch, rows
    from headway.importer.sinks import DuckDBSink, PostgresSink, SQLiteSink
    from headway.io.deadletter import read_dead_letters
    from headway.io.readers import read_csv, read_jsonl, read_parquet
    from headway.pipeline import Pipeline
    from headway.ports import Sink, Source
    from headway.run.context import Item, current_item
    from headway.run.setup import shared
    from headway.running import Run
    from headway.watch.plan import Plan
    from headway.watch.report import Report

_HOMES = {
    "headway.core.block": ("DROP",),
    "headway.core.policy": ("RateLimit", "Retry"),
    "headway.errors": (
        "CheckpointError", "Failure", "HeadwayError", "InternalError", "ItemTimeout", "PlanError", "PredecessorFailed",
        "RetryAfter", "RunError", "RunErrors", "SinkError", "SourceError", "StageError", "StallError", "TooManyFailures", "WorkerDied",
    ),
    "headway.importer.job": ("import_file",),
    "headway.importer.result": ("ImportResult",),
    "headway.importer.batchfunction": ("reject",),
    "headway.importer.lookup": ("lookup",),
    "headway.importer.rowfunction": ("Reject", "per_batch", "rows"),
    "headway.importer.sinks": ("DuckDBSink", "PostgresSink", "SQLiteSink"),
    "headway.io.deadletter": ("read_dead_letters",),
    "headway.io.readers": ("read_csv", "read_jsonl", "read_parquet"),
    "headway.pipeline": ("Pipeline",),
    "headway.ports": ("Sink", "Source"),
    "headway.run.context": ("Item", "current_item"),
    "headway.run.setup": ("shared",),
    "headway.running": ("Run",),
    "headway.watch.plan": ("Plan",),
    "headway.watch.report": ("Report",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CheckpointError", "DROP", "DuckDBSink", "Failure", "HeadwayError", "ImportResult", "InternalError", "Item",
    "ItemTimeout", "Pipeline", "Plan", "PlanError", "PostgresSink", "PredecessorFailed", "RateLimit", "Reject",
    "Report", "Retry", "RetryAfter", "Run", "RunError", "RunErrors", "SQLiteSink", "Sink", "SinkError", "Source",
    "SourceError", "StageError", "StallError", "TooManyFailures", "WorkerDied", "current_item", "import_file",
    "lookup", "per_batch", "read_csv", "read_dead_letters", "read_jsonl", "read_parquet", "reject", "rows",
    "shared",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _page(run: Any, where: bool | str) -> page.Page:
    made: page.Page = import_module("headway.web.publish").LivePage(run, where)
    return made


def _check_page(where: bool | str) -> None:
    import_module("headway.web.server").check(where)


page.makers[:], page.checks[:] = [_page], [_check_page]  # nothing below may import `web`
