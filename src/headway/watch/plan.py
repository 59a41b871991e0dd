"""A plan as it is shown: as text and as plain data."""

from __future__ import annotations

from typing import Any

from headway.core import plan as core


class Plan:
    """What will run and why. ``str(plan)`` explains it, ``to_dict()`` has the same as data."""

    def __init__(self, plan: core.Plan, checkpoint: dict[str, Any] | None = None) -> None:
        self._plan, self._checkpoint = plan, checkpoint

    def to_dict(self) -> dict[str, Any]:
        """Edges (order proven and needed, what was placed and why, most held), stages and warnings."""
        return {
            "edges": [
                {
                    "from": edge.source,
                    "to": edge.target,
                    "proven": edge.proven,
                    "needed": edge.needed,
                    "placed": edge.placed,
                    "why": edge.why,
                    "max_items": edge.max_items,
                    "max_bytes": edge.max_bytes,
                }
                for edge in self._plan.edges
            ],
            "stages": [
                {
                    "name": stage.spec.name,
                    "kind": stage.spec.kind,
                    "on": stage.spec.on if isinstance(stage.spec.on, str) else type(stage.spec.on).__name__,
                    "workers": stage.spec.workers,
                    "queue": stage.spec.queue,
                    "needs": stage.spec.needs,
                    "on_error": stage.on_error,
                }
                for stage in self._plan.stages
                if stage.spec.kind != "consume"
            ],
            "checkpoint": self._checkpoint,
            "warnings": [],
        }

    def __str__(self) -> str:
        spec = self._plan.spec
        window = spec.window if spec.window is not None else f"up to {self._plan.window():,}"
        lines = [f"pipeline {spec.name!r}: window {window} items, {_size(spec.window_bytes)}"]
        for stage in self.to_dict()["stages"]:
            queue = stage["queue"] if stage["queue"] is not None else "auto"
            lines.append(
                f"  stage {stage['name']}: {stage['workers']} x {stage['on']}, queue {queue}, on_error {stage['on_error']}"
            )
        edges = self._plan.edges
        width = max((len(f"{edge.source} -> {edge.target}") for edge in edges), default=0)
        for edge in edges:
            held = f"; holds at most {edge.max_items:,} items, {_size(edge.max_bytes)}" if edge.placed else ""
            lines.append(
                f"  {f'{edge.source} -> {edge.target}':<{width}}  order {edge.proven}, needs {edge.needed}: "
                f"{edge.placed or 'nothing placed'} ({edge.why}){held}"
            )
        if (kept := self._checkpoint) is not None:
            lines.append(
                f"  with job=: refused ({kept['refused']})"
                if kept["refused"]
                else f"  with job=: {kept['effect']} ({kept['why']})"
            )
        return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
