"""The options of an import, by name and type. What does not belong here: what they do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from headway.errors import PlanError
from headway.io.location import Location, same_file
from headway.io.target import Address
from headway.machine import cores


class ImportOptions(TypedDict, total=False):
    """What `import_file` takes besides source and target: the options of ``headway import``, with underscores."""

    table: str | None
    format: str | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    encoding: str | None
    no_header: bool
    key: str | Sequence[str]
    mode: Literal["append", "upsert", "replace", "ignore", "fail"] | None
    keep: Literal["first", "last"] | None
    process: str | Callable[..., Any] | None
    tables: str | Path | Mapping[str, Any] | None
    schema: str | Path | Mapping[str, Any] | None
    column: Sequence[str] | Mapping[str, str]
    workers: int | Literal["auto"]
    max_rejects: int | str | None
    rejects: str | Path | None
    job: str | None
    restart: bool
    accept_changed: bool
    dry_run: bool
    ui: bool | str


def workers_of(given: int | str) -> int:
    """The number of worker processes; "auto": one for each processor. Raises PlanError for what is no number."""
    if given == "auto":
        return cores()
    try:
        workers = int(given)
    except ValueError:
        workers = 0
    if workers < 1:
        raise PlanError(f"--workers {given}: give a number of processes from 1, or auto")
    return workers


def rejects_file(given: str | os.PathLike[str] | None, sources: Sequence[Location], target: Address) -> Path | None:
    """Where the rejects are to be written, a link followed. Raises PlanError if that is no file that may be replaced."""
    if given is None:
        return None
    path = Path(given).resolve()
    if not path.parent.is_dir():
        raise PlanError(f"--rejects {given}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise PlanError(f"--rejects {given} is no file: it would be replaced; name a file of its own")
    theirs = [("target", target.path), *(("source", Path(each.address)) for each in sources if each.is_file)]
    for what, other in theirs:
        if other is not None and same_file(path, other):
            raise PlanError(f"--rejects {given} is the {what}: it would be replaced; name a file of its own")
    return path
