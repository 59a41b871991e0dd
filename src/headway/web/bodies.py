"""The bodies that requests carry: their types are what is checked and what the schema says."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from headway.web.shown import Refused

MOST_WORKERS = 256
MOST_ITEMS = 10_000
MOST_CALLS = 60_000
"""Of one simulation: items times stages."""

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Workers = Annotated[int, Meta(ge=1, le=4096)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
Row = Annotated[int, Meta(ge=0, le=MOST_ITEMS)]


class Scale(Struct, forbid_unknown_fields=True):
    """Give a stage of a live run so many workers. They begin at once, so no slip of a pointer makes thousands: `Run.scale` does."""

    stage: Name
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]


class WhatIf(Struct, forbid_unknown_fields=True):
    """Other settings of a run: workers by stage, places in every queue, rows under way. null: as it is."""

    workers: dict[Name, Workers] = {}
    queue: Size | None = None
    window: Size | None = None


class Study(Struct, forbid_unknown_fields=True):
    """Measure on the run what calls of a stage shorter by the share `speedup` would give, in about so many seconds."""

    stage: Name
    speedup: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    seconds: Annotated[float, Meta(gt=0.0, le=50.0)] = 10.0


class SimulatedStage(Struct, forbid_unknown_fields=True):
    """A stage: seconds of a call, how they vary, workers, and places in its queue (null: sized by the engine)."""

    name: Name
    time: Seconds = 0.0
    jitter: Literal["none", "exp", "heavy"] = "none"
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] = 1
    queue: Size | None = None


class Simulation(Struct, forbid_unknown_fields=True):
    """A pipeline to run on the virtual clock. Item `fail_at` fails, and `slow_at` takes 50 times as long, in the slowest stage."""

    stages: Annotated[list[SimulatedStage], Meta(min_length=1, max_length=16)]
    source_time: Seconds = 0.0
    items: Annotated[int, Meta(ge=1, le=MOST_ITEMS)] = 100
    window: Size | None = None
    order: Literal["none", "input"] = "input"
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0
    fail_at: Row | None = None
    slow_at: Row | None = None
    unbounded: bool = False
    stop_at: Seconds | None = None
    stop: Literal["drain", "cancel"] | None = None
    supervised: bool = False


class Nothing(Struct, forbid_unknown_fields=True):
    """No field: an empty body does too."""


Body = TypeVar("Body", bound=Struct)


def decoded(body: bytes, kind: type[Body]) -> Body:
    """The body as a `kind`. Raises Refused with the field at fault."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(422, f"the body is not what is needed: {error}") from None


def components() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas of all bodies."""
    schemas, parts = msgspec.json.schema_components(
        (Scale, WhatIf, Simulation, Nothing), ref_template="#/components/schemas/{name}"
    )
    return list(schemas), parts
