"""Where the live runs of this machine are found: a small file each, in a folder that is its user's alone.

A file has the address, the token, if there is one, and the process; it goes when the run ends. What a killed
process has left is removed by the next who looks.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class Entry:
    """A live run. `host` and `port`: where its process serves it."""

    id: str
    name: str
    pid: int
    host: str
    port: int
    token: str | None
    started: float


def folder() -> Path:
    """The folder, made if need be. Raises HeadwayError where it is not the user's alone."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(given) / "headway"
        if given and Path(given).is_dir()
        else Path(tempfile.gettempdir()) / f"headway-{os.getuid()}"
    )
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise HeadwayError(f"{path} is not a folder that only you can read: remove it, or set XDG_RUNTIME_DIR")
    return path


def enter(entry: Entry) -> Path:
    """Leave the file of a run; nobody else can read it, and nobody sees half of it."""
    path = folder() / f"{entry.id}.json"
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(entry), file)
    part.rename(path)
    return path


def entries() -> list[Entry]:
    """The live runs, oldest first."""
    found = []
    for path in folder().glob("*.json"):
        try:
            entry = Entry(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if _is_alive(entry.pid):
            found.append(entry)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda entry: entry.started)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
