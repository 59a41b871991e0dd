"""A run on the calling thread, as its owner holds it: iterated, and reported at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from time import perf_counter
from typing import Any, Generic, TypeVar

from headway.core.plan import Plan
from headway.errors import raise_clean
from headway.how import How
from headway.io.deadletter import Letters
from headway.run.inline import InlineDriver, ignored_by_inline, on_this_thread
from headway.run.outlet import take_one
from headway.watch.progress import Progress
from headway.watch.report import Report, make_report, undisturbed

T = TypeVar("T")


class InlineRun(Generic[T]):
    """Runs every stage where it is iterated. ``report`` is there when the values have ended."""

    def __init__(self, plan: Plan, source: Any, name: str, how: How, size: Any) -> None:
        self._letters = Letters(how.dead_letters)
        self._checkpoint = how.make_checkpoint(plan, source, name, self._letters, self._letters.close)
        self._driver = InlineDriver(plan, source, set_aside=self._letters.take, size=size, checkpoint=self._checkpoint)
        self._name, self._ignored = name, ignored_by_inline(plan)
        self._progress = Progress(how.progress, lambda: self._report().figures(), how.total) if how.progress else None
        self.report: Report

    async def avalues(self) -> AsyncGenerator[T, None]:
        """The outputs. Raises what ended the run."""
        driver, hand = self._driver, list[T]()
        values = driver.values()
        if self._progress is not None:
            self._progress.begin()
        try:
            while await take_one(values, hand):
                yield hand.pop()
        except GeneratorExit:
            await values.aclose()
            if driver.unclosed:
                raise_clean(driver.unclosed[0])
            raise
        finally:
            await values.aclose()
            self._letters.close()
            if self._progress is not None:
                self._progress.close()
        self.report = self._report()
        error = driver.error()
        if error is not None:
            if hasattr(error, "report"):
                error.report = self.report
            raise_clean(error)

    def _report(self) -> Report:
        engine = self._driver.engine
        return undisturbed(
            lambda: make_report(
                engine,
                self._name,
                perf_counter(),
                dead_letters=self._letters.kept,
                ignored=self._ignored,
                job=self._checkpoint.told(),
            )
        )

    def values(self) -> Generator[T, None, None]:
        """The same without an event loop, unless a stage needs one."""
        try:
            yield from on_this_thread(self.avalues(), asynchronous=self._driver.asynchronous)
        finally:
            self._letters.close()
