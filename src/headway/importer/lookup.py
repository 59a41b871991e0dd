"""Looking values up by key, once per distinct key: an async function with a cache.

::

    @headway.lookup(key="account", workers=100, timeout=2.0, retry=Retry(3), cache=400_000)
    async def customer(key): ...

    def f(row, *, customer): ...      # what was found for row["account"]

What does not belong here: where keys come from, and the process in which an import looks them up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from random import random
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from headway.core.policy import Retry
from headway.errors import PlanError, RetryAfter
from headway.importer.rowfunction import LOOKUP, Reject

FAILED_FOR_S = 30.0
"""How long a key that failed counts as failed, before it is tried anew."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Lookup:
    """What was said about a look-up. `function` is the user's own."""

    name: str
    function: Callable[[Any], Awaitable[Any]]
    key: str
    workers: int
    timeout: float | None
    retry: Retry
    cache: int


def lookup(
    *, key: str, workers: int = 100, timeout: float | None = 2.0, retry: Retry | int = 3, cache: int = 400_000
) -> Callable[[Callable[[K], Awaitable[V]]], Callable[[K], Awaitable[V]]]:
    """Make a look-up of an async function of one key.

    `key`: the column whose values are keys; `workers`: most calls at once; `timeout`: seconds for one
    call; `retry`: calls in all, or a `Retry`; `cache`: most keys whose value is kept, the one that was
    not asked for longest goes first. None is a value like any other, so that a miss is cached too. A
    key whose calls all failed counts as failed for 30 s; ``Reject`` is not tried again.

    An import calls it in a process of its own, once per distinct key, ahead of the rows, and passes
    what was found to the row function as keyword argument of the function's name; rows whose key
    failed are set aside. Called or used in ``.map`` it takes a key and gives its value, from the same
    cache, or raises what the function raised.
    """
    policy = Retry(retry) if isinstance(retry, int) else retry
    _check(key=key, workers=workers, timeout=timeout, cache=cache, attempts=policy.attempts)

    def decorate(function: Callable[[K], Awaitable[V]]) -> Callable[[K], Awaitable[V]]:
        if not asyncio.iscoroutinefunction(function):
            raise PlanError(f"lookup: {function!r} has to be an async function: async def NAME(key)")
        made = Lookup(function.__name__, function, key, workers, timeout, policy, cache)

        @wraps(function)
        async def looked_up(key: K) -> V:
            found = await finder(made).find((key,))
            entry = found[key]
            if entry.error is not None:
                raise entry.error.with_traceback(None)
            value: V = entry.value
            return value

        setattr(looked_up, LOOKUP, made)
        return looked_up

    return decorate


def _check(*, key: Any, timeout: Any, **counts: Any) -> None:
    if not isinstance(key, str) or not key:
        raise PlanError(f'lookup: key is the name of a column, as in key="account", not {key!r}')
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PlanError(f"lookup: {name} is a whole number from 1, not {value!r}")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise PlanError(f"lookup: timeout is a number of seconds above 0, or None, not {timeout!r}")


class Entry(NamedTuple):
    """What is known of a key: its value, or why it failed and until when that holds."""

    value: Any = None
    error: BaseException | None = None
    until: float = float("inf")


class Cache:
    """Key -> entry, of at most `size` keys; the one that was not asked for longest goes. For any thread."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._entries: OrderedDict[Any, Entry] = OrderedDict()

    def get(self, key: Any, now: float) -> Entry | None:
        """Give what is known of a key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.until <= now:
                return None
            self._entries.move_to_end(key)
            return entry

    def put(self, key: Any, entry: Entry) -> None:
        """Know something of a key."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)


class _Wanted:
    """Somebody who waits for keys."""

    __slots__ = ("done", "found", "missing")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.missing = 0
        self.found: dict[Any, Entry] = {}
        self.done: asyncio.Future[None] = loop.create_future()


class Finder:
    """Calls a look-up's function for keys that are not known, on the running loop: each key once, however many ask.

    `loop` gives the time, `random` the share of a pause before a call is made again.
    """

    def __init__(self, lookup: Lookup, cache: Cache, random: Callable[[], float] = random) -> None:
        self._lookup, self._cache, self._random = lookup, cache, random
        self._paused: dict[Any, float] = {}  # seconds for which a key has asked to wait
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Any, int]] = deque()
        self._waiting: dict[Any, list[_Wanted]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, keys: Iterable[Any]) -> Mapping[Any, Entry]:
        """Give an entry for every key."""
        wanted, now = _Wanted(self._loop), self._loop.time()
        for key in keys:
            entry = self._cache.get(key, now)
            if entry is not None:
                wanted.found[key] = entry
                continue
            wanted.missing += 1
            if key in self._waiting:
                self._waiting[key].append(wanted)
            else:
                self._waiting[key] = [wanted]
                self._queue.append((key, 1))
        if wanted.missing:
            self._start()
            await wanted.done
        return wanted.found

    def _start(self) -> None:
        for _ in range(min(len(self._queue), self._lookup.workers - len(self._tasks))):
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        while self._queue:
            key, attempt = self._queue.popleft()
            try:
                async with asyncio.timeout(self._lookup.timeout):
                    entry = Entry(await self._lookup.function(key))
            except BaseException as error:  # whatever user code raises is the key's failure
                if isinstance(error, asyncio.CancelledError) and asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                if self._again(key, attempt, error):
                    continue
                entry = Entry(error=self._told(error), until=self._loop.time() + FAILED_FOR_S)
            self._settle(key, entry)

    def _again(self, key: Any, attempt: int, error: BaseException) -> bool:
        """Have a key called again after a pause, in which others have its place."""
        retry = self._lookup.retry
        if isinstance(error, RetryAfter):
            asked = self._paused[key] = self._paused.get(key, 0.0) + error.seconds
            if asked > retry.max_pause:
                return False
            self._loop.call_later(error.seconds, self._resume, key, attempt)
            return True
        if isinstance(error, Reject) or not retry.covers(error, attempt):
            return False
        self._loop.call_later(retry.pause_s(attempt, self._random), self._resume, key, attempt + 1)
        return True

    def _resume(self, key: Any, attempt: int) -> None:
        self._queue.append((key, attempt))
        self._start()

    def _told(self, error: BaseException) -> BaseException:
        if isinstance(error, TimeoutError) and not error.args:
            return TimeoutError(f"no answer within {self._lookup.timeout} s")
        error.__traceback__ = None  # it would keep the frames of the call for as long as the key is known
        return error

    def _settle(self, key: Any, entry: Entry) -> None:
        self._cache.put(key, entry)
        self._paused.pop(key, None)
        for wanted in self._waiting.pop(key):
            wanted.found[key] = entry
            wanted.missing -= 1
            if not wanted.missing and not wanted.done.done():
                wanted.done.set_result(None)


_caches: WeakKeyDictionary[Lookup, Cache] = WeakKeyDictionary()
_finders: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Lookup, Finder]] = WeakKeyDictionary()


def finder(lookup: Lookup) -> Finder:
    """Give the finder of a look-up on the running loop. All of a look-up in one process share its cache."""
    finders = _finders.setdefault(asyncio.get_running_loop(), {})
    if lookup not in finders:
        cache = _caches.setdefault(lookup, Cache(lookup.cache))
        finders[lookup] = Finder(lookup, cache)
    return finders[lookup]
