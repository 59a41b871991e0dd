"""The process in which an import looks keys up, beside those that parse and the one that writes.

It gets ranges, reads their keys itself, and answers with what is known of them; several ranges are
under way at once, and a key that two of them have is asked for once. What does not belong here:
how a key is looked up (`lookup`).
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import cloudpickle

from headway.errors import HeadwayError, WorkerDied
from headway.importer.lookup import Entry, Lookup, finder
from headway.importer.parse import Looked, ParseJob, RangeParser
from headway.importer.rowfunction import load, lookups_of
from headway.importer.rowstep import KeyStep, Known, fault_of
from headway.text import shown, told

RANGES_UNDER_WAY = 8
"""Ranges whose keys are looked up at once."""
GRACE_S = 1.0
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from headway.importer.lookup_process import main; main()"
)


class LookupProcess:
    """The process, seen from the import; a context manager. It ends with its parent, however that ends."""

    def __init__(self, job: ParseJob) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._asked: dict[int, Future[bytes]] = {}
        self._broken: Exception | None = None

    def __enter__(self) -> Self:
        child_in, parent_out = os.pipe()
        parent_in, child_out = os.pipe()
        self._out, self._into = Connection(parent_out, readable=False), Connection(parent_in, writable=False)
        path = json.dumps([str(Path(entry).absolute()) for entry in sys.path])
        try:
            # A process group of its own: Ctrl-C in the terminal is the parent's to act on.
            self._child = subprocess.Popen(  # noqa: S603 - a plain interpreter, and our own code
                [sys.executable, "-c", _BOOT, path, str(child_in), str(child_out)],
                stdin=subprocess.DEVNULL, pass_fds=(child_in, child_out), process_group=0,
            )  # fmt: skip
        finally:
            os.close(child_in)
            os.close(child_out)
        self._thread = threading.Thread(target=self._read, name="headway-lookups", daemon=True)
        self._thread.start()
        process = self._job.rows.process
        by_value = None if isinstance(process, str) or process is None else lookups_of(process)
        with suppress(OSError):  # the child is gone: the reading thread tells
            self._out.send_bytes(cloudpickle.dumps((self._job, by_value)))
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()
        try:
            self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._child.wait()
        self._thread.join()
        self._into.close()

    async def find(self, span: Any) -> Looked:
        """Give a range with what is known of its keys. Raises HeadwayError if the process died."""
        answer: Future[bytes] = Future()
        with self._lock:
            if self._broken is not None:
                raise self._broken
            number = span.number
            self._asked[number] = answer
            with suppress(OSError):
                self._out.send_bytes(pickle.dumps(span))
        return Looked(span, await asyncio.wrap_future(answer))

    def _read(self) -> None:
        why: Exception | None = None
        try:
            while True:
                number, error, found = pickle.loads(self._into.recv_bytes())  # noqa: S301 - from our own child
                if number is None:
                    why = HeadwayError(error)
                    continue
                with self._lock:
                    answer = self._asked.pop(number)
                if error is None:
                    answer.set_result(found)
                else:
                    answer.set_exception(HeadwayError(error))
        except (EOFError, OSError):
            pass
        code = self._child.wait()
        with self._lock:
            self._broken = why or _death(self._child.pid, code)
            asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer.set_exception(self._broken)


def _death(pid: int, code: int) -> WorkerDied:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    error = WorkerDied(f"the process {pid} that looks keys up {how}", stage="lookup")
    error.signal, error.exitcode = (-code, None) if code < 0 else (None, code)
    return error


def main() -> None:
    """Serve the pipes whose descriptors are the last two arguments."""
    inward, outward = (int(text) for text in sys.argv[-2:])
    pipe, out = Connection(inward, writable=False), Connection(outward, readable=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with redirect_stdout(sys.stderr):
        try:
            job, by_value = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from our own parent
            lookups = by_value if by_value is not None else lookups_of(load(job.rows.process)[0])
            step = KeyStep(job.rows)
            parser = RangeParser(job, step)
        except EOFError:
            return
        except BaseException as error:
            out.send_bytes(pickle.dumps((None, f"the look-ups cannot be loaded: {told(error)}", b"")))
            raise
        server = _Server(parser, step, [lookups[name] for name, _ in job.rows.lookups], out)
        with suppress(asyncio.CancelledError):
            asyncio.run(server.serve(pipe))
        sys.stderr.flush()
        os._exit(0)  # what a client of the user's still has open goes with the process


class _Server:
    def __init__(self, parser: RangeParser, step: KeyStep, lookups: Sequence[Lookup], out: Connection) -> None:
        self._parser, self._step, self._lookups, self._out = parser, step, lookups, out

    async def serve(self, pipe: Connection) -> None:
        """Answer until the pipe ends."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        ended = loop.create_future()

        def begin(span: Any) -> None:
            task = loop.create_task(self._answer(span))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def read() -> None:
            with suppress(EOFError, OSError, RuntimeError):  # the last: the loop has ended
                while True:
                    loop.call_soon_threadsafe(begin, pickle.loads(pipe.recv_bytes()))  # noqa: S301
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.cancel)

        threading.Thread(target=read, daemon=True).start()
        await ended

    async def _answer(self, span: Any) -> None:
        error, data = None, b""
        try:
            self._parser.parse(span)
            keys = self._step.keys
            asked = zip(self._lookups, keys, strict=True)
            entries = await asyncio.gather(*(finder(lookup).find(each) for lookup, each in asked))
            data = _packed([found_of(lookup, known) for lookup, known in zip(self._lookups, entries, strict=True)])
        except Exception as failed:
            error = told(failed)
        self._out.send_bytes(pickle.dumps((span.number, error, data)))


def found_of(lookup: Lookup, known: Mapping[Any, Entry]) -> dict[Any, Known]:
    """Give what rows are told of each key: its value, or the fault of those that have it."""
    return {key: _found(lookup, key, entry) for key, entry in known.items()}


def _found(lookup: Lookup, key: Any, entry: Entry) -> Known:
    if entry.error is None:
        return None, entry.value
    fault = fault_of(entry.error, "lookup")
    return fault._replace(message=f"{lookup.name}({shown(key, 80)}): {fault.message}"), None


def _packed(found: Sequence[Mapping[Any, Known]]) -> bytes:
    """Pickle what was found; a value that cannot be sent makes its key one that failed."""
    try:
        return cloudpickle.dumps(found)  # type: ignore[no-any-return]
    except Exception:
        return cloudpickle.dumps([{key: _sendable(value) for key, value in each.items()} for each in found])  # type: ignore[no-any-return]


def _sendable(found: Known) -> Known:
    try:
        cloudpickle.dumps(found)
    except Exception as error:
        return fault_of(TypeError(f"its value cannot be sent between processes: {told(error)}"), "lookup"), None
    return found
