"""The user's row function: what it is given, what it may return, and how it is found.

What does not belong here: reading rows, and what a table's columns are.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from headway.errors import PlanError
from headway.loading import load_named, loaded, search_first

F = TypeVar("F", bound=Callable[..., Any])

LOOKUP = "__headway_lookup__"
"""The attribute of a function that `headway.lookup` made."""
_PER_BATCH = "__headway_per_batch__"

OutputRow = Mapping[str, Any] | Sequence[Any]


class Reject(Exception):
    """Raised by a row function: set this row aside, for `reason` (a short name) and an optional `message`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(reason, message)
        self.reason, self.message = str(reason), str(message)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


class Rows(dict[str, Any]):
    """Rows for several tables, returned by a row function: ``rows(ledger={...}, balances=[{...}, {...}])``.

    Each table gets a row (a mapping, or a sequence in column order) or a list of rows. They stand
    or fall together with all that came from the same source row.
    """

    __slots__ = ()


rows = Rows


class RowFunction(NamedTuple):
    """A row function ready to be called as ``call(row, *state, **found)``."""

    call: Callable[..., Any]
    state: tuple[Any, ...]
    close: Callable[[], None]
    per_batch: bool = False
    """whether it takes an Arrow record batch instead of a row"""


def per_batch(function: F) -> F:
    """Mark a row function as one that takes and returns an Arrow record batch (or a table); see `batchfunction`.

    Types are those of the schema, text without one. If it raises, each half of the batch is tried
    alone, so that only the rows that raise are set aside.
    """
    setattr(function, _PER_BATCH, True)
    return function


def is_per_batch(function: Callable[..., Any]) -> bool:
    """Whether a function was marked."""
    return bool(getattr(function, _PER_BATCH, False))


def lookups_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Give the look-ups whose values a row function takes: by the names of its keyword-only parameters.

    They are found in its own module. Raises PlanError for a parameter that nothing fills.
    """
    inner = inspect.unwrap(function)
    names = getattr(inner, "__globals__", {})
    found = {}
    for name, parameter in _parameters(function).items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        lookup = getattr(names.get(name), LOOKUP, None)
        if lookup is not None:
            found[name] = lookup
        elif parameter.default is parameter.empty:
            raise PlanError(
                f"row function {_name(function)}: its parameter {name!r} stands for a look-up, and its module has none "
                f'of that name; write @headway.lookup(key="COLUMN") before an async function {name}(key)'
            )
    if found and is_per_batch(function):
        raise PlanError(f"row function {_name(function)}: a function per batch takes no look-ups")
    return found


def load(reference: str | Callable[..., Any]) -> tuple[Callable[..., Any], Callable[[], Any] | None]:
    """Find ``MODULE:FUNCTION``; give the function and the module's `setup`, if it has one.

    MODULE is a dotted name or the path of a .py file; the current folder and the file's own folder
    are searched. A callable is taken as it is, without a `setup`. Raises PlanError saying what is
    missing, or that the function does not take what it would be given.
    """
    if callable(reference):
        return reference, None
    name, colon, attribute = reference.rpartition(":")
    if not colon or not name or not attribute:
        raise PlanError(f"row function {reference!r}: write MODULE:FUNCTION, as in --process rules.py:check")
    module = _module(name)
    function = getattr(module, attribute, None)
    if not callable(function):
        names = sorted(n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__)
        raise PlanError(f"row function: {name} has no function {attribute!r}; it has {', '.join(names) or 'none'}")
    setup = getattr(module, "setup", None)
    setup = setup if callable(setup) else None
    _check_arguments(function, reference, given=1 if setup is None else 2)
    return function, setup


def prepare(reference: str | Callable[..., Any]) -> RowFunction:
    """Load a row function and run its module's `setup`, whose result is the `state`.

    An async function is driven to its end row by row on a loop of its own; what an async generator
    yields is collected. Whatever `setup` raises goes to the caller.
    """
    function, setup = load(reference)
    per_batch = is_per_batch(function)
    if not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)) and (
        setup is None or not inspect.iscoroutinefunction(setup)
    ):
        return RowFunction(function, () if setup is None else (setup(),), lambda: None, per_batch)
    import asyncio  # takes as long to import as all else of a worker

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    state: tuple[Any, ...] = () if setup is None else (setup(),)
    if state and inspect.isawaitable(state[0]):
        state = (run(_awaited(state[0])),)
    call = function
    if inspect.isasyncgenfunction(function):
        call = lambda *given, **found: iter(run(_collected(function(*given, **found))))  # noqa: E731
    elif inspect.iscoroutinefunction(function):
        call = lambda *given, **found: run(function(*given, **found))  # noqa: E731
    return RowFunction(call, state, loop.close, per_batch)


def is_stream(output: Any) -> bool:
    """Whether a row function's output is something that yields rows."""
    return isinstance(output, (Generator, Iterator))


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


async def _collected(stream: AsyncGenerator[Any, None]) -> list[Any]:
    return [row async for row in stream]


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return {}


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))


def _check_arguments(function: Callable[..., Any], reference: str, *, given: int) -> None:
    lookups = lookups_of(function)
    try:
        inspect.signature(function).bind(*range(given), **lookups)
    except TypeError:
        what = "batch" if is_per_batch(function) else "row"
        takes = f"a {what} and what the module's setup() returned"
        if given == 1:
            takes = (
                f"a {what}; a second parameter is for what the module's setup() returned, and the module has no setup()"
            )
        raise PlanError(f"row function: {reference} has to take {takes}") from None
    except ValueError:  # a builtin without a signature
        return


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        return _module_of_file(Path(name))
    search_first(Path.cwd())
    return load_named(name)


def _module_of_file(path: Path) -> ModuleType:
    """Import a file under a name of its own, so that one called as another module is no trouble."""
    path = path.resolve()
    if not path.is_file():
        raise PlanError(f"row function: {path}: there is no such file")
    search_first(Path.cwd(), path.parent)
    name = f"headway_row_function_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"row function: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module

    execute = spec.loader.exec_module

    def load() -> ModuleType:
        execute(module)
        return module

    return loaded(load, str(path))
