"""The states of a scan, by key; nothing here calls the user's function."""

from __future__ import annotations

import copy
from typing import Any

from headway.claim import Cell


class States:
    """One state for each key that was seen, the first made from `initial`: a value to copy, or a function that makes it.

    `kept` is where they are; workers of one stage share it, and no two have an item of one key at a time.
    """

    def __init__(self, initial: Any, kept: dict[Any, Any] | None) -> None:
        self._initial = initial
        self.kept = {} if kept is None else kept

    def before(self, key: Any) -> Any:
        """The state that the next item of `key` finds."""
        if key in self.kept:
            return self.kept[key]
        return self._initial() if callable(self._initial) else copy.deepcopy(self._initial)

    def settle(self, key: Any, pair: Any, cell: Cell, *, timed: bool) -> Any:
        """Keep the state of `pair`, what the function returned; the other half is the output.

        Where the call may be given up, that and this exclude each other. Raises TypeError for what is no pair.
        """
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"the function of a scan returns (state, output), not {type(pair).__name__}")
        if not timed:
            self.kept[key] = pair[0]
            return pair[1]
        with cell.lock:
            if not cell.abandoned:
                self.kept[key] = pair[0]
                cell.began = None
        return pair[1]
