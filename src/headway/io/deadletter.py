"""Dead letters on disk: one JSON object a line, and the way back.

No pickle is written or read. A value that JSON does not give back equal is kept as its `repr`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from headway.errors import Failure, HeadwayError
from headway.text import message, shown


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

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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
