"""What a stage sets up: one for each worker, or with `shared` one for all workers of the stage in a process."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Marks a factory whose result all workers of a stage in one process use. Made by `shared`."""

    def __init__(self, factory: Callable[[], T]) -> None:
        self.factory = factory

    def __call__(self) -> T:
        """What the factory returns, not shared with anybody."""
        return self.factory()


def shared(factory: Callable[[], T]) -> Shared[T]:
    """For ``setup=``: call `factory` once for each stage and process instead of once for each worker.

    The threads or tasks of the stage then all get the same object (a process worker has its own), so it has
    to be safe to be used by several at a time. It may be what ``setup=`` takes otherwise: a function, a context
    manager or an async context manager, entered by the worker that opens first and left by the one that
    closes last. An async one is bound to the loop where it is entered: give it to a stage on tasks.
    """
    return Shared(factory)


async def settled(result: Any) -> Any:
    """`result`, or what it comes to if it can be awaited."""
    return await result if inspect.isawaitable(result) else result


class Resource:
    """What one worker has set up: ``made`` is what the factory returned, `enter` gives what the function gets.

    Raises what the factory and its context manager raise.
    """

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.made = factory()
        self._leave: Callable[..., Any] | None = None

    async def enter(self) -> Any:
        """Await or enter what was made."""
        made = await settled(self.made)
        if hasattr(made, "__aenter__"):
            self._leave, made = made.__aexit__, await made.__aenter__()
        elif hasattr(made, "__enter__"):
            self._leave, made = made.__exit__, made.__enter__()
        return made

    async def leave(self, error: BaseException | None) -> None:
        """Leave it, once, if it was entered."""
        leave, self._leave = self._leave, None
        if leave is not None:
            await settled(leave(type(error) if error else None, error, None))


class Common:
    """The one resource of all workers of a stage in this process: made and entered by the first, left by the last.

    Workers that come while it is being opened wait for that; if it fails all of them fail with the same error.
    After the last has left, the next makes another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._opening: Future[Any] | None = None
        self._making: Future[Resource] | None = None

    def __reduce__(self) -> tuple[type[Common], tuple[()]]:
        return Common, ()  # another process has its own

    def make(self, factory: Callable[[], Any]) -> SharedResource:
        """A worker begins to use it. Raises what the factory raises."""
        with self._lock:
            self._users += 1
            making, first = self._making, self._making is None
            if making is None:
                making = self._making = Future()
                self._opening = Future()
            opening = self._opening
        assert opening is not None
        if first:
            try:
                making.set_result(Resource(factory))
            except BaseException as error:
                making.set_exception(error)
        try:
            return SharedResource(self, making.result(), opening, first=first)
        except BaseException:
            self.release()
            raise

    def release(self) -> bool:
        """A worker has ended; whether it was the last."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._making = self._opening = None
            return self._users == 0


class SharedResource:
    """One worker's hold of a `Common`; used like a `Resource`."""

    def __init__(self, common: Common, resource: Resource, opening: Future[Any], *, first: bool) -> None:
        self._common, self._resource, self._opening, self._first = common, resource, opening, first
        self._held = True
        self.made = resource.made

    async def enter(self) -> Any:
        """What the first worker's `enter` gave."""
        if self._first:
            try:
                self._opening.set_result(await self._resource.enter())
            except BaseException as error:
                self._opening.set_exception(error)
        elif not self._opening.done() and _on_loop():  # without a loop `result` waits
            import asyncio  # not by a child process that waits for nothing

            opening = asyncio.wrap_future(self._opening)
            await asyncio.wait([opening])  # not itself: cancelled with this task, it would cancel the others'
            opening.exception()
        return self._opening.result()

    async def leave(self, error: BaseException | None) -> None:
        """Let go of it; the last one leaves it."""
        if self._held:
            self._held = False
            if self._common.release():
                await self._resource.leave(error)


def _on_loop() -> bool:
    try:
        import asyncio

        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
