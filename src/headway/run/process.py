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
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headway.call import raised
from headway.core.ticket import Job
from headway.errors import PlanError, WorkerDied
from headway.run.wire import culprit, local, pack_job, pack_recipe, portable, unpack_answer
from headway.run.worker import Events, Recipe
from headway.text import told

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from headway.run.child import main; main()"
GRACE_S = 1.0
"""Between asking a child to end and killing it."""


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
            name = culprit(recipe.setup)
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
        self._stopping = False
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

    def _spawn(self) -> Connection:
        """Start the child and the thread that reads from it; the pipe to write to."""
        child_in, parent_out = os.pipe()
        parent_in, child_out = os.pipe()
        path = json.dumps([str(Path(entry).absolute()) for entry in sys.path])
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
        command = [sys.executable, *flags, "-c", _BOOT, path, str(child_in), str(child_out)]
        out, into = Connection(parent_out, readable=False), Connection(parent_in, writable=False)
        try:
            # A process group of its own: Ctrl-C in the terminal is the parent's to act on.
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(child_in, child_out), process_group=0
            )
        except BaseException:
            out.close()
            into.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        self._begin(self._read, self._child, into)
        return out

    def submit(self, job: Job) -> None:
        """Send a job."""
        self._outbox.put(("job", job))

    def resume(self, ticket: int, limit: int) -> None:
        """Continue a paused expansion."""
        self._outbox.put(("resume", ticket, limit))

    def recall(self, ticket: int) -> None:
        """Stop a job; the child answers at once if it has not started."""
        self._outbox.put(("recall", ticket))

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
        for limit, harsher in ((timeout_s, signal.SIGTERM), (GRACE_S, signal.SIGKILL), (GRACE_S, None)):
            if await self._ended(limit):
                break
            if harsher is not None and self._child is not None:
                self._child.send_signal(harsher)
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(GRACE_S)
        return self._over.is_set()

    async def _ended(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_s, 0.0005
        while not self._over.is_set() and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
        return self._over.is_set()

    def _write(self) -> None:
        batched = self._recipe.kind == "map_batches"
        try:
            pipe = self._spawn()
        except OSError as error:
            self._events.broken(self, raised(error))
            self._over.set()
            return
        try:
            pipe.send_bytes(self._packed)
            while (message := self._outbox.get()) is not None:
                if message[0] == "job":
                    job: Job = message[1]
                    message = ("job", pack_job(job, list(map(len, job.values)) if batched else None))
                pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        except OSError:  # the child is gone: the reading thread reports it
            while self._outbox.get() is not None:
                pass
        finally:
            pipe.close()

    def _read(self, child: subprocess.Popen[bytes], pipe: Connection) -> None:
        try:
            while True:
                kind, *rest = pickle.loads(pipe.recv_bytes())
                if kind == "answer":
                    self._events.answered(self, unpack_answer(rest[0]))
                elif kind == "ready":
                    self._events.ready(self)
                else:
                    self._events.broken(self, local(*rest))
        except (EOFError, OSError):
            pass
        finally:
            pipe.close()
        code = child.wait()
        if not self._stopping:
            self._outbox.put(None)
            self._events.died(self, raised(_death(self._recipe.name, child.pid, code)))
        self._over.set()


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
