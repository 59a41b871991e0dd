"""Which tables a job writes: declared in TOML, taken from the database, or made from the header.

What does not belong here: rows.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.errors import PlanError
from headway.importer.schema import Schema, SchemaDeclaration
from headway.io.columns import Int, column_type
from headway.io.ranges import Head
from headway.io.table import Column, Table, Unique, checked_keep, default_mode
from headway.io.target import ExistingColumn, ExistingTable, Target, quoted

_KEYS = ("columns", "key", "mode", "keep")


@dataclass(frozen=True)
class Declaration:
    """What the user said about one table; `columns` is None where nothing was said."""

    name: str
    columns: tuple[Column, ...] | None = None
    key: tuple[str, ...] = ()
    mode: str | None = None
    keep: str | None = None

    def bound(self, columns: tuple[Column, ...], uniques: tuple[Unique, ...] = (), *, has_rules: bool = False) -> Table:
        """Make the table that it declares, of these columns. Raises PlanError."""
        return Table(self.name, columns, self.key, *self.meaning(), uniques, has_rules)

    def meaning(self) -> tuple[str, str | None]:
        """Give mode and keep, with their defaults. Raises PlanError."""
        mode = self.mode or default_mode(self.key)
        return mode, checked_keep(mode, self.keep, has_key=bool(self.key), table=self.name)


@dataclass(frozen=True)
class Binding:
    """How rows reach tables.

    `names`: the fields of a source row; `projection`: which of them make an output row where there
    is no row function (None: all, in order); `missing`: the tables to create.
    """

    names: tuple[str, ...]
    tables: tuple[Table, ...]
    default: str | None
    projection: tuple[int, ...] | None
    missing: tuple[Table, ...]


def read_tables(given: str | Path | Mapping[str, Any]) -> list[Declaration]:
    """Read ``[tables.NAME]`` sections, from a TOML file or a mapping of the same shape. Raises PlanError."""
    where = "tables" if isinstance(given, Mapping) else str(given)
    content = given if isinstance(given, Mapping) else _toml(Path(given))
    tables = content.get("tables")
    if not isinstance(tables, Mapping) or not tables or set(content) - {"tables"}:
        raise PlanError(f"{where}: expected sections [tables.NAME] and nothing else")
    return [_declaration(name, section, f"{where}: [tables.{name}]") for name, section in tables.items()]


def bind(
    declarations: Sequence[Declaration],
    head: Head,
    target: Target,
    *,
    has_function: bool,
    default: str | None,
    file: str | Path = "the file",
    schema: Schema | None = None,
) -> Binding:
    """Settle names, columns and types against the header, the schema and the database. Raises PlanError."""
    schema = schema if schema is not None else SchemaDeclaration().bound(SchemaDeclaration().names_of(head))
    if default is not None and default not in [declaration.name for declaration in declarations]:
        raise PlanError(f"--table {default}: the tables declared are {', '.join(d.name for d in declarations)}")
    if len(declarations) > 1 and not has_function:
        raise PlanError("several tables need a row function that says what goes where: --process MODULE:FUNCTION")
    names = schema.names
    tables, missing = [], []
    plain = default if len(declarations) > 1 else declarations[0].name  # the table of a plain row
    for declaration in declarations:
        existing = target.describe(declaration.name)
        if declaration.columns is None and existing is None:
            columns = schema.columns()
            if not columns:
                raise PlanError(f"{file} is empty: there is no header to make a table from")
        else:
            columns = declaration.columns or _adopted(
                declaration.name, existing, schema, head, target, has_function=has_function
            )
        if existing is None:
            unique = schema.uniques([column.name for column in columns]) if declaration.name == plain else ()
            missing.append(declaration.bound(columns, unique))
            tables.append(missing[-1])
        else:
            columns = tuple(_checked(declaration.name, column, existing, target) for column in columns)
            table = declaration.bound(columns, existing.uniques, has_rules=existing.has_rules)
            _check_rest(table, existing)
            tables.append(_kept_unique(table, schema) if declaration.name == plain else table)
    projection = None
    if not has_function:
        names, projection = _projection(tables[0], names, head)
    default = plain
    _check_uniques(schema, next((table for table in tables if table.name == plain), None))
    return Binding(names, tuple(tables), default, projection, tuple(missing))


class TableCame(Exception):
    """A table that was missing is there now."""


def create_missing(target: Target, binding: Binding) -> None:
    """Create the tables that are not there, inside a transaction, and what keeps their columns unique.

    Raises TableCame where another job has made one since they were looked for.
    """
    if any(target.describe(table.name) is not None for table in binding.missing):
        raise TableCame
    for table in binding.missing:
        target.create(table)
        for unique in table.uniques:
            columns = ", ".join(map(quoted, unique.columns))
            name = "_".join((table.name, *unique.columns, "unique"))
            target.execute(f"CREATE UNIQUE INDEX {quoted(name)} ON {quoted(table.name)} ({columns})")


def _projection(table: Table, names: tuple[str, ...], head: Head) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Say which source fields make the table's columns: by name, without a header by position."""
    if head.names is None and len(table.names) == head.width:
        return table.names, None
    places = {name.casefold(): index for index, name in enumerate(names)}
    for name in table.names:
        if name.casefold() not in places:
            raise PlanError(f"table {table.name}: column {name!r} is not in the file, which has {', '.join(names)}")
    projection = tuple(places[name.casefold()] for name in table.names)
    return names, None if projection == tuple(range(head.width)) else projection


def _adopted(
    table: str, existing: ExistingTable | None, schema: Schema, head: Head, target: Target, *, has_function: bool
) -> tuple[Column, ...]:
    """Take the columns from a table that is there: all for a function or without a header, else the file's."""
    columns = existing.columns if existing is not None else ()
    by_name = {column.name.casefold(): column for column in columns}
    if has_function or (head.names is None and len(columns) == head.width):
        chosen = list(columns)
    else:
        unknown = [name for name in schema.names if name.casefold() not in by_name]
        if unknown:
            raise PlanError(
                f"table {table} has no column {unknown[0]!r} as the file does; it has "
                f"{', '.join(column.name for column in columns)}. Choose another --table, or declare it with --tables"
            )
        chosen = [by_name[name.casefold()] for name in schema.names]
    fields = {field.name.casefold(): field for field in schema.fields if field.settled}
    adopted = []
    for column in chosen:
        field = fields.get(column.name.casefold())
        if field is None or (has_function and not target.holds(field.type, column)):
            adopted.append(Column(column.name, _type_of(table, column), column.required))
        else:  # what a function gives is not bound to the field's rules, only to its type
            required = column.required or (field.required and not has_function)
            adopted.append(Column(column.name, field.type, required))
    return tuple(adopted)


def _kept_unique(table: Table, schema: Schema) -> Table:
    """Give the table with the schema's own reason for what it keeps unique."""
    ours = {unique.columns: unique for unique in schema.uniques(table.names)}
    return replace(table, uniques=tuple(ours.get(unique.columns, unique) for unique in table.uniques))


def _check_uniques(schema: Schema, table: Table | None) -> None:
    """Refuse a unique column that nothing keeps unique."""
    kept = [unique.columns for unique in table.uniques] + [table.key] if table is not None else []
    names = {name.casefold(): name for name in table.names} if table is not None else {}
    for field in schema.fields:
        if not field.unique:
            continue
        column = names.get(field.name.casefold())
        if table is None or column is None:
            where = f"table {table.name}" if table is not None else "a table that plain rows go to"
            raise PlanError(
                f"the schema's column {field.name!r} is unique, which {where} would keep; it has no such one"
            )
        if (column,) not in kept:
            raise PlanError(
                f"table {table.name} is there already and nothing keeps ({column}) unique in it; "
                f"create a unique index on ({column}) first, or choose another --table"
            )


def _type_of(table: str, column: ExistingColumn) -> Any:
    if column.type is None:
        raise PlanError(
            f"table {table}: column {column.name} is {column.declared}; no type of ours is exactly that. "
            "Declare the column with --tables, or import into another table"
        )
    return column.type


def _checked(table: str, column: Column, existing: ExistingTable, target: Target) -> Column:
    """Compare one column with the table in the database, whose spelling and limits count."""
    there = next((found for found in existing.columns if found.name.casefold() == column.name.casefold()), None)
    if there is None:
        names = ", ".join(found.name for found in existing.columns)
        raise PlanError(f"table {table} is there already and has no column {column.name!r}; it has {names}")
    kind = column.type
    if isinstance(kind, Int) and isinstance(there.type, Int):
        kind = there.type
    elif not target.holds(kind, there):
        raise PlanError(
            f"table {table} is there already; its column {there.name} is {there.declared or 'without a type'}, "
            f"which does not hold every {kind} exactly"
        )
    return replace(column, name=there.name, type=kind, required=column.required or there.required)


def _check_rest(table: Table, existing: ExistingTable) -> None:
    given = set(table.names)
    for column in existing.columns:
        if column.name not in given and column.required and not column.has_default:
            raise PlanError(f"table {table.name}: column {column.name} must not be empty, and nothing fills it")
    if table.key and not any(set(unique.columns) == set(table.key) for unique in existing.uniques):
        columns = ", ".join(table.key)
        raise PlanError(
            f"table {table.name} is there already and nothing keeps ({columns}) unique in it; "
            f"create a unique index on ({columns}) first, or choose another --table"
        )


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"--tables {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"--tables {path}: {error}") from None


def _declaration(name: str, section: Any, where: str) -> Declaration:
    if not isinstance(section, Mapping) or not isinstance(section.get("columns"), Mapping):
        raise PlanError(f'{where}: expected columns = {{ id = "int", ... }}')
    if unknown := set(section) - set(_KEYS):
        raise PlanError(f"{where}: {min(unknown)!r} is not known; there are {', '.join(_KEYS)}")
    columns = []
    for column, kind in section["columns"].items():
        if not isinstance(kind, str):
            raise PlanError(f"{where}: the type of column {column!r} must be a text")
        try:
            columns.append(Column(column, column_type(kind)))
        except PlanError as error:
            raise PlanError(f"{where}: column {column}: {error}") from None
    key = section.get("key", ())
    key = (key,) if isinstance(key, str) else tuple(key)
    declaration = Declaration(name, tuple(columns), key, section.get("mode"), section.get("keep"))
    try:
        declaration.bound(declaration.columns or ())
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None
    return declaration
