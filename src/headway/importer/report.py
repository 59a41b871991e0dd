"""An import's report in rows. The pipeline's own counts ranges; what is measured is not changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.importer.bookkeeping import Counts
from headway.watch.report import Report
from headway.watch.verdict import judge


def in_rows(report: Report, counts: Counts, at_write: int, notes: Sequence[str] = ()) -> Report:
    """Turn a report over ranges into one over source rows.

    `counts`: the rows of this run; `at_write`: those of them that the writer set aside or left out.
    Items and the flow through the stages are exact. Rates, service times and fill levels are those
    of ranges times the mean number of rows in one; latencies are a range's, as they are a row's.
    """
    data = report.figures()
    ranges = data["items"]["written"]
    rows = counts.read / ranges if ranges else 0.0
    fates = {
        "read": counts.read,
        "written": counts.written,
        "filtered": counts.filtered + counts.skipped,
        "dead": counts.rejected,
    }
    data["items"] = dict.fromkeys(data["items"], 0) | fates
    *before, parse, write = data["stages"]
    for stage in before:
        stage |= {"in": counts.read, "out": counts.read}
    offered = counts.written + at_write
    failed = max(0, counts.rejected - at_write)
    parse |= {"in": counts.read, "out": offered, "failed": failed, "filtered": counts.read - offered - failed}
    write |= {"in": offered, "out": counts.written, "failed": at_write, "filtered": 0}
    for stage in data["stages"]:
        _scale(stage, ("capacity",), rows)
        _scale(stage, ("handoff",), 1 / rows if rows else 0.0)
        _scale(stage["service"], ("mean", "p50", "p99"), 1 / rows if rows else 0.0)
    _scale(data["steady"], ("rate",), rows)
    _scale(data, ("rate",), rows)
    for queue in data["queues"]:
        _scale(queue, ("capacity", "depth", "max_depth", "now"), rows, whole=True)
    for gate in data["reorder"]:
        _scale(gate, ("held", "peak_held", "window", "window_used", "awaiting"), rows, whole=True)
    data["notes"] = list(notes)
    model, each = data["model"], 1 / rows if rows else 0.0
    _scale(model, ("source_s", "loop_s"), each)
    for measured in model["stages"].values():
        _scale(measured, ("overhead_s", "cpu_s"), each)
        measured.pop("blocks", None)  # rows are handed over in pieces of a fixed size: each pays its share
        measured["times"] = [(seconds * each, count) for seconds, count in measured["times"]]
    if data["bottleneck"]:  # judged anew: its reasons tell times, which are a row's now
        rate = data["steady"]["rate"] or data["rate"]
        data["bottleneck"] = judge(data["stages"], data["source"], data["reorder"], model, rate)
    return Report(data)


def _scale(part: dict[str, Any], names: tuple[str, ...], factor: float, *, whole: bool = False) -> None:
    for name in names:
        value = part.get(name)
        if value is not None:
            part[name] = round(value * factor) if whole else value * factor
