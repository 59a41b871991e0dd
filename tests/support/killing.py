"""An import that is killed at a chosen step of the writer, and started again.

Run as a script it is the command line with faults: it wraps the methods of the target that change
something, numbers every moment before, inside and behind them, and sends itself SIGKILL at one. So the
product needs no switch for it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from headway.io.target import Address

STEPS = ("begin", "create", "empty", "existing", "insert", "upsert", "execute", "commit")
RANGE_BYTES = 4096
PATIENCE_S = 30.0


@dataclass
class Killing:
    """When to die: at the moment `at` (from 1; 0: never), or `after_s` seconds from the start."""

    at: int = 0
    after_s: float = 0.0
    seed: int = 0


def run(arguments: list[str], folder: Path, killing: Killing, *, range_bytes: int = RANGE_BYTES) -> Run:
    """Run the import command in `folder` with a kill, and wait until nothing of it is left."""
    mark = f"{os.getpid()}-{random.SystemRandom().randrange(1 << 40)}"
    moments = folder / f"moments-{mark}"
    told = {"killing": vars(killing), "moments": str(moments), "range_bytes": range_bytes, "arguments": arguments}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(told)],
        cwd=folder, env=os.environ | {"HEADWAY_TEST_MARK": mark}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = moments.read_text().splitlines() if moments.exists() else []
    moments.unlink(missing_ok=True)
    left = _left(mark)
    assert not left, f"still running after the command ended: {left}"
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, done.stdout, done.stderr, lines)


@dataclass
class Run:
    """A finished command; `moments`: what it went through, as far as it got."""

    status: int
    out: str
    err: str
    moments: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether the fault struck."""
        return self.status == -signal.SIGKILL


def _left(mark: str) -> list[str]:
    """Give the processes of a run that do not end by themselves within a bounded time."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (entry / "environ").read_bytes():
                continue
            handle = os.pidfd_open(int(entry.name))
        except (OSError, PermissionError):
            continue
        import select

        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(PATIENCE_S * 1000):
            found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        os.close(handle)
    return found


class _Faults:
    """Counts moments and strikes at one of them."""

    def __init__(self, killing: Killing, moments: Path) -> None:
        self._killing, self._random = killing, random.Random(killing.seed)
        self._log = os.open(moments, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._count = self._depth = 0
        if killing.after_s:
            self._strike_in(killing.after_s)

    def wrap(self, target: type, name: str) -> None:
        original = getattr(target, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            if self._depth:
                return original(*args, **more)
            self._reach(f"before {name}")
            inside = self._reach(f"inside {name}", strike=False)
            if inside:
                self._strike_in(self._random.random() ** 3 * 0.005)
            self._depth += 1
            try:
                result = original(*args, **more)
            finally:
                self._depth -= 1
            if inside:
                _die()
            if name == "commit":  # behind any other step is before the next one
                self._reach("behind commit")
            return result

        setattr(target, name, wrapped)

    def _reach(self, what: str, *, strike: bool = True) -> bool:
        self._count += 1
        os.write(self._log, f"{what}\n".encode())
        if self._count != self._killing.at:
            return False
        if strike:
            _die()
        return True

    def _strike_in(self, seconds: float) -> None:
        timer = threading.Timer(seconds, _die)
        timer.daemon = True
        timer.start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the command line with the faults that the first argument tells."""
    from headway.cli.main import main as command
    from headway.io import inputs, target

    told = json.loads(sys.argv[1])
    arguments = told["arguments"]
    kind = Address.parse(arguments[arguments.index("--to") + 1]).kind
    module, name = target._KINDS[kind]
    faults = _Faults(Killing(**told["killing"]), Path(told["moments"]))
    for step in STEPS:
        faults.wrap(getattr(import_module(module), name), step)
    inputs.open_ranges.__kwdefaults__["range_bytes"] = told["range_bytes"]
    sys.argv = ["headway", *arguments]
    command()


if __name__ == "__main__":
    main()
