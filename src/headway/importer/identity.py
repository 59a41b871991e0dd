"""What a job was begun with: the content of its files, and the options that shape its result.

The code of a row function is not part of it: it may be mended between two runs. What does not belong
here: where it is kept, and what a difference leads to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.importer.declare import Declaration
from headway.importer.schema import Field, Schema, SchemaDeclaration
from headway.io.content import Seal
from headway.io.inputs import InputFormat
from headway.io.ranges import InputFile

CONTENT = "content"
SCHEMA = "--schema"
FIELDS = "fields"
"""The types and rules of the source's fields, also those that were inferred; no option of their own."""


def identity(
    files: Sequence[InputFile],
    format: InputFormat,
    *,
    process: str | Callable[..., Any] | None,
    declarations: Sequence[Declaration],
    table: str | None,
    schema: SchemaDeclaration,
    fields: Schema,
) -> str:
    """Give the text that a job keeps: as JSON, `content` (each file's name and seal), `fields`, and each option's value."""
    told: dict[str, Any] = {
        CONTENT: [(file.location.name, *file.seal) for file in files],
        **format.told(files[0]),
        "--process": _reference(process),
        "--table": table,
        SCHEMA: schema.to_dict(),
        FIELDS: [field.to_dict() for field in fields.fields],
    }
    if any(declaration.columns is not None for declaration in declarations):
        told["--tables"] = [_declared(declaration) for declaration in declarations]
    else:
        told |= _meaning(declarations[0])
    return json.dumps(told)


def content(saved: str) -> list[tuple[str, Seal]]:
    """Give the files of a job, with what each was known by."""
    return [(name, Seal(*seal)) for name, *seal in json.loads(saved)[CONTENT]]


def fields_of(saved: str, schema: SchemaDeclaration) -> Schema | None:
    """Give the fields that a job was begun with, if the same was declared then; what was inferred stays as it was."""
    told = json.loads(saved)
    if FIELDS not in told or told.get(SCHEMA) != json.loads(json.dumps(schema.to_dict())):
        return None
    return Schema(tuple(map(Field.from_dict, told[FIELDS])))


def differences(saved: str, now: str) -> list[str]:
    """Give the options that differ, each with its value now and then."""
    before, after = json.loads(saved), json.loads(now)
    found = []
    for name in dict.fromkeys((*after, *before)):
        then, here = before.get(name), after.get(name)
        if name in (CONTENT, FIELDS) or then == here:
            continue
        if name in ("--tables", SCHEMA):
            other = "with other tables" if name == "--tables" else "with another --schema or --column"
            there = other if then and here else (f"with {name}" if then else f"without {name}")
            found.append(f"{there}{_first_difference(then, here)}")
        elif name == "--no-header":
            found.append("with --no-header" if then else "without --no-header")
        else:
            found.append(f"{'without ' + name if then is None else f'with {name} {then}'} ({_now(here)})")
    return found


def _now(value: Any) -> str:
    return "now it is not given" if value is None else f"now {value}"


def _first_difference(then: Any, here: Any) -> str:
    changed = [table["name"] for table in here or () if table not in (then or ())]
    return f" ({', '.join(changed)} differ)" if then and changed else ""


def _reference(process: str | Callable[..., Any] | None) -> str | None:
    if callable(process):
        return f"{process.__module__}:{getattr(process, '__qualname__', type(process).__qualname__)}"
    if process is None:
        return None
    module, _, name = process.rpartition(":")
    return f"{Path(module).resolve()}:{name}" if module.endswith(".py") else process


def _declared(declaration: Declaration) -> Mapping[str, Any]:
    columns = {column.name: str(column.type) for column in declaration.columns or ()}
    return {"name": declaration.name, "columns": columns} | _meaning(declaration)


def _meaning(declaration: Declaration) -> dict[str, Any]:
    mode, keep = declaration.meaning()
    return {"--key": ",".join(declaration.key) or None, "--mode": mode, "--keep": keep}
