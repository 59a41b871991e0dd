"""MODULE:NAME on the command line, turned into the object that it names.

What does not belong here: knowledge of what kind of object a command wants.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import click

from headway.loading import load_named, search_first


def resolve(reference: str) -> object:
    """Give the object that `MODULE:NAME` names.

    MODULE is a dotted name or a path that ends in .py. The current folder and the path's folder are
    searched first, then PYTHONPATH. Both stay on `sys.path`, so that functions of the module can be
    found by name later. Raises click.ClickException or PlanError, with a message that says what to
    change.
    """
    module_name, _, name = reference.rpartition(":")
    if not module_name or not name:
        raise click.UsageError(f"{reference!r} is not of the form MODULE:NAME, as in jobs.py:pipeline")
    module = _load_file(Path(module_name)) if module_name.endswith(".py") else _load_name(module_name)
    found: object = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise click.UsageError(f"{module_name} has no {name!r}{_suggest(module)}") from None
    return found


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.UsageError(f"there is no file {path}")
    path = path.resolve()
    search_first(Path.cwd(), path.parent)
    module = load_named(path.stem, str(path))
    if Path(module.__file__ or "").resolve() != path:
        raise click.UsageError(
            f"{path.name} has the name of another module ({module.__file__ or 'built into Python'}); rename the file"
        )
    return module


def _load_name(name: str) -> ModuleType:
    search_first(Path.cwd())
    return load_named(name)


def _suggest(module: ModuleType) -> str:
    from headway import Pipeline

    names = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
    return f"; its pipelines are: {', '.join(names)}" if names else ""
