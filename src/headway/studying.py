"""Studies of a run, as its owner asks for them: while it goes on, or by an option beside it.

How a stage is studied stands in run/study.py.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait
from typing import Any

from headway.core.plan import Plan
from headway.errors import HeadwayError
from headway.how import How
from headway.run.study import Effect, checked_study

STUDY_S = 10.0
"""Of the study that an option asks for."""
ASIDE_S = 1.0
"""How long a run that has ended waits for it to see that."""


class Studying:
    """What a run can do besides."""

    driver: Any
    ended: Any
    _name: str
    _thread: threading.Thread | None
    _task: asyncio.Task[None] | None

    def __init__(self, plan: Plan, how: How) -> None:
        if how.study is not None:
            checked_study(plan, *how.study)
        self._wanted = how.study
        self._aside: threading.Thread | None = None
        self._notes: list[str] = []
        """What studies have found."""

    def _refuse_inside(self) -> None:
        raise NotImplementedError

    def study(self, stage: str, speedup: float = 0.5, seconds: float = 10.0) -> Effect:
        """Measure what the run would give if calls of `stage` were shorter by the share `speedup`; returns after about `seconds`.

        Meanwhile everything else is made slower now and then, by as much as shows it; what comes out is the same.
        Raises PlanError for what cannot be studied, and HeadwayError where the run ends first, or too few rows come out.
        """
        self._refuse_inside()
        if self._thread is None and self._task is not None:
            raise HeadwayError("this run is on an event loop: use `await run.study_async(...)`")
        return self._studied(stage, speedup, seconds)

    async def study_async(self, stage: str, speedup: float = 0.5, seconds: float = 10.0) -> Effect:
        """As `study`, without blocking the caller's loop."""
        self._refuse_inside()
        return await asyncio.to_thread(self._studied, stage, speedup, seconds)

    def _studied(self, stage: str, speedup: float, seconds: float) -> Effect:
        found: Future[Effect] = self.driver.study(stage, speedup, seconds)
        while not wait([found], timeout=0.1).done:
            if self.ended:
                raise HeadwayError("the run ended before the study did")
        effect = found.result()
        self._notes.append(str(effect))
        return effect

    def _study_aside(self) -> None:
        """Begin the study that was asked for, if one was, beside the run, which is about to begin."""
        if self._wanted is None:
            return
        stage, speedup = self._wanted

        def study() -> None:
            try:
                self._studied(stage, speedup, STUDY_S)
            except HeadwayError as error:
                self._notes.append(f"{stage} was not studied: {error}")

        self._aside = threading.Thread(target=study, name=f"headway-{self._name}-study", daemon=True)
        self._aside.start()

    def _end_study(self) -> None:
        if self._aside is not None:
            self._aside.join(ASIDE_S)
