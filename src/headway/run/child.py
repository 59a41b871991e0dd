"""The body of a child process: a session in the main thread, a reader thread beside it.

The child was started as a plain interpreter; it never imports the parent's `__main__`. It ends when
its pipe does, so it does not outlive the parent, however that one ends.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from headway.call import raised
from headway.core.ticket import Answer, Job
from headway.errors import Raised
from headway.run.thread import JobQueue, serve
from headway.run.wire import local, pack_answer, portable, unpack_job


class _Report:
    """Sends what happens to the parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self.mends: dict[int, Callable[[Answer], Answer]] = {}

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            with self._lock:
                self._pipe.send_bytes(data)
        except OSError:  # nobody listens any more
            os._exit(1)

    def ready(self, worker: Any) -> None:
        self.send("ready")

    def broken(self, worker: Any, why: Raised) -> None:
        self.send("broken", *portable(why))

    def answered(self, worker: Any, answer: Answer) -> None:
        mend = self.mends.pop(answer.ticket, None)
        self.send("answer", pack_answer(mend(answer) if mend else answer))

    def died(self, worker: Any, why: Raised) -> None:
        """A child does not report its own death."""


def main() -> None:
    """Serve the pipes whose descriptors are the last two arguments."""
    inward, outward = (int(text) for text in sys.argv[-2:])
    pipe, report = Connection(inward, writable=False), _Report(Connection(outward, readable=False))
    queue, tokens = JobQueue(), SimpleQueue[bool]()
    ending: list[tuple[BaseException | None, bool]] = [(None, False)]
    try:
        recipe = pickle.loads(pipe.recv_bytes())
    except EOFError:
        return
    except BaseException as error:
        error.add_note("the stage's function could not be loaded in a child process")
        report.broken(None, raised(error))
        return

    def read() -> None:
        while True:
            try:
                kind, *rest = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)
            if kind == "job":
                job, mend = unpack_job(rest[0])
                if mend is not None:
                    report.mends[job.ticket] = mend
                queue.add(job)
                tokens.put(True)
            elif kind == "resume":
                queue.add(Job(rest[0], [], (), rest[1]), resumed=True)
                tokens.put(True)
            elif kind == "recall":
                answer = queue.recall(rest[0])
                if answer is not None:
                    report.answered(None, answer)
            else:
                error, commit = rest
                ending[0] = (local(*error).error if error else None), commit
                tokens.put(False)

    threading.Thread(target=read, name="headway-reader", daemon=True).start()
    serve(recipe, report, None, queue, tokens, lambda: ending[0])
    sys.stdout.flush()
    sys.stderr.flush()
