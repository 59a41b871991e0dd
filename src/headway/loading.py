"""A user's module, imported by name or from a file, with errors that name the user's own line.

What does not belong here: what is looked for in the module.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from headway.errors import PlanError
from headway.text import message, told

_LIBRARIES = (
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    Path(__file__).parent,
)


def search_first(*folders: Path) -> None:
    """Put folders before everything else that is searched, the last one first; they stay there."""
    for folder in folders:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def load_named(name: str, shown: str | None = None) -> ModuleType:
    """Import a module by its dotted name; messages call it `shown`. Raises PlanError."""
    return loaded(lambda: import_module(name), shown or name, name)


def loaded(load: Callable[[], ModuleType], shown: str, name: str = "") -> ModuleType:
    """Give what `load` imports. Whatever the module does while it is imported becomes a PlanError."""
    try:
        return load()
    except SystemExit as error:
        code = "" if error.code is None else repr(error.code)
        raise PlanError(f"{shown} called sys.exit({code}) while it was imported") from error
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and name and (name == missing or name.startswith(f"{missing}.")):
            raise PlanError(
                f"there is no module {name!r}; the current folder and Python's path were searched"
            ) from None
        raise PlanError(f"{shown} cannot be imported: {where(error)}") from error


def where(error: BaseException) -> str:
    """Say what was raised, and on which line of the user's files; of a library's where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # its text names file and line
        return told(error)
    frame = next((frame for frame in reversed(frames) if _is_users(frame.filename)), frames[-1])
    return f"{type(error).__name__}: {message(error)} ({frame.filename}, line {frame.lineno})"


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in _LIBRARIES)
