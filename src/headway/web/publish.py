"""`ui=`: the page of a run, served by its own process while it goes on."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import Failure, HeadwayError
from headway.web.server import Server, check_extra

if TYPE_CHECKING:
    from headway.running import Run
    from headway.watch.timeline import Timeline

log = logging.getLogger("headway.web")


class LivePage:
    """Serves one run and leaves its file for `headway ui` and `headway top`. Raises PlanError where it cannot."""

    def __init__(self, run: Run[Any], where: bool | str) -> None:
        check_extra()
        from headway.web.live import LiveRun

        self._name = run.name
        self._live = LiveRun(run, f"{os.getpid()}-{secrets.token_hex(3)}")
        self._server = Server([self._live], where)
        self._file: Path | None = None

    @property
    def notes(self) -> Timeline:
        """Where it is noted what each slot has in hand."""
        return self._live.notes

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    def set_aside(self, failure: Failure) -> None:
        """An item became a dead letter."""
        self._live.set_aside(failure)

    def tell_letter(self, letter: dict[str, Any]) -> None:
        """The same of what is no item of the run itself."""
        self._live.tell_letter(letter)

    def begin(self) -> None:
        """Serve it and say where."""
        from headway.web.runtime import Entry, enter

        self._live.begin()
        self._server.start()
        server = self._server
        entry = Entry(self._live.id, self._name, os.getpid(), server.host, server.port, server.token, time.time())
        try:
            self._file = enter(entry)
        except (OSError, HeadwayError) as error:  # it has its page all the same
            log.warning("%s: `headway ui` and `headway top` cannot find this run: %s", self._name, error)
        print(f"{self._name}: page at {server.url}", file=sys.stderr, flush=True)  # noqa: T201 - who starts it wants to open it
        log.info("%s: page at %s", self._name, server.url)

    def close(self) -> None:
        """Tell whoever looks that the run has ended, and end."""
        self._live.end()
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
        self._server.stop()
