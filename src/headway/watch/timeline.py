"""What every slot did, as a picture needs it: spans of time by state, and the life of one item.

Made from calls: of a run that goes on (`Timeline` takes notes), of a trace, or of the virtual clock. Times are
seconds since the run began. A slot that has a block in hand is in ``overhead`` on its way to the worker and back
and ``busy`` while it runs; without one it is idle as its stage says: blocked, starved, lane_wait, throttled, paused.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError

KEPT_S = 60.0
KEPT_CALLS = 20_000
"""What a run that goes on remembers: the last minute, and no more than so many calls."""

Span = list[Any]
"""[start, end, state, first row or None, last row or None]"""


@dataclass(slots=True)
class Call:
    """A block in one slot. ``tags`` in runs as the trace has them; ``failed`` are tags; ``back`` is None while it is out."""

    stage: str
    slot: int
    tags: list[Any]
    attempt: int
    handed_out: float
    started: float = 0.0
    stopped: float = 0.0
    back: float | None = None
    failed: list[Any] = field(default_factory=list)

    def rows(self) -> tuple[int, int]:
        """First and last row of the source in it."""
        found = [part["child"][:1] if isinstance(part, dict) else part for part in self.tags]
        return min(part[0] for part in found), max(part[-1] for part in found)

    def has(self, seq: int) -> bool:
        """Whether row `seq` or a child of it is in it."""
        return any(
            part["child"][0] == seq if isinstance(part, dict) else part[0] <= seq <= part[1] for part in self.tags
        )


def runs_of(tags: Iterable[Any]) -> list[Any]:
    """Tags with runs of consecutive rows as [first, last]."""
    out: list[Any] = []
    for tag in tags:
        if isinstance(tag, int) and out and isinstance(out[-1], list) and out[-1][1] == tag - 1:
            out[-1][1] = tag
        else:
            out.append([tag, tag] if isinstance(tag, int) else {"child": list(tag)})
    return out


class Timeline:
    """Calls and reasons of idleness, the newest last. It may be written by one thread and read by others.

    `start`: the time of the clock at which the run began. `keep`: forget what is older than a minute. `hidden`:
    stages of which nothing is noted, such as the consumer.
    """

    def __init__(self, start: float = 0.0, *, keep: bool = False) -> None:
        self.start, self._keep = start, keep
        self.hidden: set[str] = set()
        self._calls: deque[Call] = deque(maxlen=KEPT_CALLS if keep else None)
        self._out: dict[int, Call] = {}
        self._idle: dict[str, deque[tuple[float, str]]] = {}
        self.slots: dict[tuple[str, int], None] = {}
        """The slots that are drawn also without a call: all that were seen, unless somebody knows better."""

    # ---- notes

    def dispatched(self, ticket: int, stage: str, slot: int, tags: list[Any], attempt: int, now: float) -> None:
        """Items were handed to a slot."""
        if stage in self.hidden:
            return
        self.slots.setdefault((stage, slot))
        self._out[ticket] = Call(stage, slot, runs_of(tags), attempt, now - self.start)

    def answered(self, ticket: int, taken: int, failed: list[int], started: float, stopped: float, now: float) -> None:
        """They came back."""
        call = self._out.pop(ticket, None)
        if call is None:
            return
        if failed:
            tags = [tag for part in call.tags for tag in _single(part)]
            call.failed = [tags[at] for at in failed if at < len(tags)]
        call.started, call.stopped, call.back = started - self.start, stopped - self.start, now - self.start
        self.add(call)

    def idle(self, stage: str, state: str, now: float) -> None:
        """From now on the slots of `stage` that have nothing in hand are idle for this reason."""
        known = self._idle.setdefault(stage, deque(maxlen=KEPT_CALLS if self._keep else None))
        known.append((now - self.start, state))

    def add(self, call: Call) -> None:
        """A whole call."""
        self.slots.setdefault((call.stage, call.slot))
        self._calls.append(call)
        if self._keep and call.back is not None:
            while self._calls and (self._calls[0].back or 0.0) < call.back - KEPT_S:
                self._calls.popleft()

    # ---- what is read

    def calls(self) -> list[Call]:
        """All calls, those that are out last."""
        return [*self._calls.copy(), *self._out.copy().values()]

    def between(self, start: float, end: float, most: int | None = None) -> dict[str, Any]:
        """The spans from `start` to `end`, by slot. Where a slot has more than `most`, neighbours are one span."""
        by_slot: dict[tuple[str, int], list[Call]] = {slot: [] for slot in list(self.slots)}
        for call in reversed(self.calls()):
            if call.back is not None and call.back < start:  # they stand in the order in which they came back
                break
            if (call.back is None or call.back > start) and call.handed_out < end:
                by_slot.setdefault((call.stage, call.slot), []).append(call)
        slots = []
        idle = {stage: list(known.copy()) for stage, known in list(self._idle.items())}
        for (stage, slot), calls in by_slot.items():
            spans = _spans(idle.get(stage, []), calls, start, end)
            if most is not None and len(spans) > most:
                spans = merged(spans, (end - start) / most)
            slots.append({"stage": stage, "slot": slot, "spans": spans})
        return {"from": start, "to": end, "slots": slots}

    def life(self, seq: int) -> list[dict[str, Any]]:
        """The steps of row `seq` and its children, in order of time: it waits in front of a stage, is handed over, is called."""
        steps: list[dict[str, Any]] = []
        before: float | None = None
        mine = [call for call in self.calls() if call.has(seq)]
        for call in sorted(mine, key=lambda call: (call.handed_out, call.started)):
            place = {"stage": call.stage, "slot": call.slot}
            if before is not None and call.handed_out > before:
                steps.append(
                    {"stage": call.stage, "slot": None, "state": "waits", "from": before, "to": call.handed_out}
                )
            if call.back is None:
                steps.append({**place, "state": "in hand", "from": call.handed_out, "to": None})
                continue
            if call.started > call.handed_out:
                steps.append({**place, "state": "overhead", "from": call.handed_out, "to": call.started})
            failed = any((tag if isinstance(tag, int) else tag[0]) == seq for tag in call.failed)
            steps.append({**place, "state": "failed" if failed else "busy", "from": call.started, "to": call.stopped})
            before = call.back
        return steps


def _spans(idle: list[tuple[float, str]], calls: list[Call], start: float, end: float) -> list[Span]:
    """The spans of one slot. `idle`: since when slots of its stage are idle for which reason."""
    spans: list[Span] = []
    at = returned = start

    def until(stop: float, state: str, rows: tuple[int | None, int | None]) -> None:
        nonlocal at
        stop = min(stop, end)
        if stop > at:
            spans.append([at, stop, state, *rows])
            at = stop

    def idly(stop: float) -> None:
        for number in range(max(0, bisect_right(idle, (at, "~")) - 1), len(idle)):
            changed = idle[number + 1][0] if number + 1 < len(idle) else stop
            until(min(changed, stop), idle[number][1], (None, None))
            if changed >= stop:
                break

    rows: tuple[int | None, int | None] = (None, None)
    for call in sorted(calls, key=lambda call: (call.back is None, call.started, call.handed_out)):
        # The way back of the call before, or where this one waited behind it, its own way there.
        until(min(returned, call.handed_out if call.back is None else call.started), "overhead", call.rows())
        rows = call.rows()
        if call.handed_out > at:
            idly(call.handed_out)
        if call.back is None:
            until(end, "busy", rows)
            return spans
        until(call.started, "overhead", rows)
        until(call.stopped, "busy", rows)
        returned = max(returned, call.back)
    until(returned, "overhead", rows)
    idly(end)
    return spans


def _single(part: Any) -> Iterable[Any]:
    return [tuple(part["child"])] if isinstance(part, dict) else range(part[0], part[1] + 1)


def merged(spans: list[Span], least: float) -> list[Span]:
    """Spans of at least `least` seconds: neighbours become one, with the state that most of its time went to."""
    out: list[Span] = []
    group: list[Span] = []
    for span in spans:
        group.append(span)
        if span[1] - group[0][0] >= least:
            out.append(_one(group))
            group = []
    return [*out, _one(group)] if group else out


def _one(group: list[Span]) -> Span:
    seconds: dict[str, float] = {}
    for start, end, state, *_ in group:
        seconds[state] = seconds.get(state, 0.0) + end - start
    first = min((span[3] for span in group if span[3] is not None), default=None)
    last = max((span[4] for span in group if span[4] is not None), default=None)
    return [group[0][0], group[-1][1], max(seconds, key=seconds.__getitem__), first, last]


def from_trace(path: str | Path) -> tuple[str, Timeline]:
    """The name of the run and the timeline of the trace at `path`. Raises HeadwayError for what is no trace."""
    timeline, name = Timeline(), "run"
    try:
        for event in events_of(path):
            args = event.get("args", {})
            if event["ph"] == "M" and event["name"] == "process_name":
                name = str(args["name"])
            elif event["ph"] == "i":
                timeline.idle(str(args["stage"]), str(event["name"]), event["ts"] / 1e6)
            elif event["ph"] == "X":
                started, stopped = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
                timeline.add(
                    Call(
                        str(event["name"]), int(args["slot"]), args["items"], args["attempt"], args["handed_out"] / 1e6,
                        started, stopped, args["back"] / 1e6, args["failed"],
                    )
                )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _no_trace(path) from None
    return name, timeline


def events_of(path: str | Path) -> list[dict[str, Any]]:
    """The events of a trace, also of one that was cut off. Raises HeadwayError for what is no trace."""
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip()
        events = json.loads(text if text.endswith("]") else text.rstrip(",") + "]")
    except OSError as error:
        raise HeadwayError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise _no_trace(path) from None
    if not isinstance(events, list) or not events or not all(isinstance(e, dict) and "ph" in e for e in events):
        raise _no_trace(path)
    return events


def _no_trace(path: str | Path) -> HeadwayError:
    return HeadwayError(f"{path} is not a trace: record one with run(trace={str(path)!r})")
