"""Workers in child processes: a plain interpreter each, with one pipe pair of its own."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from headway.call import raised
from headway.core.ticket import Answer, Job
from headway.errors import ItemTimeout, PlanError, WorkerDied
from headway.run.journal import Journal
from headway.run.logs import deliver, levels
from headway.run.pipe import Incoming, Message, Outgoing, framed, pickled
from headway.run.setup import Shared
from headway.run.wire import culprit, local, pack_job, pack_recipe, pack_states, portable, unpack_answer
from headway.run.worker import Events, Recipe, late_setup
from headway.text import told

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from headway.run.child import main; main()"
_turn = threading.Lock()
_LARGE, _TURN_S = 1 << 22, 1.0
"""Results of so many bytes come one at a time: until it is settled, each exists beside the input that it came from.

A child that stops in the middle of one delays the others by so much, and no more.
"""
LOADING_S = 60.0
"""How long a child may take, at least, to start and to import what the stage's function needs."""
KILLED_S = 1.0
"""How long a killed child may take to be gone."""


def check_recipe(recipe: Recipe) -> bytes:
    """The recipe as it will be sent. Raises PlanError naming the stage and the variable that cannot be sent."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.current_process().daemon:
        raise PlanError(
            f'stage {recipe.name!r}: on="process" does not work in a daemonic process, which may have no children; '
            'use on="thread", or start the outer process with daemon=False'
        )
    try:
        return pack_recipe(recipe)
    except Exception as error:
        name = culprit(recipe.fn)
        if name is None and recipe.setup is not None:
            name = culprit(recipe.setup.factory if isinstance(recipe.setup, Shared) else recipe.setup)
        what = f"the variable {name!r} that it captures" if name else "its function"
        raise PlanError(
            f"stage {recipe.name!r}: {what} cannot be sent to a process ({told(error)}); "
            'make it in setup=, which runs in the worker, or use on="thread"'
        ) from error


class ProcessWorker:
    """One child process. A thread of the parent starts it and writes to it, another reads: the loop never waits."""

    def __init__(self, recipe: Recipe, packed: bytes, events: Events, name: str) -> None:
        self._recipe, self._packed, self._events, self.name = recipe, packed, events, name
        self._outbox: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._child: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._hands: dict[int, Job] = {}
        self._parked: dict[int, Job] = {}
        self._journal: Journal | None = None
        self._given_up: ItemTimeout | None = None
        self._stopping = self._forced = self._has_setup = False
        self._asked: deque[SimpleQueue[str]] = deque()
        self._over = threading.Event()

    @property
    def pid(self) -> int | None:
        """Number of the child process."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Have the child started, in a thread: that takes longer than the loop may be held."""
        self._begin(self._write)

    def _begin(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name=f"{self.name}-pipe", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _spawn(self) -> Outgoing:
        """Start the child and the thread that reads from it; the pipe to write to."""
        journal = Journal()
        try:
            child_in, parent_out = os.pipe()
            parent_in, child_out = os.pipe()
        except BaseException:
            journal.release()
            raise
        out, into = Outgoing(parent_out), Incoming(parent_in)
        handles = child_in, child_out, journal.handle
        path = json.dumps([str(Path(entry).absolute()) for entry in sys.path])
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
        command = [sys.executable, *flags, "-c", _BOOT, path, *map(str, (os.getpid(), *handles))]
        try:
            # A process group of its own: Ctrl-C in the terminal is the parent's to act on.
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=handles, process_group=0)
        except BaseException:
            out.close()
            into.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
            journal.release()
        self._journal = journal
        self._begin(self._read, self._child, into, journal)
        return out

    def submit(self, job: Job) -> None:
        """Send a job."""
        parked = self._parked.pop(job.ticket, None)
        self._hands[job.ticket] = job if parked is None else replace(parked, resumed=job.resumed)
        self._outbox.put(("job", job))

    def recall(self, ticket: int) -> None:
        """Stop a job; the child answers at once if it has not started."""
        self._outbox.put(("recall", ticket))

    def running(self) -> tuple[int, float, float | None] | None:
        """The call that runs now, as the child has published it."""
        journal = self._journal
        now = journal.running() if journal is not None else None
        job = self._hands.get(now[0]) if now is not None else None
        if journal is None or now is None or job is None or not journal.begun(job):
            return None
        return now[0], now[1], job.until

    def where(self) -> tuple[int, int, int] | None:
        """What is in hand, as the child has published it."""
        return self._journal.where() if self._journal is not None else None

    def give_up(self, ticket: int, why: ItemTimeout) -> None:
        """End the child, if it is still in a call for `ticket`; `Events.died` follows."""
        now = self.running()
        if now is not None and now[0] == ticket and self._given_up is None:
            self._given_up = why
            self._begin(self._end_child)

    def _end_child(self) -> None:
        """Terminate the child, and kill it if that has not ended it within the grace."""
        assert self._child is not None
        self._forced = True
        self._child.terminate()
        if not self._over.wait(self._recipe.grace):
            self._child.kill()

    def stack(self, timeout_s: float) -> str:
        """The Python stack of the child's main thread, outermost call first. Waits up to `timeout_s`: not for the loop.

        Where there is no answer in time the text says so.
        """
        answer: SimpleQueue[str] = SimpleQueue()
        if self._over.is_set():
            return f"the worker process {self.pid} has ended\n"
        self._outbox.put(("stack", answer))
        try:
            return answer.get(timeout=timeout_s)
        except Empty:
            return (
                f"the worker process {self.pid} did not tell its stack within {timeout_s:g} s: "
                "it is starting, or in a call of C code that holds the interpreter\n"
            )

    def stop(self, error: BaseException | None, *, commit: bool) -> None:
        """Have the child close and end after the running call."""
        self._stopping = True
        record = portable(raised(error)) if error is not None else None
        self._outbox.put(("stop", record, commit))

    async def join(self, timeout_s: float) -> bool:
        """Wait for the child's end; one that does not end in time is terminated, then killed."""
        if not self._threads:
            return True
        self._stopping = True
        grace = self._recipe.grace
        for limit, harsher in ((timeout_s, signal.SIGTERM), (grace, signal.SIGKILL), (KILLED_S, None)):
            if await self._ended(limit):
                break
            if harsher is not None and self._child is not None:
                self._forced = True
                self._child.send_signal(harsher)
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(KILLED_S)
        return self._over.is_set()

    async def _ended(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_s, 0.0005
        while not self._over.is_set() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        return self._over.is_set()

    def _write(self) -> None:
        """Start the child and send what is to be sent. The system kills the child when this thread ends: see child.py."""
        batched = self._recipe.kind == "map_batches"
        try:
            pipe = self._spawn()
        except OSError as error:
            self._events.broken(self, raised(error))
            self._over.set()
            return
        try:
            pipe.send(framed([pickled(levels()), [self._packed], [pack_states(self._recipe.states)]]))
            while (message := self._outbox.get()) is not None:
                parts = []
                if message[0] == "job":
                    parts = pack_job(message[1], list(map(len, message[1].values)) if batched else None)
                elif message[0] == "stack":
                    self._asked.append(message[1])
                pipe.send(framed([pickled(message[:1] if message[0] in {"job", "stack"} else message), *parts]))
                del message, parts  # values are not held while nothing is to be sent
        except OSError:  # the child is gone: the reading thread reports it
            while self._outbox.get() is not None:
                pass
        finally:
            pipe.close()

    def _read(self, child: subprocess.Popen[bytes], pipe: Incoming, journal: Journal) -> None:
        try:
            self._read_all(pipe)
        except (EOFError, OSError):
            pass
        finally:
            pipe.close()
        code = child.wait()
        self._journal = None
        self._outbox.put(None)
        if not self._stopping:
            self._report_death(child.pid, code, journal)
        elif code != 0 and not self._forced and journal.running() is None and (code > 0 or self._has_setup):
            # It died of closing. One that dies of its last call, or is killed with nothing to close, costs nothing here.
            self._events.broken(self, raised(_death(self._recipe.name, child.pid, code)))
        self._over.set()

    def _read_all(self, pipe: Incoming) -> None:
        """Pass on what the child sends. Raises EOFError at its end, however that came."""
        loading_s = max(LOADING_S, self._recipe.setup_timeout)
        until: float | None = monotonic() + loading_s
        late = raised(TimeoutError(f"a worker process had not loaded the stage's function after {loading_s:g} s"))
        while True:
            if until is not None and not pipe.poll(max(0.0, until - monotonic())):
                until = None
                self._stopping = True
                self._events.broken(self, late)
                self._begin(self._end_child)
            message = pipe.receive()
            kind, *rest = message.load()
            if kind == "answer":
                if rest[0] is not None:
                    self._recipe.states.update(pickle.loads(rest[0]))
                self._answered(_in_turn(message) if message.size >= _LARGE else unpack_answer(message))
            elif kind == "log":
                deliver(rest[0])
            elif kind == "stack":
                self._asked.popleft().put(rest[0])
            elif kind == "opening":
                until = monotonic() + self._recipe.setup_timeout
                late = late_setup(self._recipe.setup_timeout)
            elif self._forced:  # ready or broken after all: the set-up has been given up
                continue
            else:
                until = None
                if kind == "ready":
                    self._has_setup = self._recipe.setup is not None
                    self._events.ready(self)
                else:
                    self._events.broken(self, local(*rest))

    def _answered(self, answer: Answer) -> None:
        job = self._hands.pop(answer.ticket, None)
        if answer.parked and job is not None:
            self._parked[answer.ticket] = job
        self._events.answered(self, answer)

    def _report_death(self, pid: int, code: int, journal: Journal) -> None:
        why = raised(self._given_up or _death(self._recipe.name, pid, code))
        answer: Answer | None = None
        cursor: int | None = None
        job = self._hands.get(journal.ticket)
        if job is not None and journal.begun(job):
            answer, cursor = journal.rebuild(self._recipe, job)
        self._events.died(self, why, answer, cursor)


def _in_turn(message: Message) -> Answer:
    """A large answer, loaded when the one before has been settled."""
    mine = _turn.acquire(timeout=_TURN_S)
    try:
        answer = unpack_answer(message)
    except BaseException:
        if mine:
            _turn.release()
        raise
    if mine:
        weakref.finalize(answer, _turn.release).atexit = False
    return answer


def _death(stage: str, pid: int, code: int) -> WorkerDied:
    """The error for a child that ended unasked."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = "; SIGKILL often means that the system ran out of memory" if code == -signal.SIGKILL else ""
        error = WorkerDied(f"the worker process {pid} was killed by {name}{hint}", stage=stage)
        error.signal = -code
    else:
        error = WorkerDied(f"the worker process {pid} ended with exit code {code}", stage=stage)
        error.exitcode = code
    return error
