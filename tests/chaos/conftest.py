"""What the chaos suite came to is told at its end."""

from __future__ import annotations

from typing import Any

from chaos.runs import Tally

TOTALS = Tally()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TOTALS.runs:
        terminalreporter.write_sep("=", "chaos")
        terminalreporter.write_line(str(TOTALS))
