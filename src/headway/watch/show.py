"""A report as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from headway.watch.ceilings import told_rate, told_s

STATES = ("busy", "overhead", "blocked", "starved", "lane_wait", "throttled", "paused")
COLOURS = {
    "busy": "#2a78b5", "overhead": "#9b59b6", "blocked": "#d9534f", "starved": "#d0d0d0",
    "lane_wait": "#e8a33d", "throttled": "#c7b42c", "paused": "#8a8a8a",
}  # fmt: skip


RUNS = 20
"""Most runs of unfinished rows that are told in words."""


def not_finished(data: Mapping[str, Any]) -> list[str]:
    """The numbers of the rows that were not finished, in words, if there are any."""
    runs = [f"{first}" if first == last else f"{first} to {last}" for first, last in data.get("unfinished", [])]
    more = f" and {len(runs) - RUNS:,} more such runs" if len(runs) > RUNS else ""
    return [f"not finished: {', '.join(runs[:RUNS])}{more}"] if runs else []


def lines(data: Mapping[str, Any]) -> list[str]:
    """The report in a dozen lines: counts, rate, the bottleneck and why, what to change, the stages."""
    items = data["items"]
    counts = ", ".join(f"{items[k]:,} {k}" for k in items if items[k] or k in ("read", "written"))
    out = [f"{data['name']}: {data['state']} in {data['elapsed']:.2f} s, {speed(data)}", f"  {counts}"]
    out += [f"  {text}" for text in (*of_job(data), *not_finished(data))]
    if not data["complete"] and data["state"] != "running":
        out.append("  the counts do not add up")
    neck = data["bottleneck"]
    if neck is not None:
        sure = "confirmed" if neck["confirmed"] else "not confirmed"
        most = f"; at most {told_rate(neck['ceiling'])} rows/s" if neck["ceiling"] is not None else ""
        out += [f"  bottleneck: {neck['stage']} ({neck['verdict']}, {sure}): {neck['because']}{most}"]
    out += changes(data)
    out += table(data)
    out += latency(data)
    out += [
        f"  re-sequencer before {gate['before']}: held at most {gate['peak_held']:,} of window {gate['window']:,}"
        + (f"; awaits {gate['awaiting']} for {told_s(gate['awaiting_age'])}: {gate['awaiting_where']}" if gate["awaiting"] is not None else "")
        for gate in data["reorder"]
    ]  # fmt: skip
    out += [
        f"  failed: item {failure['seq']} in {failure['stage']}: {failure['error']}: {failure['message']}"
        for failure in data["failures"][:3]
    ]
    out += [f"  not done in one thread: {text}" for text in data["ignored"]]
    return out


def of_job(data: Mapping[str, Any]) -> list[str]:
    """What the job of the run had done before, in words, where it is one of a job."""
    job = data.get("job")
    if job is None:
        return []
    name, written = f"job {job['name']!r}", f"{job['written_before']:,} written"
    if job["already_finished"]:
        return [f"{name} was finished before, with {written}: there was nothing to do"]
    again = "; run it again to go on" if data["state"] in ("drained", "cancelled", "failed") else ""
    if job["resumed_at"] is None:
        return [f"{name}: begun here; {job['effect']}, kept in {job['kept_in']}{again}"]
    more = f", and without {job['skipped']:,} items behind it that were done" if job["skipped"] else ""
    return [f"{name}: went on at row {job['resumed_at']:,}{more}, with {written} before{again}"]


def speed(data: Mapping[str, Any]) -> str:
    """The rate in words."""
    if data["steady"]["rate"] is not None:
        return f"{told_rate(data['steady']['rate'])} rows/s steady"
    if data["rate"] is not None:
        return f"{told_rate(data['rate'])} rows/s over all; the run was too short for a steady rate"
    return "no rate"


def sentence(data: Mapping[str, Any]) -> str:
    """How fast it is, of what would be possible, and why: one sentence."""
    rate, neck = data["steady"]["rate"] or data["rate"], data["bottleneck"]
    if not rate or neck is None:
        return "nothing has come through yet" if data["state"] == "running" else f"{data['state']}: {speed(data)}"
    most = f" of a possible {told_rate(neck['ceiling'])}" if neck["ceiling"] is not None else ""
    return f"{told_rate(rate)} rows/s{most}: {neck['stage']} is the bottleneck ({neck['because']})"


def changes(data: Mapping[str, Any]) -> list[str]:
    """The three changes worth making, each on a line."""
    told = [
        f"{row['change']}: about {told_rate(row['rate'])} rows/s ({row['gain']:+.0%}), then {row['next_bottleneck']}"
        for row in data["what_if"]
    ]
    told += [text for text in data["advice"] if not told or not text.startswith("give ")]
    return [f"  {number}. {text}" for number, text in enumerate(told[:3], 1)]


def table(data: Mapping[str, Any]) -> list[str]:
    """A line for each stage: where the time of its slots went."""
    stages = data["stages"]
    width = max([len(s["name"]) for s in stages], default=0)
    digits = max([len(str(s["workers"])) for s in stages], default=1)
    out = []
    for s in stages:
        mean = s["service"]["mean"]
        shares = [f"{state.replace('_', ' ')} {s[state]:4.0%}" for state in STATES[:4]]
        shares += [f"{state.replace('_', ' ')} {s[state]:.0%}" for state in STATES[4:] if s[state] >= 0.005]
        each = f"{1e3 * mean:9.3f} ms a call" if mean is not None else "no calls"
        out.append(f"  {s['name']:<{width}}  {s['workers']:>{digits}} x {s['on']:<7} {each}  {'  '.join(shares)}")
    return out


def latency(data: Mapping[str, Any]) -> list[str]:
    """Latency, and what of it is the wait for order."""
    found, bare = data["latency"], data["latency_unordered"]
    if found["p50"] is None:
        return []
    text = f"  latency p50 {told_s(found['p50'])}, p99 {told_s(found['p99'])}"
    if data["reorder"] and bare["p99"] is not None and found["p99"] > 1.05 * bare["p99"]:
        text += f"; without the wait for order {told_s(bare['p50'])} and {told_s(bare['p99'])}"
    fill = f"; fill {told_s(data['fill'])}" if data["fill"] is not None else ""
    return [text + fill + (f", drain {told_s(data['drain'])}" if data["drain"] is not None else "")]


def page(data: Mapping[str, Any]) -> str:
    """The report as an HTML fragment: a bar of slot states for each stage. Holds no script and loads nothing."""
    head = "".join(f"<div>{html.escape(text.strip())}</div>" for text in lines(data) if text not in table(data))
    rows = "".join(_row(stage) for stage in data["stages"])
    key = " ".join(
        f'<span style="background:{colour};padding:0 .6em;margin-right:.3em"></span>{state.replace("_", " ")}'
        for state, colour in COLOURS.items()
    )
    titles = "".join(
        f"<th>{text}</th>" for text in ("stage", "workers", "a call", "capacity, rows/s", "time of its slots")
    )
    return f'<div class="headway">{head}<table><tr>{titles}</tr>{rows}</table><small>{key}</small></div>'


def _row(stage: Mapping[str, Any]) -> str:
    bar = "".join(
        f'<span title="{state} {stage[state]:.1%}" style="display:inline-block;height:1em;'
        f'width:{100 * stage[state]:.2f}%;background:{COLOURS[state]}"></span>'
        for state in STATES
    )
    most = f"{told_rate(stage['capacity'])}" if stage["capacity"] else "-"
    cells = (
        html.escape(stage["name"]), f"{stage['workers']} x {html.escape(stage['on'])}", told_s(stage["service"]["mean"]), most,
        f'<div style="width:20em;font-size:0;white-space:nowrap">{bar}</div>',
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
