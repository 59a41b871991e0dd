"""Other ways to do the same work: a plain loop, chunks in processes, fewer stages; what each would give."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from headway.watch.ceilings import BUSY_CPU, IN_PROCESS, cpu_s, told_s, visits_of

WORTH = 1.1
"""What another way has to give, times what was measured, to be told."""


def advise(data: Mapping[str, Any]) -> list[str]:
    """A sentence for each, with figures. Times are those measured in this run, on this machine."""
    model = data["model"]
    stages = [s for s in data["stages"] if s["capacity"]]
    rate = data["steady"]["rate"] or data["rate"]
    if not stages or not rate:
        return []
    found = [data["bottleneck"]["todo"]] if data["bottleneck"] else []
    works = {s["name"]: s["service"]["mean"] * visits_of(s) for s in stages}
    total, (slow, most) = sum(works.values()), max(works.items(), key=lambda pair: pair[1])
    over = {s["name"]: model["stages"][s["name"]]["overhead_s"] * visits_of(s) for s in stages}
    source_s = min(model["source_s"], 0.5 / rate)
    if len(stages) > 1 and most >= 0.8 * total:
        found.append(
            f"{most / total:.0%} of the time is in one stage: with one worker each the ceiling of pipelining is "
            f"{total / most:.2f} x a plain loop; only more workers of {slow} give more"
        )
    loop = 1 / (total + source_s) if total + source_s > 0 else 0.0
    if loop > WORTH * rate:
        found.append(
            f"a plain loop would make about {loop:,.3g} rows/s, {loop / rate:.2g} x as many: handing over an item costs "
            f"{told_s(sum(over.values()) / len(over))} a stage, and its work takes {told_s(total / len(stages))}"
        )
    computing = {s["name"]: cpu_s(s, model) for s in stages}
    busy = sum(computing.values())
    threads = [s["name"] for s in stages if s["on"] in IN_PROCESS and computing[s["name"]] > 0]
    if busy >= BUSY_CPU * total and threads and model["cores"] > 1:
        chunks = 0.9 * model["cores"] / (busy + source_s)
        if chunks > WORTH * rate:
            found.append(
                f"chunks of rows in {model['cores']} processes would make about {chunks:,.3g} rows/s: "
                f'one stage with all the work, on="process", workers={model["cores"]}'
            )
    for first, second in pairwise(stages):
        light, name = min((works[s["name"]], s["name"]) for s in (first, second))
        same = first["on"] == second["on"] and first["workers"] == second["workers"] == 1
        if same and over[name] > light and loop <= WORTH * rate:
            found.append(
                f"{first['name']} and {second['name']} in one stage: the work of {name}, {told_s(light)}, is less than "
                f"the {told_s(over[name])} of handing over to it"
            )
            break
    handoffs = [s["handoff"] for s in stages if s["handoff"]]
    if handoffs:
        found.append(
            f"break-even here: a stage of its own pays from {told_s(max(handoffs))} of work an item "
            "(measured: hand-over to an idle worker)"
        )
    return found
