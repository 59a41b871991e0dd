"""The description of the interface as OpenAPI 3.1. Bodies are described by the types that check them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from headway.web.bodies import components

TEXTS = {
    400: "the Host header is not a name of this server", 401: "the token is missing or wrong",
    403: "the request comes from another origin", 404: "there is no such run or item", 409: "the run cannot do that, or has ended",
    413: "the body is too long", 415: "the body is not JSON", 422: "the body has a field that is missing, unknown or out of range",
}  # fmt: skip
STATE = {"enum": ["running", "draining", "done", "failed", "cancelled"]}
NUMBER = {"type": ["number", "null"]}
OBJECT = {"type": "object"}


def _record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "properties": fields}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


LINE = _record(
    id={"type": "string"}, name={"type": "string"}, state=STATE, live={"type": "boolean"}, started={"type": "number"},
    source={"enum": ["live", "report", "trace"]},
)  # fmt: skip
STEP = _record(stage={"type": "string"}, slot={"type": ["integer", "null"]}, state={"type": "string"}, to=NUMBER)
STEP["properties"]["from"] = {"type": "number"}
TIMELINE = _record(
    to={"type": "number"},
    slots=_list(_record(stage={"type": "string"}, slot={"type": "integer"}, spans=_list({"type": "array"}))),
)
TIMELINE["properties"]["from"] = {"type": "number"}
EVENT = _record(id={"type": "string"}, event={"enum": ["snapshot", "timeline", "dead", "end"]}, data={"type": "string"})
SETTINGS = {"$ref": "#/components/schemas/Simulation"}
PRESET = _record(
    name={"type": "string"}, title={"type": "string"}, text={"type": "string"}, settings=SETTINGS,
    compare={"anyOf": [SETTINGS, {"type": "null"}]},
)  # fmt: skip


def _answer(content: Any, kind: str = "application/json") -> dict[str, Any]:
    return {"description": "the answer", "content": {kind: {"schema": content}}}


def _path(summary: str, answer: Any, *errors: int, body: str | None = None, parameters: Any = ()) -> dict[str, Any]:
    wrong = _record(error={"type": "string"})
    errors = tuple(sorted({*errors, 400, 401, *((403, 413, 415, 422) if body else ())}))
    responses = {"200": answer} | {
        str(status): {"description": TEXTS[status], "content": {"application/json": {"schema": wrong}}}
        for status in errors
    }
    found: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameters:
        found["parameters"] = list(parameters)
    if body:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
        found["requestBody"] = {"required": True, "content": content}
    return {"post" if body else "get": found}


ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
SEQ = {"name": "seq", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
LAST = {
    "name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "the number of the last event that was seen: what came after it follows",
}  # fmt: skip


@cache
def schema() -> dict[str, Any]:
    """The description."""
    run, mine = "/api/runs/{id}", (ID,)
    events = _path(
        "events as they come: snapshot, timeline, dead, end; data is JSON", _answer(EVENT, "text/event-stream"), 404, 409,
        parameters=(ID, LAST),
    )  # fmt: skip
    events["get"]["responses"]["204"] = {"description": "everything was seen, and the run has ended"}
    scaled = _record(
        stage={"type": "string"}, workers={"type": "integer"}, predicted=_record(rate=NUMBER, low=NUMBER, high=NUMBER)
    )
    effect = _record(
        stage={"type": "string"}, speedup=NUMBER, base=NUMBER, rate=NUMBER, low=NUMBER, high=NUMBER, gain=NUMBER
    )
    foreseen = _record(
        rate=NUMBER,
        low=NUMBER,
        high=NUMBER,
        bottleneck={"type": "string"},
        next_bottleneck={"type": ["string", "null"]},
        ceilings=OBJECT,
    )
    curve = _list({"type": "array"})
    simulation = _record(
        report=OBJECT,
        sentence={"type": "string"},
        timeline=TIMELINE,
        gate=curve,
        queues=curve,
        out=curve,
        dead=_list({"type": "integer"}),
    )
    state = _record(state=STATE)
    detail = _record(
        run=LINE, plan={"type": ["object", "null"]}, snapshot=OBJECT, sentence={"type": "string"}, limits=OBJECT
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headway",
            "version": version("headway"),
            "description": "Runs, live and finished, and the visualizer.",
        },
        "paths": {
            "/api/runs": _path("all runs", _answer(_record(runs=_list(LINE)))),
            run: _path("one run at this moment", _answer(detail), 404, 409, parameters=mine),
            f"{run}/events": events,
            f"{run}/items/{{seq}}": _path(
                "the life of an item",
                _answer(_record(seq={"type": "integer"}, steps=_list(STEP))),
                404,
                409,
                parameters=(ID, SEQ),
            ),
            f"{run}/export": _path(
                "the run as one HTML file", _answer({"type": "string"}, "text/html"), 404, 409, parameters=mine
            ),
            f"{run}/drain": _path("read nothing more", _answer(state), 404, 409, body="Nothing", parameters=mine),
            f"{run}/cancel": _path("start nothing more", _answer(state), 404, 409, body="Nothing", parameters=mine),
            f"{run}/scale": _path(
                "change the workers of a stage", _answer(scaled), 404, 409, body="Scale", parameters=mine
            ),
            f"{run}/what-if": _path(
                "what other settings would give", _answer(foreseen), 404, 409, body="WhatIf", parameters=mine
            ),
            f"{run}/study": _path(
                "what a faster stage would give, measured", _answer(effect), 404, 409, body="Study", parameters=mine
            ),
            "/api/simulate": _path("run a pipeline on the virtual clock", _answer(simulation), body="Simulation"),
            "/api/presets": _path("settings that each show one thing", _answer(_record(presets=_list(PRESET)))),
            "/api/schema": _path("this", _answer(OBJECT)),
        },
        "components": {"schemas": components()[1]},
    }
