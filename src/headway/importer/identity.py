"""What a job was begun with: the content of its files, and the options that shape its result.

The code of a row function is not part of it: it may be mended between two runs. What does not belong
here: where it is kept, and what a difference leads to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import HeadwayError
from headway.importer.declare import Declaration
from headway.importer.schema import Field, Schema, SchemaDeclaration
from headway.io.columns import column_type
from headway.io.content import Seal
from headway.io.csv_file import CsvFile
from headway.io.csv_format import CsvFormat
from headway.io.inputs import InputFormat
from headway.io.location import Location
from headway.io.ranges import Head, InputFile
from headway.io.table import Column
from headway.io.text_file import TextFile

CONTENT = "content"
NAMES = "names"
"""The fields' names as the source has them."""
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
        NAMES: files[0].head.names,
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


class Begun(NamedTuple):
    """What a job was begun with, as far as its rows need it; `file` reads the raw text of a row again."""

    file: TextFile
    schema: Schema
    process: str | None
    declarations: list[Declaration]
    default: str | None

    @classmethod
    def read(cls, saved: str) -> Begun:
        """Read it from the text that a job keeps. Raises HeadwayError for one of an earlier version."""
        told = json.loads(saved)
        if NAMES not in told:
            raise HeadwayError("the job was begun by an earlier version of Headway, which did not note its columns")
        tables = told.get("--tables")
        if tables is None:
            declarations = [_declaration(told, told["--table"], None)]
        else:
            declarations = [_declaration(table, table["name"], table["columns"]) for table in tables]
        schema = Schema(tuple(map(Field.from_dict, told[FIELDS])))
        return cls(_file(told, len(schema.fields)), schema, told["--process"], declarations, told["--table"])


def _file(told: Mapping[str, Any], width: int) -> TextFile:
    """Give what reads a record from its raw text; a row of Parquet was noted as JSON."""
    names = tuple(told[NAMES]) if told[NAMES] is not None else None
    place = Location(""), Head(names, width, 0, 1, 0), Seal(None, 0, ""), None
    encoding = told.get("--encoding", "utf-8")
    if told["--format"] == "csv":
        return CsvFile(*place, CsvFormat(told["--delimiter"], told["--quote"], told["--escape"], encoding))
    from headway.io.jsonl_file import JsonlFile

    return JsonlFile(*place, encoding)


def _declaration(told: Mapping[str, Any], name: str, columns: Mapping[str, str] | None) -> Declaration:
    made = tuple(Column(column, column_type(kind)) for column, kind in columns.items()) if columns else None
    key = tuple(told["--key"].split(",")) if told["--key"] else ()
    return Declaration(name, made, key, told["--mode"], told["--keep"])


def differences(saved: str, now: str) -> list[str]:
    """Give the options that differ, each with its value now and then."""
    before, after = json.loads(saved), json.loads(now)
    found = []
    for name in dict.fromkeys((*after, *before)):
        then, here = before.get(name), after.get(name)
        if name in (CONTENT, FIELDS, NAMES) or then == here:
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
