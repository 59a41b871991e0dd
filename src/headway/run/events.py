"""What workers report, from any thread, brought onto the loop of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.ticket import Answer
from headway.errors import Raised
from headway.run.mailbox import Mailbox
from headway.run.worker import Spent


class PostedEvents:
    """The `Events` of a driver: each is posted to the method that takes it up on the loop."""

    mailbox: Mailbox | None
    _on_ready: Callable[..., None]
    _on_broken: Callable[..., None]
    _on_answer: Callable[..., None]
    _on_died: Callable[..., None]
    _on_zombie: Callable[..., None]
    _on_committed: Callable[..., None]

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        if self.mailbox is not None:
            self.mailbox.post(call, *args)

    def ready(self, worker: Any) -> None:
        """A worker is open."""
        self._post(self._on_ready, worker)

    def broken(self, worker: Any, why: Raised) -> None:
        """A worker could not open, or a sink could not commit or close."""
        self._post(self._on_broken, worker, why)

    def answered(self, worker: Any, answer: Answer) -> None:
        """A job is done."""
        self._post(self._on_answer, worker, answer)

    def committed(self, worker: Any, spent: Spent) -> None:
        """A sink has committed."""
        self._post(self._on_committed, worker, spent)

    def died(self, worker: Any, why: Raised, answer: Answer | None, cursor: int | None) -> None:
        """A process ended unasked, or was killed for its time limit."""
        self._post(self._on_died, worker, why, answer, cursor)

    def zombie(self, worker: Any, *, alive: bool) -> None:
        """A call cannot be ended, or has ended after all."""
        self._post(self._on_zombie, worker, alive)
