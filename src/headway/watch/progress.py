"""Progress of a run while it goes on: a table on a terminal, HTML in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from headway.watch.glance import Glance

LINE_S = 5.0
"""Between two lines where there is no terminal."""
DRAW_S = 0.25


class Progress:
    """Shows on standard error what `look` gives, on a thread of its own. `how`: True (a terminal decides), "rich" or "log"."""

    def __init__(self, how: bool | str, look: Callable[[], Mapping[str, Any]], total: int | None = None) -> None:
        self._look, self._glance = look, Glance(total)
        self._ended = threading.Event()
        self._notebook = _notebook() if how is True else None
        self._terminal = how == "rich" or (how is True and self._notebook is None and sys.stderr.isatty())
        self._thread = threading.Thread(target=self._show, name="headway-progress", daemon=True)

    def begin(self) -> None:
        """The run begins."""
        self._thread.start()

    def close(self) -> None:
        """The run has ended."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        notebook = self._notebook
        if notebook is not None:
            self._show_each(DRAW_S, lambda: notebook.show(self._glance.page()), last=True)
        elif self._terminal:
            from rich.console import Console
            from rich.live import Live

            with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
                self._show_each(DRAW_S, lambda: live.update(self._glance.drawn(), refresh=True))
        else:
            self._show_each(LINE_S, lambda: sys.stderr.write(self._glance.line() + "\n"))

    def _show_each(self, seconds: float, show: Callable[[], object], *, last: bool = False) -> None:
        while not self._ended.wait(seconds):
            self._glance.look(self._look())
            show()
        if last:
            self._glance.look(self._look())
            show()


class Notebook:
    """A cell's output that is written anew each time. `display` is that of IPython."""

    def __init__(self, display: Any, made: Any) -> None:
        self._made = made
        self._handle = display(made(""), display_id=True)

    def show(self, text: str) -> None:
        """Show `text`, an HTML fragment, in place of what was shown."""
        self._handle.update(self._made(text))


def _notebook() -> Notebook | None:
    """The output of the cell that runs, where this is a notebook; IPython is not imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display

    return Notebook(display, HTML)
