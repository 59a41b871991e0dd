"""A file that keeps where a run stands, for sinks that cannot keep it with their data: one JSON object, replaced at once.

What does not belong here: what the state means, and when it is saved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, HeadwayError, PlanError
from headway.io.lock import held_alone

FORMAT = 1


class CheckpointFile:
    """The checkpoint of one job. Held by one run at a time; `epoch` fences off a run that a lock did not reach.

    A file that stands is always whole: another is written beside it, brought to the disk, and put in its place.
    """

    def __init__(self, path: str | os.PathLike[str], job: str) -> None:
        self.path, self._job, self._epoch = Path(path), job, 0
        self._held = ExitStack()

    def load(self) -> dict[str, Any] | None:
        """Hold the file, make it this run's, and give the state that was saved last; None if there is none.

        Raises CheckpointError while another run holds it, if it belongs to another job, or is no checkpoint;
        PlanError if there is no such folder.
        """
        if not self.path.parent.is_dir():
            raise PlanError(f"checkpoint {self.path}: there is no folder {self.path.parent}")
        refusal = (
            f"job {self._job!r} is being run by another process, with the checkpoint {self.path}; "
            "wait for it to end, or stop it: the same command then goes on where it stopped"
        )
        beside = self.path.with_name(f".{self.path.name}.lock")
        try:
            self._held.enter_context(held_alone(beside, refusal=refusal))
            found = self._read()
            self._epoch = found["epoch"] + 1 if found is not None else 1
            state: dict[str, Any] | None = found["state"] if found is not None else None
            self._write(state)
        except CheckpointError:
            self.close()
            raise
        except HeadwayError as error:
            self.close()
            raise CheckpointError(str(error)) from error
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace what was saved. Raises CheckpointError if another run has taken the job, or it cannot be written."""
        found = self._read()
        if found is None or found["epoch"] != self._epoch:
            raise CheckpointError(f"job {self._job!r} was taken over by another run; this one stops here")
        self._write(state)

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            job, _, _ = found["job"], found["state"], found["epoch"] + 1
            known = found["format"] == FORMAT
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"checkpoint {self.path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError):
            known, job = False, self._job
        if not known:
            raise CheckpointError(f"{self.path} is no checkpoint that this version knows; name another file for it")
        if job != self._job:
            raise CheckpointError(
                f"checkpoint {self.path} belongs to job {job!r}, not to {self._job!r}; give each job a file of its own"
            )
        return dict(found)

    def _write(self, state: Mapping[str, Any] | None) -> None:
        content = {"format": FORMAT, "job": self._job, "epoch": self._epoch, "state": state}
        beside = self.path.with_name(f".{self.path.name}.part")  # whoever writes it holds the job
        try:
            text = json.dumps(content)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"checkpoint {self.path}: the source's position is not JSON ({error})") from error
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise CheckpointError(f"checkpoint {self.path} cannot be written: {error.strerror}") from error
