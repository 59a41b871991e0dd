"""A run that is over, from its report or its trace, with the events of a live one: one look, and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.watch.report import Report
from headway.watch.show import sentence
from headway.watch.timeline import Timeline, from_trace
from headway.watch.traced import data_of
from headway.web.feed import Feed
from headway.web.shown import Refused, detail

MOST_SPANS = 1_500


class RecordedRun:
    """Raises HeadwayError for a file that is neither. A report names its trace, which is used where it is still there."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        try:
            is_trace = path.read_text(encoding="utf-8").lstrip()[:1] == "["
            self._started = path.stat().st_mtime
        except OSError as error:
            raise HeadwayError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise HeadwayError(f"{path} is neither a report nor a trace") from None
        self.id, self._timeline = path.name, None
        self._report: Report | None = None
        if is_trace:
            name, self._timeline = from_trace(path)
            self._data = data_of(name, self._timeline)
        else:
            self._report = Report.from_json(path)
            self._data = self._report.to_dict()
            trace = self._data.get("trace")
            if trace is not None and Path(trace).exists():
                self._timeline = from_trace(trace)[1]
        self._source = "trace" if is_trace else "report"
        self.feed = Feed()

    async def watch(self) -> None:
        """Publish what there is."""
        elapsed = self._data["elapsed"]
        look = {"t": elapsed, "snapshot": self._data, "sentence": self.sentence, "memory_bytes": 0}
        self.feed.publish("snapshot", look)
        if self._timeline is not None:
            end = max([elapsed, *(call.back or 0.0 for call in self._timeline.calls())])
            self.feed.publish("timeline", self._timeline.between(0.0, end, MOST_SPANS))
        self.feed.end({"state": self.state, "snapshot": self._data})

    @property
    def sentence(self) -> str:
        """How fast it was, and why."""
        return sentence(self._data)

    @property
    def state(self) -> str:
        """How it ended."""
        state = str(self._data["state"])
        return "done" if state == "drained" else state

    def line(self) -> dict[str, Any]:
        """Its entry in the list of runs."""
        return {
            "id": self.id, "name": self._data["name"], "state": self.state, "live": False, "started": self._started,
            "source": self._source,
        }  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """All about it. A trace and a report have no plan but the stages and edges that can be seen in them."""
        return detail(self.line(), plan_of(self._data), self._data, controls=False)

    def figures(self) -> dict[str, Any]:
        """What was measured. Raises Refused for a trace, which has too little for predictions."""
        if self._report is None:
            raise Refused(409, "a trace has too little for predictions: open the report of that run")
        return self._report.figures()

    def timeline(self) -> Timeline | None:
        """What its slots did, where there is a trace."""
        return self._timeline

    def stop(self, mode: str) -> str:
        """It has ended."""
        raise Refused(409, "this run has ended")

    def scale(self, stage: str, workers: int) -> None:
        """It has ended."""
        raise Refused(409, "this run has ended")

    async def study(self, stage: str, speedup: float, seconds: float) -> dict[str, Any]:
        """It has ended."""
        raise Refused(409, "this run has ended")


def plan_of(data: dict[str, Any]) -> dict[str, Any]:
    """The plan as a report shows it: its stages in a row, with the re-sequencers that it had."""
    gates = {gate["before"]: gate for gate in data["reorder"]}
    steps = {step["stage"]: step for step in data.get("model", {}).get("steps", ()) if "stage" in step}
    names = [stage["name"] for stage in data["stages"]]
    ends = names + [gate for gate in gates if gate not in names]
    return {
        "edges": [
            {
                "from": before, "to": name, "proven": None, "needed": None, "placed": "re-sequencer" if name in gates else None,
                "why": "as the run was", "max_items": gates[name]["window"] if name in gates else None, "max_bytes": None,
            }
            for before, name in zip(["source", *names], ends, strict=False)
        ],
        "stages": [
            {
                "name": stage["name"], "kind": stage["kind"], "on": stage["on"], "workers": stage["workers"],
                "queue": steps.get(stage["name"], {}).get("queue"), "needs": steps.get(stage["name"], {}).get("needs"), "on_error": None,
            }
            for stage in data["stages"]
        ],
        "warnings": [],
    }  # fmt: skip
