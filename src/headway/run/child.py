"""The body of a child process: a session in the main thread, a reader thread beside it.

The child was started as a plain interpreter; it never imports the parent's `__main__`. It ends when
its pipe does, so it does not outlive the parent, however that one ends; on Linux the system ends it
even while a call of the user's holds the interpreter.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from headway.call import raised
from headway.claim import Cell, Outcomes, user_frames
from headway.core.ticket import Answer, Job
from headway.errors import Raised
from headway.run.journal import Journal, Writer, records
from headway.run.logs import forward
from headway.run.pipe import Ended, Incoming, Outgoing, Part, framed, pickled
from headway.run.thread import JobQueue, serve
from headway.run.wire import Gaps, local, pack_answer, pack_states, portable, unpack_job
from headway.run.worker import Recipe, Spent

_PR_SET_PDEATHSIG = 1


class _Report:
    """Sends what happens to the parent."""

    def __init__(self, pipe: Outgoing) -> None:
        self._pipe, self._lock = pipe, threading.RLock()
        self._waiting: deque[list[bytes]] = deque()
        self._sending = False
        self.gaps: dict[int, Gaps] = {}
        self.writer: Writer | None = None

    def send(self, *message: Any, parts: Sequence[Part] = ()) -> None:
        """Send a message, and `parts` behind it; it is in the pipe when this returns.

        Only a record logged by a finalizer or signal handler, which may run within another `send` of the
        same thread, is left for that one to send.
        """
        self._waiting.append(framed([pickled(message), *parts]))
        with self._lock:
            while self._waiting and not self._sending:
                self._sending = True
                try:
                    self._pipe.send(self._waiting.popleft())
                except OSError:  # nobody listens any more
                    os._exit(1)
                finally:
                    self._sending = False

    def ready(self, worker: Any) -> None:
        self.send("ready")

    def broken(self, worker: Any, why: Raised) -> None:
        self.send("broken", *portable(why))

    def answered(self, worker: Any, answer: Answer) -> None:
        gaps = self.gaps.pop(answer.ticket, None)
        parts = pack_answer(gaps(answer) if gaps else answer)
        writer = self.writer if self.writer is not None and self.writer.ticket == answer.ticket else None
        if writer is not None and answer.parked:
            writer.pause()
        states = writer.states(answer) if writer is not None else {}
        self.send("answer", pack_states(states) if states else None, parts=parts)
        if writer is not None:
            writer.end()

    def died(self, worker: Any, why: Raised, answer: Answer | None, cursor: int | None) -> None:
        """A child does not report its own death."""

    def committed(self, worker: Any, spent: Spent) -> None:
        """A sink that commits is not in a child."""

    def zombie(self, worker: Any, *, alive: bool) -> None:
        """Nor that a call does not end: it is killed for that."""


class _Cell(Cell):
    """A cell whose cursor the parent sees, where outcomes are not recorded."""

    __slots__ = ("_writer",)

    def __init__(self, writer: Writer, lock: AbstractContextManager[Any]) -> None:
        super().__init__(lock)
        self._writer = writer

    def begin(self, job: Job, out: Outcomes) -> Any:
        return self._writer.published(super().begin(job, out))


class _Queue(JobQueue):
    """Announces in the journal each job that is taken."""

    def __init__(self, writer: Writer, report: _Report, recipe: Recipe) -> None:
        super().__init__(Cell if records(recipe) else partial(_Cell, writer))
        self._writer, self._report = writer, report

    def take(self) -> tuple[Job, Cell] | Answer | None:
        taken = super().take()
        if isinstance(taken, tuple):
            job, cell = taken
            self._writer.begin(job, cell, self._report.gaps.get(job.ticket))
        return taken


def main() -> None:
    """Serve, and end as `multiprocessing` ends its children: without taking down the interpreter.

    Libraries with threads of their own, Arrow among them, abort now and then when that is done beside them.
    """
    _serve()
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for the user's threads, as an exit does
    atexit._run_exitfuncs()  # noqa: SLF001 - what the user's modules have registered
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve() -> None:
    """Serve the pipes and the memory whose descriptors are the last three arguments, behind the parent's pid."""
    parent, inward, outward, handle = (int(text) for text in sys.argv[-4:])
    _end_with(parent)
    os.register_at_fork(after_in_child=lambda: _let_go(inward, outward))
    pipe, report = Incoming(inward), _Report(Outgoing(outward))
    journal = Journal(handle)
    journal.release()
    try:
        # The user's modules are loaded with the recipe; they may log already.
        about: list[Any] = ["", None]
        first = pipe.receive()
        forward(first.load(), lambda data: report.send("log", data), lambda: _about(report, about))
        recipe: Recipe = first.load()
        recipe.states.update(first.load())
    except Ended:
        return
    except BaseException as error:
        error.add_note("the stage's function could not be loaded in a child process")
        report.broken(None, raised(error))
        return
    about[0] = recipe.name
    report.writer = writer = Writer(journal, recipe)
    queue, tokens = _Queue(writer, report, recipe), SimpleQueue[bool | str]()
    if records(recipe):
        recipe = replace(recipe, fn=writer.recording(recipe))
    ending: list[tuple[BaseException | None, bool]] = [(None, False)]

    def read() -> None:
        while True:
            try:
                message = pipe.receive()
                kind, *rest = message.load()
                job, gaps = unpack_job(message) if kind == "job" else (None, None)
            except (Ended, OSError):
                os._exit(1)
            if job is not None:
                if gaps is not None:
                    report.gaps[job.ticket] = gaps
                queue.add(job)
                tokens.put(True)
                del job  # values are not held while nothing comes
            elif kind == "recall":
                answer = queue.recall(rest[0])
                if answer is not None:
                    report.answered(None, answer)
            elif kind == "stack":
                report.send("stack", _stack())
            else:
                error, commit = rest
                ending[0] = (local(*error).error if error else None), commit
                tokens.put(False)

    threading.Thread(target=read, name="headway-reader", daemon=True).start()
    report.send("opening")
    serve(recipe, report, None, queue, tokens, lambda: ending[0])


def _end_with(parent: int) -> None:
    """Be killed when the thread that started this process ends, which it does with the parent at the latest."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def _let_go(*handles: int) -> None:
    """A fork of this process must not keep its pipes open: their end tells of its own."""
    for handle in handles:
        with suppress(OSError):
            os.close(handle)


def _about(report: _Report, about: list[Any]) -> tuple[str, Any]:
    """Stage and seq of what runs."""
    return about[0], report.writer.tag if report.writer is not None else None


def _stack() -> str:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - there is no other way
    return user_frames([each for each, _ in traceback.walk_stack(frame)][::-1])
