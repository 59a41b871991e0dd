"""How many rejects are allowed. What does not belong here: what a reject is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import PlanError

ARMED_AFTER = 1000
"""Records before a share of rejects means anything."""


@dataclass(frozen=True)
class RejectLimit:
    """`most`: a count; `share`: a share of the records. At most one of them is set."""

    most: int | None = None
    share: float | None = None
    text: str = "no limit"

    @classmethod
    def parse(cls, given: int | str | None) -> RejectLimit:
        """Read ``N`` or ``P%``. Raises PlanError."""
        if given is None:
            return cls()
        text = str(given).strip()
        try:
            if text.endswith("%"):
                share = float(text[:-1]) / 100
                if 0 <= share <= 1:
                    return cls(share=share, text=text)
            elif (most := int(text)) >= 0:
                return cls(most=most, text=text)
        except ValueError:
            pass
        raise PlanError(f"--max-rejects {text}: give a count as in 100, or a share of the records as in 0.5%")

    def stop(self, records_before: int, rejects_before: int, records: int, rejects: Sequence[int]) -> int | None:
        """Give the first of the next `records` records that may not be taken any more, or None.

        `rejects` are the records among them that are rejects, ascending, from 0.
        """
        if self.most is not None:
            left = self.most - rejects_before
            return rejects[left] if len(rejects) > left else None
        if self.share is None:
            return None
        arming = ARMED_AFTER - records_before  # this many more records arm it
        early = sum(1 for index in rejects if index < arming)
        if 0 < arming <= records and rejects_before + early > self.share * ARMED_AFTER:
            return arming
        for number, index in enumerate(rejects[early:], rejects_before + early + 1):
            if number > self.share * (records_before + index + 1):
                return index
        return None

    def exceeded(self, records: int, rejects: int) -> bool:
        """Whether a whole file had too many."""
        if self.most is not None:
            return rejects > self.most
        return self.share is not None and rejects > self.share * records
