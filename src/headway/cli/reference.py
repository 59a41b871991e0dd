"""MODULE:NAME on the command line, turned into the object that it names.

What does not belong here: knowledge of what kind of object a command wants.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click


def resolve(reference: str) -> object:
    """Give the object that `MODULE:NAME` names.

    MODULE is a dotted name or a path that ends in .py. The current folder and the path's folder are
    searched first, then PYTHONPATH. Both stay on `sys.path`, so that functions of the module can be
    found by name later. Raises click.ClickException, with a message that says what to change.
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
    _search_first(Path.cwd())
    _search_first(path.parent)
    module = _load(path.stem, str(path))
    if Path(module.__file__ or "").resolve() != path:
        raise click.UsageError(
            f"{path.name} has the name of another module ({module.__file__ or 'built into Python'}); rename the file"
        )
    return module


def _load_name(name: str) -> ModuleType:
    _search_first(Path.cwd())
    return _load(name, name)


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load(name: str, shown: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise click.UsageError(
                f"there is no module {name!r}; the current folder and PYTHONPATH were searched"
            ) from None
        raise click.ClickException(f"{shown} cannot be imported: {where(error)}") from error
    except Exception as error:
        raise click.ClickException(f"{shown} cannot be imported: {where(error)}") from error


def where(error: Exception) -> str:
    """Say what was raised, and on which line of whose file."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # its text names file and line
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"


def _suggest(module: ModuleType) -> str:
    from headway import Pipeline

    names = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
    return f"; its pipelines are: {', '.join(names)}" if names else ""
