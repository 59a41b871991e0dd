"""Why the rate is what it is: one verdict, the evidence for it, and what to do about it.

Codes: `stage_limited`, `sink_limited`, `source_limited`, `window_limited`, `order_limited`, `key_limited`,
`gil_limited`, `core_limited`, `rate_limited`, `handoff_limited`, `balanced`. A verdict is *confirmed* if
what was measured around it agrees: its slots never idle, what is before it waits, what is behind it starves.
"""

from __future__ import annotations

from typing import Any

from headway.watch.ceilings import IN_PROCESS, Ceiling, shared_ceilings, slot_ceiling, told_s

FULL = 0.9
"""A slot that has something in hand this share of the time is never idle."""
SOME = 0.2

MACHINE = {
    "gil_limited": 'give {} on="process", which computes beside the others; more threads change nothing',
    "core_limited": "make the calls cheaper, or use a machine with more processors; more workers change nothing",
    "handoff_limited": "do more in each call of {}, as with .batch, or use fewer stages; more workers change nothing",
}
"""What to do about a bound of the interpreter or of the machine, under which slots look busy that wait for it."""


def judge(
    stages: list[dict[str, Any]], source: dict[str, Any], gates: list[dict[str, Any]], model: dict[str, Any], rate: float | None
) -> dict[str, Any] | None:  # fmt: skip
    """The verdict as a record: stage, verdict, confirmed, ceiling (None: not known), because, todo. None before a call ended."""
    slots = [ceiling for stage in stages if (ceiling := slot_ceiling(stage)) is not None]
    if not slots:
        return None
    shared = shared_ceilings(stages, model)
    neck = min(slots, key=lambda ceiling: ceiling.rate)
    at = next(i for i, stage in enumerate(stages) if stage["name"] == neck.stage)
    stage = stages[at]
    for ruled in (
        _throttled(stages, shared),
        _key(stages, shared, rate),
        _full(stages, at, source, neck, shared, rate),
        _source(stages, source, stage, model, rate),
        _window(source, gates, stages),
    ):
        if ruled is not None:
            return ruled
    return _balanced(slots, stage, neck)


def _record(ceiling: Ceiling, *, confirmed: bool, because: str, todo: str) -> dict[str, Any]:
    return {
        "stage": ceiling.stage, "verdict": ceiling.verdict, "confirmed": confirmed,
        "ceiling": ceiling.rate if ceiling.rate < float("inf") else None, "because": because, "todo": todo,
    }  # fmt: skip


def _throttled(stages: list[dict[str, Any]], shared: list[Ceiling]) -> dict[str, Any] | None:
    """A rate limit that keeps slots from starting what they could."""
    for stage in stages:
        if stage["throttled"] < SOME or stage["throttled"] + stage["busy"] + stage["overhead"] < 0.8:
            continue
        ceiling = next((c for c in shared if c.verdict == "rate_limited" and c.stage == stage["name"]), None)
        ceiling = ceiling or Ceiling(float("inf"), "rate_limited", stage["name"], f"{stage['name']} has a rate limit")
        return _record(
            ceiling, confirmed=stage["throttled"] >= 0.5,
            because=f"{ceiling.because}; its slots wait for that {stage['throttled']:.0%} of the time",
            todo=f"raise rate= of {stage['name']} if the other side allows it; more workers change nothing",
        )  # fmt: skip
    return None


def _key(stages: list[dict[str, Any]], shared: list[Ceiling], rate: float | None) -> dict[str, Any] | None:
    """Items that wait for others of their key while slots have nothing to do."""
    for ceiling in shared:
        stage = next(s for s in stages if s["name"] == ceiling.stage)
        if ceiling.verdict == "key_limited" and stage["lane_wait"] >= SOME:
            return _record(
                ceiling, confirmed=rate is not None and rate >= 0.8 * ceiling.rate,
                because=f"{ceiling.because}: slots wait for a free key {stage['lane_wait']:.0%} of the time",
                todo=f"make a call of {stage['name']} shorter or the key finer; more workers change nothing",
            )  # fmt: skip
    return None


def _full(
    stages: list[dict[str, Any]], at: int, source: dict[str, Any], neck: Ceiling, shared: list[Ceiling], rate: float | None
) -> dict[str, Any] | None:  # fmt: skip
    """Slots that always have something in hand."""
    stage = stages[at]
    held = stage["busy"] + stage["overhead"]
    before = [s["blocked"] > 0 for s in stages[:at]] + [(source["window_wait"] or 0) + (source["blocked"] or 0) > 0]
    behind = [s["starved"] > 0 for s in stages[at + 1 :]]
    # Threads that wait for the interpreter or a processor look busy; so one of several may not be the slowest.
    for ceiling in sorted(shared, key=lambda c: c.rate):
        if ceiling.verdict not in MACHINE or (ceiling.verdict == "gil_limited" and _only_thread(stages, stage)):
            continue
        if rate is None or rate < 0.75 * ceiling.rate or ceiling.rate > 1.25 * neck.rate:
            continue
        because = ceiling.because
        if ceiling.verdict != "handoff_limited":
            because += f"; {ceiling.stage} computes {_computes(stages, ceiling.stage):.0%} of its busy time"
        todo = MACHINE[ceiling.verdict].format(ceiling.stage)
        return _record(ceiling, confirmed=rate >= 0.85 * ceiling.rate, because=because, todo=todo)
    if held < FULL:
        return None
    if stage["overhead"] > stage["busy"]:
        calls = told_s(stage["service"]["mean"])
        return _record(
            Ceiling(neck.rate * stage["busy"] / held, "handoff_limited", neck.stage, ""), confirmed=True,
            because=f"handing over costs {neck.stage} {stage['overhead']:.0%} of its time, its calls of {calls} only {stage['busy']:.0%}",
            todo=_cheaper(stages, at),
        )  # fmt: skip
    return _record(
        neck, confirmed=stage["busy"] >= 0.75 and any(before) and (not behind or any(behind)),
        because=f"{neck.because} and is busy {stage['busy']:.0%} of the time", todo=_more(stage),
    )  # fmt: skip


def _only_thread(stages: list[dict[str, Any]], stage: dict[str, Any]) -> bool:
    """Whether a stage that cannot have more workers is the only one on threads: nobody shares the interpreter with it."""
    return stage["alone"] and [each["name"] for each in stages if each["on"] in IN_PROCESS] == [stage["name"]]


def _computes(stages: list[dict[str, Any]], name: str) -> float:
    stage = next(s for s in stages if s["name"] == name)
    return min(1.0, (stage["cpu"] or 0.0) / stage["busy"]) if stage["busy"] else 0.0


def _more(stage: dict[str, Any]) -> str:
    if stage["kind"] == "consume":
        return "the pipeline waits for whoever takes its values: do the work of the loop's body in a stage"
    if stage["alone"]:
        return f"{stage['name']} has one worker by its nature: write larger batches, or make its calls cheaper"
    more = 2 * stage["workers"]
    return f"give {stage['name']} workers={more}, or make its calls cheaper"


def _cheaper(stages: list[dict[str, Any]], at: int) -> str:
    name = stages[at]["name"]
    if stages[at]["on"] == "process":
        return f'give {name} larger items, idempotent=True, or on="thread": what it does costs less than the way to a process'
    beside = next((stages[i]["name"] for i in (at + 1, at - 1) if 0 <= i < len(stages)), None)
    return (
        f"do the work of {name}"
        + (f" and {beside} in one stage" if beside else " with .map_batches")
        + ", or in a plain loop"
    )


def _source(
    stages: list[dict[str, Any]], source: dict[str, Any], neck: dict[str, Any], model: dict[str, Any], rate: float | None
) -> dict[str, Any] | None:  # fmt: skip
    reading = source["reading"] or 0.0
    if reading < 0.8 or (rate is not None and rate * model["source_s"] < 0.5):  # it ended long before the run
        return None
    first = stages[0]
    return _record(
        Ceiling(float("inf"), "source_limited", "source", ""), confirmed=reading >= FULL and first["starved"] > 0,
        because=f"rows were waited for {reading:.0%} of the time; {first['name']} had none {first['starved']:.0%} of it",
        todo=f"read faster, or in larger pieces: no stage is to blame ({neck['name']}, the slowest, is busy {neck['busy']:.0%})",
    )  # fmt: skip


def _window(source: dict[str, Any], gates: list[dict[str, Any]], stages: list[dict[str, Any]]) -> dict[str, Any] | None:
    waits = source["window_wait"] or 0.0
    if waits < SOME:
        return None
    gate = max(gates, key=lambda gate: gate["blocked"], default=None)
    if gate is not None and gate["blocked"] > SOME:
        return _record(
            Ceiling(float("inf"), "order_limited", gate["before"], ""), confirmed=gate["peak_held"] >= gate["window"] // 2,
            because=f"the re-sequencer before {gate['before']} holds items back {gate['blocked']:.0%} of the time, up to "
            f"{gate['peak_held']:,} of a window of {gate['window']:,}, and the source waits {waits:.0%}",
            todo=f'a larger window=, order="key" or "none" at {gate["before"]}, or hedge=True where the slow calls are',
        )  # fmt: skip
    slowest = max(stages, key=lambda s: s["busy"])
    return _record(
        Ceiling(float("inf"), "window_limited", "source", ""), confirmed=waits >= 0.5,
        because=f"the source waits for the window {waits:.0%} of the time while {slowest['name']} is busy only {slowest['busy']:.0%}",
        todo='a larger window=, or window="auto"',
    )  # fmt: skip


def _balanced(slots: list[Ceiling], stage: dict[str, Any], neck: Ceiling) -> dict[str, Any]:
    near = [c.stage for c in slots if c.rate <= 1.15 * neck.rate]
    names = " and ".join(near) if len(near) < 3 else f"{', '.join(near[:-1])} and {near[-1]}"
    because = (
        f"{names} could do about the same, and each waits for the others; {stage['name']} is busy {stage['busy']:.0%}"
        if len(near) > 1
        else f"nothing stands out: {stage['name']}, the slowest, is busy {stage['busy']:.0%} of the time"
    )
    return _record(
        Ceiling(neck.rate, "balanced", neck.stage, ""), confirmed=len(near) > 1,
        because=because, todo="larger queue= between them where their times vary, or more workers for all of them",
    )  # fmt: skip
