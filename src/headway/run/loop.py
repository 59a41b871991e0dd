"""An event loop of a run's own, which ends although a call of the user's does not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

CANCELLED_S = 0.5
"""How long tasks that are left have to take their cancellation."""


def run_on_own_loop(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but tasks that swallow their cancellation, and threads that they wait for, are left behind."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                _, left = loop.run_until_complete(asyncio.wait(left, timeout=CANCELLED_S))
            for task in left:
                # It was told of when it was given up; its end would be told as a defect of the loop.
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            if not left:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
