"""When a call may be made: again after a failure, and how often. Reads no clock and draws no random number itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from headway.errors import PlanError

BUDGET_FROM = 100
"""A retry budget holds from this many retries on."""


def check(who: str, **wants: tuple[bool, Any, str]) -> None:
    """Raise PlanError for the first option that is not as it must be: (whether it is, its value, what it must be)."""
    for name, (good, value, must) in wants.items():
        if not good:
            raise PlanError(f"{who}: {name} must be {must}, not {value!r}")


def seconds(value: Any, *, zero: bool = False) -> bool:
    """Whether `value` is a number of seconds: above 0, or with `zero` from 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and (value > 0 or (zero and value == 0))


@dataclass(frozen=True, slots=True)
class Retry:
    """Which failures are tried again, and when: `attempts` calls in all, for exceptions of the class or classes `on`.

    Before call n + 1 pass ``backoff * factor ** (n - 1)`` seconds, at most `max_backoff`; with `jitter`
    a share of that drawn evenly between a half and one. `budget`: after the first 100 retries of a
    stage, retries are at most this share of its calls (None: no limit). `max_pause`: most seconds for
    which one item may ask in all with `RetryAfter`, after which it fails.
    """

    attempts: int = 3
    _: KW_ONLY
    on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    backoff: float = 0.1
    factor: float = 2.0
    jitter: bool = True
    max_backoff: float = 30.0
    budget: float | None = None
    max_pause: float = 600.0

    def __post_init__(self) -> None:
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        check(
            "Retry",
            attempts=(whole(self.attempts), self.attempts, "a whole number from 1"),
            on=(
                classes != () and all(isinstance(c, type) and issubclass(c, BaseException) for c in list[Any](classes)),
                self.on,
                "an exception class, or several in a tuple",
            ),
            backoff=(seconds(self.backoff, zero=True), self.backoff, "0 or more seconds"),
            factor=(seconds(self.factor) and self.factor >= 1, self.factor, "a number from 1"),
            max_backoff=(seconds(self.max_backoff, zero=True), self.max_backoff, "0 or more seconds"),
            budget=(self.budget is None or 0 <= self.budget <= 1, self.budget, "a share between 0 and 1"),
            max_pause=(seconds(self.max_pause, zero=True), self.max_pause, "0 or more seconds"),
        )

    def covers(self, error: BaseException, attempt: int) -> bool:
        """Whether call number `attempt`, which raised `error`, is followed by another."""
        return attempt < self.attempts and isinstance(error, self.on)

    def pause_s(self, attempt: int, random: Callable[[], float]) -> float:
        """Seconds between call number `attempt` and the next."""
        pause = min(self.max_backoff, self.backoff * self.factor ** min(attempt - 1, 64))
        return pause * (0.5 + random() / 2) if self.jitter else pause


@dataclass(frozen=True, eq=False)
class RateLimit:
    """At most `rate` calls each `per` seconds, `burst` of them at once; given to several stages it is shared by them.

    `cost`: a function giving the units that the call for a value takes; without it each call is one unit.
    """

    rate: float
    _: KW_ONLY
    per: float = 1.0
    burst: float = 1
    cost: Callable[[Any], float] | None = None

    def __post_init__(self) -> None:
        check(
            "RateLimit",
            rate=(seconds(self.rate), self.rate, "a number above 0"),
            per=(seconds(self.per), self.per, "above 0 seconds"),
            burst=(seconds(self.burst) and self.burst >= 1, self.burst, "a number from 1"),
            cost=(self.cost is None or callable(self.cost), self.cost, "a function of the value"),
        )


class Bucket:
    """The state of a `RateLimit` in one run: the generic cell rate algorithm (ITU-T I.371, annex A).

    ``due`` is when the next unit would be free if units came evenly; up to `burst` may come ahead of that.
    """

    def __init__(self, limit: RateLimit) -> None:
        self.cost = limit.cost
        self._each = limit.per / limit.rate
        self._ahead = (limit.burst - 1) * self._each
        self._due = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until a call may start."""
        wait = self._due - self._ahead - now
        return wait if wait > 1e-9 else 0.0

    def most(self, now: float) -> int:
        """Calls of one unit that may start now, if one may."""
        return 1 + int((now + self._ahead - max(self._due, now)) / self._each + 1e-9)

    def take(self, units: float, now: float) -> None:
        """Calls that take `units` start now."""
        self._due = max(self._due, now) + units * self._each


def whole(value: Any) -> bool:
    """Whether `value` is a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
