"""The report of a run, finished or live. It reads the engine and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from headway.core.engine import Engine
from headway.errors import Failure, HeadwayError
from headway.text import message, shown
from headway.watch import figures, show
from headway.watch.advice import advise
from headway.watch.predict import Predictor, Unreachable, WhatIf, changes
from headway.watch.verdict import judge


class Record(dict[str, Any]):
    """A part of a report: a dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return Record({key: _records(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_records(item) for item in value]
    return value


class Report:
    """What happened in a run: counts, rates and times of the whole and of every stage.

    Times are seconds, rates rows of the source per second, states of slots fractions of their time that add
    up to 1 (``cpu`` is the part of ``busy`` on a processor). Fields are attributes; `to_dict` has the same as
    plain data. ``dead_letters`` are the failures that were set aside in memory, ``states`` those of each scan
    by stage and key (None without one), ``ignored`` what an inline run did not do, ``calls`` those of a
    simulation: (stage, slot, row, from, to).
    """

    def __init__(
        self,
        data: dict[str, Any],
        *,
        dead_letters: list[Failure] | None = None,
        states: dict[str, dict[Any, Any]] | None = None,
    ) -> None:
        self._data = data
        self._what_if: WhatIf | None = None
        self.calls: list[tuple[str, int, Any, float, float]] = []
        self.states: dict[str, dict[Any, Any]] = states if states is not None else {}
        self.dead_letters: list[Failure] = dead_letters if dead_letters is not None else []

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """A report that `to_json` has written. Raises HeadwayError for any other file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            report = cls(data)
            _ = data["model"]["stages"], data["stages"], data["items"], data["steady"]["rate"]
        except OSError as error:
            raise HeadwayError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise HeadwayError(f"{path} is not a report: write one with report.to_json(path)") from None
        return report

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._data:
            raise AttributeError(name)
        return _records(self._data[name])

    @property
    def what_if(self) -> WhatIf:
        """The changes worth making, best first; called with workers by stage it gives a `Prediction`.

        A run that goes on is predicted without a simulation, which takes about a second.
        """
        if self._what_if is None:
            predictor = Predictor(self._data)
            if predictor.possible and self._data.get("what_if") is None:
                self._data["what_if"] = changes(predictor, simulated=self._data["state"] != "running")
            self._what_if = WhatIf(_records(self._data.get("what_if") or []), predictor if predictor.possible else None)
        return self._what_if

    @property
    def advice(self) -> list[str]:
        """What to do, in sentences with figures, the most important first."""
        if self._data.get("advice") is None:
            self._data["advice"] = [*advise(self._data), *self._data.get("notes", ())]
        return list(self._data["advice"])

    def workers_for(self, target_rate: float) -> dict[str, int] | Unreachable:
        """The workers that would give so many rows a second, by stage: those to change; or why none would."""
        predictor = Predictor(self._data)
        if not predictor.possible:
            raise ValueError("too little was measured for a prediction: no call has ended, or no row was emitted")
        return predictor.workers_for(target_rate)

    def figures(self) -> dict[str, Any]:
        """What was measured, as plain data without what is worked out from it."""
        return json.loads(json.dumps(self._data | {"what_if": None, "advice": None}))  # type: ignore[no-any-return]

    def _whole(self) -> Mapping[str, Any]:
        return self._data | {"what_if": list(self.what_if), "advice": self.advice}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return json.loads(json.dumps(self._whole()))  # type: ignore[no-any-return]

    def to_json(self, path: str | Path) -> None:
        """Write the report to `path`."""
        Path(path).write_text(json.dumps(self._whole(), indent=1) + "\n", encoding="utf-8")

    @property
    def summary(self) -> str:
        """What was read, what was done, and the numbers of what was not, in one line."""
        items = self._data["items"]
        counts = ", ".join(f"{items[k]:,} {k}" for k in items if items[k] or k in ("read", "written"))
        return ", ".join([counts, *show.not_finished(self._data)])

    def __repr__(self) -> str:
        return f"<Report of {self._data['name']!r}: {self._data['state']}>"

    def __str__(self) -> str:
        return "\n".join(show.lines(self._whole()))

    def _repr_html_(self) -> str:
        return show.page(self._whole())


def undisturbed(look: Callable[[], Report]) -> Report:
    """What `look` makes of an engine that another thread drives meanwhile."""
    while True:
        try:
            return look()
        except RuntimeError:  # a collection changed while it was read
            continue


def make_report(
    engine: Engine,
    name: str,
    now: float,
    *,
    dead_letters: list[Failure] | None = None,
    states: dict[str, dict[Any, Any]] | None = None,
    ignored: list[str] | None = None,
    trace: str | None = None,
    job: dict[str, Any] | None = None,
    notes: list[str] | None = None,
    loop: tuple[float, float] = (0.0, 0.0),
) -> Report:
    """The report of `engine` as it stands at `now`.

    `notes`: what else there is to say; `loop`: seconds that its event loop was on a processor, and seconds in all.
    """
    now = engine.times.stopped_at if engine.times.stopped_at is not None else now
    stages = figures.stages(engine, now)
    data: dict[str, Any] = {
        "name": name,
        "state": engine.state if engine.finished else "running",
        "items": asdict(engine.fates),
        **figures.phases(engine.times, now),
        "source": figures.source(engine.times, now),
        "stages": [stage for stage in stages if stage["kind"] != "consume"],
        "queues": [figures.queue(stage, now) for stage in engine.stages],
        "reorder": [figures.gate(stage, engine, now) for stage in engine.stages for _ in stage.gates],
        "model": figures.model(engine, *loop) | {"consumer": [stage for stage in stages if stage["kind"] == "consume"]},
    }
    seconds = data["elapsed"]
    data["rate"] = engine.times.emitted_roots / seconds if seconds > 0 else None
    rate = data["steady"]["rate"] or data["rate"]
    data["bottleneck"] = judge(stages, data["source"], data["reorder"], data["model"], rate)
    data |= {"what_if": None, "advice": None, "ignored": ignored or []}
    data["failures"] = [
        {"seq": f.seq, "stage": f.stage, "attempts": f.attempts, "error": type(f.error).__name__,
         "message": message(f.error), "value": shown(f.value)}
        for f in engine.failures
    ]  # fmt: skip
    data["unfinished"] = _unfinished(engine) if engine.finished else []
    data["complete"], data["trace"], data["job"] = engine.complete, trace, job
    if notes:
        data["notes"] = list(notes)
    return Report(data, dead_letters=dead_letters, states=states)


def _unfinished(engine: Engine) -> list[list[int]]:
    """First and last number of each run of rows that were read and not brought to their end."""
    spans = engine.frontier.spans()
    starts = [lo for lo, _ in spans[1:]] + [(engine.rows,)]
    gaps = ((hi[0], lo[0] - (len(lo) == 1)) for (_, hi), lo in zip(spans, starts, strict=True))
    return [[first, last] for first, last in gaps if first <= last]
