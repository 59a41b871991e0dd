"""Six settings of the visualizer that each show one thing."""

from __future__ import annotations

from typing import Any

STAIRCASE = [
    {"name": "read", "time": 0.002}, {"name": "parse", "time": 0.001},
    {"name": "process", "time": 0.004, "workers": 3}, {"name": "write", "time": 0.003},
]  # fmt: skip
FAST_AND_SLOW = [{"name": "produce", "time": 0.001, "queue": 4}, {"name": "consume", "time": 0.004, "queue": 4}]
FETCH = [{"name": "fetch", "time": 0.010, "jitter": "heavy", "workers": 4}, {"name": "write", "time": 0.001}]
STRAGGLER = [{"name": "fetch", "time": 0.004, "workers": 4}, {"name": "write", "time": 0.0005}]
WORK = [
    {"name": "parse", "time": 0.002},
    {"name": "enrich", "time": 0.006, "workers": 3},
    {"name": "write", "time": 0.002},
]


def presets() -> list[dict[str, Any]]:
    """Each with `name`, `title`, `text`, `settings` and, where two are to be compared, `compare`."""
    return [
        {
            "name": "staircase", "title": "The four-stage staircase",
            "text": "While the first item is written the next ones are on their way: the rate is that of the slowest stage, "
            "not that of the sum. Beside it the same work one item at a time.",
            "settings": {"stages": STAIRCASE, "items": 60},
            "compare": {"stages": STAIRCASE, "items": 60, "window": 1},
        },
        {
            "name": "fast-producer", "title": "A producer faster than its consumer",
            "text": "A bounded queue fills and holds the producer back: memory stays, and the rate is the consumer's. Without "
            "a bound the rate is the same, and the queue and the age of what is in it only grow.",
            "settings": {"stages": FAST_AND_SLOW, "items": 200, "window": 16},
            "compare": {"stages": FAST_AND_SLOW, "items": 200, "unbounded": True},
        },
        {
            "name": "silent-reorder", "title": "The silent reorder, step by step",
            "text": "Four workers take different times, so a later item overtakes an earlier one, and nobody is told. Beside it "
            "the re-sequencer holds what came too early until the awaited item is there.",
            "settings": {"stages": FETCH, "items": 24, "order": "none", "seed": 5},
            "compare": {"stages": FETCH, "items": 24, "order": "input", "seed": 5},
        },
        {
            "name": "straggler", "title": "One straggler, with a narrow and a wide window",
            "text": "One item takes fifty times as long. Order makes all others wait for it: with a narrow window soon nothing "
            "may be read and the workers stand still, with a wide one they go on meanwhile.",
            "settings": {"stages": STRAGGLER, "items": 200, "window": 12, "slow_at": 40},
            "compare": {"stages": STRAGGLER, "items": 200, "window": 256, "slow_at": 40},
        },
        {
            "name": "poison", "title": "A poison item, without and with supervision",
            "text": "One item cannot be done. Without supervision it ends the run, and what stood behind it is not done. With "
            "supervision it is set aside with its reason, and all others go through in order.",
            "settings": {"stages": WORK, "items": 60, "fail_at": 20, "supervised": False},
            "compare": {"stages": WORK, "items": 60, "fail_at": 20, "supervised": True},
        },
        {
            "name": "shutdown", "title": "Shutdown, without and with draining",
            "text": "At 0.08 s the run is told to stop. Cancelled, it drops what was read and is under way. Drained, it reads "
            "nothing more and finishes that first.",
            "settings": {"stages": WORK, "items": 200, "stop_at": 0.08, "stop": "cancel"},
            "compare": {"stages": WORK, "items": 200, "stop_at": 0.08, "stop": "drain"},
        },
    ]  # fmt: skip
