"""What an import did, as a value and, above the limit of rejects, as an error. What does not belong here: counting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.errors import TooManyFailures
from headway.importer.preview import Preview


@dataclass(slots=True)
class ImportResult:
    """What an import did. `read = written + rejected + skipped + filtered`, in source rows.

    They count the whole job, also what an earlier run of it did; `resumed_at` is the row at which
    this run began, None if at the first. `seconds` and `rate` (rows/s) are of this run. `tables`:
    rows that this run added to each table; `upserts`: for tables whose rows are overwritten, output
    rows written, an overwritten one counted again. `report`: the pipeline's own.
    """

    job: str
    read: int = 0
    written: int = 0
    rejected: int = 0
    skipped: int = 0
    filtered: int = 0
    resumed_at: int | None = None
    seconds: float = 0.0
    rate: float = 0.0
    tables: dict[str, int] = field(default_factory=dict)
    upserts: dict[str, int] = field(default_factory=dict)
    report: Any = None
    reasons: dict[str, int] = field(default_factory=dict)
    """rows that this run set aside, by reason"""
    firsts: dict[str, tuple[int, str]] = field(default_factory=dict)
    """line and message of the first of each reason"""
    finished: bool = False
    """the end of the file was reached, by this run or an earlier one"""
    already_finished: bool = False
    """an earlier run had finished the job: nothing was done"""
    preview: Preview | None = None
    """of a dry run: what would be done"""

    def to_dict(self) -> dict[str, Any]:
        """Give what ``--json`` prints."""
        names = ("read", "written", "rejected", "skipped", "filtered", "resumed_at", "seconds", "rate", "tables")
        report = self.report.to_dict() if self.report is not None else {}
        return {name: getattr(self, name) for name in names} | {"report": report}


class TooManyRejects(TooManyFailures):
    """More rows were set aside than ``max_rejects`` allows. `result` says what was imported."""

    def __init__(self, message: str, result: ImportResult) -> None:
        super().__init__(message)
        self.result, self.report = result, result.report
