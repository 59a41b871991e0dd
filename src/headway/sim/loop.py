"""An asyncio event loop in virtual time: its callbacks and timers are events of a `VirtualRun`.

Coroutines run on it step by step, in an order that the virtual clock alone decides. It has no sockets, threads
or processes: what needs one is refused.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn

from headway.errors import InternalError


class HeapLoop(asyncio.AbstractEventLoop):
    """`schedule(time, call)` puts an event on the clock, `now()` reads it, `refuse(what)` tells what is not there."""

    def __init__(
        self, now: Callable[[], float], schedule: Callable[[float, Callable[[], None]], None], refuse: Callable[[str], BaseException]
    ) -> None:  # fmt: skip
        self._now, self._schedule, self._refuse = now, schedule, refuse
        self.unhandled: list[dict[str, Any]] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self._now()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        """Call at this moment, behind what was asked for before."""
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule(self._now(), lambda: self._run(handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after so many virtual seconds."""
        return self.call_at(self._now() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a virtual time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._schedule(max(when, self._now()), lambda: self._run(timer))
        return timer

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:  # type: ignore[override]  # fmt: skip
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        """Never: times there are real ones."""
        return False

    def is_running(self) -> bool:
        """Whether one of its callbacks runs."""
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        """It has nothing to close."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer that was cancelled is passed over when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody has looked at."""
        self.unhandled.append(context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def _refused(self, what: str) -> NoReturn:
        raise self._refuse(what)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        """Refused: a thread."""
        self._refused("a thread")

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a socket."""
        self._refused("a socket")

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a socket."""
        self._refused("a socket")

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a socket."""
        self._refused("a socket")

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a process."""
        self._refused("a process")

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a process."""
        self._refused("a process")

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a socket."""
        self._refused("a socket")

    def finished(self, task: asyncio.Task[Any], step: Callable[[], bool]) -> Any:
        """The result of `task`: the clock goes on, by `step`, until it has one. Raises what the task raises."""
        while not task.done():
            if not step():
                raise InternalError("a set-up waits for something that cannot happen")
        return task.result()
