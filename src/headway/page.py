"""The page of a run, as a run sees it: who makes it is registered here, since it stands above everything that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headway.errors import Failure, PlanError


class Page(Protocol):
    """What a run tells its page. Every method may be called from the thread that drives the run."""

    @property
    def notes(self) -> Any:
        """Where it is noted what each slot has in hand."""

    def set_aside(self, failure: Failure) -> None:
        """An item became a dead letter."""

    def tell_letter(self, letter: dict[str, Any]) -> None:
        """The same of what is no item of the run itself: seq, stage, attempts, error, message and value, as text."""

    def begin(self) -> None:
        """The run begins: serve it."""

    def close(self) -> None:
        """It has ended: tell whoever looks, and close everything."""


makers: list[Callable[[Any, bool | str], Page]] = []
"""(run, True or "host:port") -> its page; one, registered by the package itself."""


checks: list[Callable[[bool | str], None]] = []
"""Raises PlanError for a place where no page can be, before anything has begun; one, registered likewise."""


def check_page(where: bool | str) -> None:
    """Raise PlanError where no page could be served at `where`."""
    if where:
        for check in checks:
            check(where)


def make_page(run: Any, where: bool | str) -> Page:
    """The page of `run`. Raises PlanError where it cannot be served."""
    if not makers:
        raise PlanError("ui= needs the package headway.web, which is not there")
    return makers[0](run, where)
