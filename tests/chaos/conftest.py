"""What the chaos suite came to is told at its end, also where several processes share it."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from chaos.runs import Tally

TOTALS = Tally()


def pytest_sessionfinish(session: Any) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        told = {field.name: getattr(TOTALS, field.name) for field in fields(TOTALS)}
        output["chaos"] = {name: dict(value) if isinstance(value, Counter) else value for name, value in told.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get("chaos")
    if told:
        TOTALS.add(
            Tally(**{name: Counter(value) if isinstance(value, dict) else value for name, value in told.items()})
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TOTALS.runs:
        terminalreporter.write_sep("=", "chaos")
        terminalreporter.write_line(str(TOTALS))
