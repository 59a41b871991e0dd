"""Server-sent events of one run: numbered, kept for a minute, so that a dropped connection goes on where it was."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

from headway.web.texts import encode

KEPT_S = 60.0
KEEP_ALIVE_S = 15.0


class Feed:
    """Events for any number of readers, all on one event loop."""

    def __init__(self) -> None:
        self._ring: deque[tuple[int, float, bytes]] = deque()
        self._number = 0
        self._news = asyncio.Event()
        self.ended = False

    def publish(self, event: str, data: Any) -> None:
        """Give `data` to everyone who reads."""
        self._number += 1
        text = b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, event.encode(), encode(data))
        now = monotonic()
        self._ring.append((self._number, now, text))
        while self._ring[0][1] < now - KEPT_S:  # the newest stays, so there is always one
            self._ring.popleft()
        self._news.set()
        self._news = asyncio.Event()

    def end(self, data: Any) -> None:
        """The last event."""
        if not self.ended:
            self.ended = True
            self.publish("end", data)

    def over(self, last: int | None) -> bool:
        """Whether a reader that has seen `last` has seen all there will be."""
        return self.ended and last is not None and last >= self._number

    async def follow(self, last: int | None) -> AsyncIterator[bytes]:
        """The events behind number `last`; of a number that was never given, all that are kept."""
        at = last if last is not None and last <= self._number else 0
        yield b"retry: 1000\n\n"
        while True:
            news, waiting = self._news, [text for number, _, text in self._ring if number > at]
            for text in waiting:
                yield text
            at = max(at, self._number if waiting else at)
            if self.ended and at >= self._number:
                return
            if not waiting:
                try:
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"


def event_id(given: str | None) -> int | None:
    """A Last-Event-ID header as a number; None for what is none of ours."""
    return int(given) if given is not None and given.isascii() and given.isdigit() and len(given) < 19 else None
