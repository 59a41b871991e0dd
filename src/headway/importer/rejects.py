"""The rows that the jobs of a target have set aside, to look at. What does not belong here: trying them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from headway.errors import PlanError
from headway.importer.bookkeeping import JOBS, REJECTS, Bookkeeping, RejectRecord
from headway.io.target import Address, Target


class ReasonCount(NamedTuple):
    """How many rows of a job were set aside for a reason, and the number of the first one's record."""

    stage: str
    reason: str
    rows: int
    first: int


class Rejects:
    """A target's rejects. Give `opened` an address."""

    def __init__(self, target: Target, address: Address) -> None:
        self._target, self._address = target, address

    def jobs(self, job: str | None = None) -> list[str]:
        """Give the jobs that have set rows aside; of `job` only that. Raises PlanError if there is no such job."""
        known = self._names(JOBS)
        if job is not None and job not in known:
            names = "; ".join(known) or "none"
            raise PlanError(f"there is no job {job!r} in {self._address}; its jobs: {names}")
        return [name for name in self._names(REJECTS) if job in (None, name)]

    def _names(self, table: str) -> list[str]:
        if self._target.describe(table) is None:
            return []
        return [name for (name,) in self._target.execute(f"SELECT DISTINCT job FROM {table} ORDER BY job")]

    def reasons(self, job: str) -> list[ReasonCount]:
        """Give the reasons of a job, the most frequent first."""
        sql = f"SELECT stage, reason, count(*), min(seq) FROM {REJECTS} WHERE job = ? GROUP BY stage, reason"
        found = [ReasonCount(*row) for row in self._target.execute(sql, (job,))]
        return sorted(found, key=lambda each: (-each.rows, each.first))

    def records(self, job: str, limit: int) -> list[tuple[int, RejectRecord]]:
        """Give the first rows of a job, each with the number of its attempts."""
        return Bookkeeping(self._target, job).stored_rejects(-1, limit)

    def lines(self, job: str) -> Iterator[dict[str, Any]]:
        """Give all rows of a job as ``--rejects`` writes them."""
        return Bookkeeping(self._target, job).reject_lines()


@contextmanager
def opened(text: str) -> Iterator[Rejects]:
    """Open a target that is there. Raises PlanError if it is not."""
    address = Address.parse(text)
    if not address.exists():
        raise PlanError(f"target {address}: there is no such database")
    target = address.open()
    try:
        yield Rejects(target, address)
    finally:
        target.close()
