"""A script in a process group of its own, or in a terminal, that is sent signals when it has come to a certain point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 60.0
"""How long a test waits for what has to come. Calls that are to be cut short last ten times as long."""
FOR_EVER_S = 600

PREAMBLE = """
import os, sys, time
from pathlib import Path

FOLDER = Path({folder!r})

def note(what, value=""):
    handle = os.open(FOLDER / what, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{{value}} {{os.getpid()}} {{time.time()}}\\n".encode())
    os.close(handle)

from headway.run.stop import SignalStops

_take = SignalStops._take

def take(self, number, frame):
    _take(self, number, frame)
    note("signals", number)

SignalStops._take = take

def read(rows):
    for row in rows:
        note("read", row)
        yield row
"""

_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)


class Script:
    """A Python script as a process; what it notes in its folder can be waited for."""

    def __init__(
        self,
        folder: Path,
        text: str,
        *arguments: object,
        command: str | None = None,
        terminal: bool = False,
        options: tuple[str, ...] = ("-X", "dev", "-W", "error"),
    ) -> None:
        self.folder = folder
        path = folder / "script.py"
        path.write_text(PREAMBLE.format(folder=str(folder)) + text)
        what = ["-m", "headway", command, f"{path}:pipeline"] if command else [str(path)]
        line = [sys.executable, *options, *what, *map(str, arguments)]
        self.out, self.err = folder / "stdout", folder / "stderr"
        self._terminal: int | None = None
        stdin: Any = subprocess.DEVNULL
        if terminal:
            self._terminal, stdin = os.openpty()
            line = [sys.executable, "-c", _WITH_TERMINAL, *line]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(line, stdin=stdin, stdout=out, stderr=err, start_new_session=True)
        if terminal:
            os.close(stdin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            os.close(self._terminal)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def noted(self, what: str) -> list[str]:
        """The values noted so far."""
        return [line.split()[0] for line in self._lines(what)]

    def pids(self, what: str) -> set[int]:
        """The processes that noted."""
        return {int(line.split()[1]) for line in self._lines(what)}

    def times(self, what: str) -> list[float]:
        """When each was noted."""
        return [float(line.split()[2]) for line in self._lines(what)]

    def _lines(self, what: str) -> list[str]:
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, what: str, count: int) -> None:
        """Wait until so many were noted."""
        until = time.monotonic() + PATIENCE_S
        while len(self._lines(what)) < count:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.err.read_text()}"
            assert time.monotonic() < until, f"{what}: {self.noted(what)} of {count}; {self.err.read_text()}"
            time.sleep(0.005)  # another process gives no event: its notes and its end are looked for

    def send(self, number: int) -> float:
        """Send a signal to the process group, as a terminal does. When."""
        os.killpg(self.process.pid, number)
        return time.time()

    def send_each(self, *numbers: int) -> float:
        """Send signals, each once the one before was taken: of those that wait at once there is only one."""
        taken = len(self.noted("signals"))
        for count, number in enumerate(numbers, taken + 1):
            sent = self.send(number)
            if count < taken + len(numbers):
                self.wait_for("signals", count)
        return sent

    def press_ctrl_c(self) -> float:
        """Type it in the terminal."""
        assert self._terminal is not None
        os.write(self._terminal, b"\x03")
        return time.time()

    def status(self) -> int:
        """Wait for the end; the status as a shell tells it. Nothing that it started is left."""
        code = self.process.wait(PATIENCE_S)
        for pid in self.pids("started"):
            assert pid == self.process.pid or not alive(pid), f"worker {pid} is left"
        return 128 - code if code < 0 else code

    @property
    def errors(self) -> str:
        """Standard error, without what asyncio's debug mode says of a machine that is busy with something else."""
        lines = self.err.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("Executing <"))


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie. One that has been told to end may still be ending."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.005)  # another process gives no event: its notes and its end are looked for
    return True
