"""What user code may raise and what may travel as a value. Importable, so that child processes find the classes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

from headway import DROP


class Fatal(BaseException):
    """Not an Exception."""


class Unloadable(Exception):
    """Can be pickled and not unpickled: the constructor wants more than ``args`` holds."""

    def __init__(self, text: str, more: int) -> None:
        super().__init__(text)
        self.more = more


class Unsendable(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad"),
    "StopIteration": lambda: StopIteration("bad"),
    "StopAsyncIteration": lambda: StopAsyncIteration("bad"),
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": lambda: GeneratorExit("bad"),
    "CancelledError": lambda: asyncio.CancelledError("bad"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("bad"),
    "Fatal": lambda: Fatal("bad"),
    "Unloadable": lambda: Unloadable("bad", 1),
    "Unsendable": lambda: Unsendable("bad"),
    "Mute": Mute,
    "ExceptionGroup": lambda: ExceptionGroup("bad", [ValueError("one"), KeyError("two")]),
    "MemoryError": lambda: MemoryError("bad"),
}
TEXTS = dict.fromkeys(ERRORS, "bad") | {
    "SystemExit": "3",
    "Mute": "(no text)",
    "ExceptionGroup": "bad (2 sub-exceptions)",
}


def make_error(name: str) -> BaseException:
    """A new error."""
    return ERRORS[name]()


def errors_of(mode: str) -> list[str]:
    """Names of the errors that are an item's failure in `mode`: on the calling thread Ctrl-C is not."""
    return [name for name in ERRORS if mode != "inline" or name != "KeyboardInterrupt"]


async def breathe() -> None:
    """Wait for one turn of the loop, where there is one (the virtual clock has none)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    await asyncio.sleep(0)  # a point where it is left to the loop


class Alike:
    """Equal to everything, DROP too."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(DROP)

    def __repr__(self) -> str:
        return "DROP"


class Touchy:
    """Every question about it raises, save what pickling asks."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("no attributes")


class OnlyIn:
    """Can be unpickled in the process that made it, or only in others."""

    def __init__(self, *, home: bool) -> None:
        self.home = home

    def __reduce__(self) -> Any:
        return _make_only_in, (os.getpid(), self.home)


def _make_only_in(pid: int, home: bool) -> OnlyIn:
    if (os.getpid() == pid) != home:
        raise ValueError("the wrong process")
    return OnlyIn(home=home)


PAYLOADS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "exception": lambda: ValueError("a value"),
    "base exception": lambda: Fatal("a value"),
    "StopIteration": lambda: StopIteration(1),
    "exception class": lambda: StopIteration,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "NaN": lambda: float("nan"),
    "text DROP": lambda: "DROP",
    "equal to DROP": Alike,
    "class Drop": lambda: type(DROP),
    "touchy": Touchy,
    "False": lambda: False,
    "zero": lambda: 0,
    "empty list": list,
    "empty dict": dict,
    "empty text": str,
    "empty bytes": bytes,
    "empty tuple": tuple,
    "empty set": set,
    "huge int": lambda: 10**5000,
    "surrogate": lambda: "\ud800",
    "class": lambda: Alike,
    "function": lambda: breathe,
    "builtin": lambda: len,
    "memory": lambda: bytearray(b"x"),
    "range": lambda: range(3),
    "nested": lambda: [None, [()], {"a": {1: ...}}],
}
