"""Events on their way to the loop of a run, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Mailbox:
    """Calls posted from any thread run on the loop, in order; one wake-up serves all that came meanwhile.

    `after` is called when none is left, `failed` with what a call raised. After the loop has
    ended posts are dropped: they are answers to a run that is over.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._loop, self._after, self._failed = loop, after, failed
        self._thread = threading.get_ident()
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._awake = False

    def post(self, call: Callable[..., Any], *args: Any) -> None:
        """Have `call` run on the loop."""
        self._calls.append((call, args))
        if not self._awake:
            self._awake = True
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._drain)
                return
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed
                self._calls.clear()

    @property
    def waiting(self) -> bool:
        """Whether a call has not run yet."""
        return bool(self._calls)

    def _drain(self) -> None:
        # Cleared first: a call posted from here on sees a sleeper and wakes it again.
        self._awake = False
        calls = self._calls
        try:
            while calls:
                call, args = calls.popleft()
                call(*args)
            self._after()
        except BaseException as error:
            self._failed(error)


def end(*futures: asyncio.Future[None]) -> None:
    """What waits for `futures` goes on."""
    for future in futures:
        if not future.done():
            future.set_result(None)
