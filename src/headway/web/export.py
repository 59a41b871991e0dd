"""A run as one HTML file that needs nothing else: words, table, staircase, and the data itself. It holds no script."""

from __future__ import annotations

import html
from typing import Any

from headway.watch.show import COLOURS, page, sentence
from headway.watch.timeline import Timeline
from headway.web.shown import Shown
from headway.web.texts import encode, scrubbed

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WIDTH, ROW = 1000, 16
MOST_SPANS = 500
"""Of one slot."""


def exported(run: Shown) -> bytes:
    """The file."""
    detail = run.detail()
    data: dict[str, Any] = detail["snapshot"] | {
        "what_if": detail["snapshot"]["what_if"] or [],
        "advice": detail["snapshot"]["advice"] or [],
    }
    timeline = run.timeline()
    drawn = _staircase(timeline, data["elapsed"]) if timeline is not None else ""
    kept = {"run": detail["run"], "plan": detail["plan"], "report": data}
    # "<" is written otherwise, so that no value can end the element that holds the data.
    embedded = encode(kept).decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    name = html.escape(str(scrubbed(data["name"])))
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#222}}
table{{border-collapse:collapse;margin:1rem 0}}th,td{{text-align:left;padding:.2rem .8rem .2rem 0}}svg text{{font:11px system-ui,sans-serif}}</style>
</head><body><h1>{name}</h1><p><strong>{html.escape(scrubbed(sentence(data)))}</strong></p>
{scrubbed(page(data))}
{drawn}
<script type="application/json" id="headway">{embedded}</script>
</body></html>
"""
    return text.encode()


def _staircase(timeline: Timeline, elapsed: float) -> str:
    """The timeline as a picture: a row for each slot, time to the right."""
    calls = timeline.calls()
    end = max([elapsed, *(call.back or 0.0 for call in calls)])
    start = min((call.handed_out for call in calls), default=0.0)
    if end <= start:
        return ""
    slots = timeline.between(start, end, MOST_SPANS)["slots"]
    scale = (WIDTH - 150) / (end - start)
    out = []
    for number, slot in enumerate(slots):
        y = number * ROW
        out.append(f'<text x="0" y="{y + 11}">{html.escape(str(scrubbed(slot["stage"])))} {slot["slot"]}</text>')
        for a, b, state, first, last in slot["spans"]:
            if state == "starved":
                continue
            rows = "" if first is None else f" {first}" if first == last else f" {first} to {last}"
            out.append(
                f'<rect x="{150 + (a - start) * scale:.2f}" y="{y}" width="{max(0.5, (b - a) * scale):.2f}" height="{ROW - 4}" '
                f'fill="{COLOURS.get(state, "#999")}"><title>{html.escape(state)}{rows}: {a:.4f} to {b:.4f} s</title></rect>'
            )
    height = len(slots) * ROW + 20
    out.append(
        f'<text x="150" y="{height - 4}">{start:.3f} s</text><text x="{WIDTH - 60}" y="{height - 4}">{end:.3f} s</text>'
    )
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="timeline">{"".join(out)}</svg>'
