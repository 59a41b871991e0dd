"""The batch function of `import_batches`."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

import headway


@headway.per_batch
def check(batch: Any) -> Any:
    """Set entries of too large an amount aside."""
    return headway.reject(batch, pc.greater(pc.abs(batch["amount"]), 1_000_000), "too_large")
