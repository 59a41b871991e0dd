"""Dead letters: where they are kept, on disk as one JSON object a line, and the way back.

No pickle is written or read. A value that JSON does not give back equal is kept as its `repr`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from headway.call import is_async
from headway.errors import CheckpointError, Failure, HeadwayError, PlanError
from headway.text import message, shown, told


def record(failure: Failure) -> dict[str, Any]:
    """The failure as plain data."""
    value, replayable = failure.value, True
    try:
        replayable = json.loads(json.dumps(value)) == value
    except Exception:  # its own `==` may raise anything
        replayable = False
    return {
        "seq": failure.seq if isinstance(failure.seq, int) else list(failure.seq or ()),
        "stage": failure.stage,
        "attempts": failure.attempts,
        "error": type(failure.error).__qualname__,
        "message": message(failure.error),
        "traceback": failure.traceback,
        "value": value if replayable else shown(value, None),
        "replayable": replayable,
    }


class DeadLetterFile:
    """Appends failures to a file, each one on disk before the next item's fate."""

    def __init__(self, path: str | Path) -> None:
        self._file: IO[str] = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    def write(self, failure: Failure) -> None:
        """Append one failure."""
        self._file.write(json.dumps(record(failure), ensure_ascii=True) + "\n")
        self._file.flush()

    def keep(self) -> None:
        """Bring what was appended to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


KEPT_IN_MEMORY = 10_000
"""Dead letters that are kept where the user named no place for them."""


@dataclass
class Letters:
    """Where dead letters go: a file, a list, a function, a `Sink`, or memory up to a limit."""

    place: Any
    kept: list[Failure] = field(default_factory=list)
    _write: Callable[[Failure], Any] | None = None
    _close: Callable[[], Any] | None = None
    _keep: Callable[[], Any] | None = None
    _new: bool = False

    def __post_init__(self) -> None:
        place = self.place
        if any(map(is_async, (place, *(getattr(place, name, None) for name in ("open", "write", "commit", "close"))))):
            raise PlanError("dead_letters= takes a plain function or a Sink whose methods are plain, not async ones")
        if isinstance(place, list):
            self._write = place.append
        elif hasattr(place, "write") and hasattr(place, "open"):
            place.open(None)
            self._write = lambda failure: place.write([failure])
            self._keep = lambda: place.commit({})
            self._close = lambda: (place.commit({}), place.close(None))
        elif callable(place):
            self._write = place
        elif place is not None:
            file = DeadLetterFile(place)
            self._write, self._close, self._keep = file.write, file.close, file.keep

    def take(self, failure: Failure) -> str | None:
        """Keep a failure; the reason if that is not possible."""
        failure.error.__traceback__ = None  # its text is kept; frames would hold the items of the run
        if self._write is None:
            if len(self.kept) >= KEPT_IN_MEMORY:
                return f"more than {KEPT_IN_MEMORY:,} dead letters; name a place for them with dead_letters=path"
            self.kept.append(failure)
            return None
        self._new = True
        try:
            self._write(failure)
        except Exception as error:
            return f"a dead letter could not be kept: {told(error)}"
        return None

    def keep(self) -> None:
        """Make what was set aside durable, since the run is about to be done with those items. Raises CheckpointError."""
        if self._new and self._keep is not None:
            try:
                self._keep()
            except Exception as error:
                raise CheckpointError(f"a dead letter could not be kept: {told(error)}") from error
        self._new = False

    def close(self) -> None:
        """Close the file or sink."""
        if self._close is not None:
            close, self._close = self._close, None
            close()


class read_dead_letters:  # noqa: N801 - used as a function; a class so that it can be iterated again
    """The input values of the failures in a dead-letter file, in file order: a source that can be run again.

    Raises HeadwayError at a line that holds no replayable value, naming it: that item has to be
    taken from where it came from.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __iter__(self) -> Iterator[Any]:
        with self._path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    letter = json.loads(line)
                    value, replayable = letter["value"], letter["replayable"]
                except (ValueError, KeyError, TypeError) as error:
                    raise HeadwayError(f"{self._path}, line {number}: not a dead letter ({error})") from error
                if not replayable:
                    raise HeadwayError(
                        f"{self._path}, line {number}: item {letter.get('seq')} is kept as text only ({value}) and "
                        "cannot be run again from here; take it from its source"
                    )
                yield value
