"""The tables that a job keeps in its target: ``_headway_jobs`` and ``_headway_rejects``; a pipeline's: ``_headway_states``.

They are written in the transaction of the data that they speak of. What does not belong here: when.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import HeadwayError
from headway.io.columns import Bytes, Int, Text
from headway.io.table import Column, Table
from headway.io.target import Target, codec, quoted

JOBS = "_headway_jobs"
REJECTS = "_headway_rejects"
STATES = "_headway_states"

_JOBS_TABLE = Table(
    JOBS,
    (
        Column("job"),
        Column("epoch", Int(), required=True),
        Column("fingerprint", required=True),
        Column("position"),
        Column("counts"),
        Column("finished_at"),
    ),
    key=("job",),
    mode="upsert",
)
_STATES_TABLE = Table(
    STATES, (Column("job"), Column("epoch", Int(), required=True), Column("state")), key=("job",), mode="upsert"
)
_REJECTS_TABLE = Table(
    REJECTS,
    (
        Column("job", required=True),
        Column("attempt", Int(), required=True),
        Column("seq", Int(), required=True),
        Column("file", required=True),
        Column("line", Int(), required=True),
        Column("byte", Int(), required=True),
        Column("length", Int(), required=True),
        Column("stage", required=True),
        Column("reason", required=True),
        Column("message", required=True),
        Column("raw", Text(), required=True),
        Column("raw_bytes", Bytes()),
    ),
)


class Position(NamedTuple):
    """Where a job goes on: the next byte, physical line, range and record of its file."""

    file: str
    byte: int
    line: int
    number: int
    seq: int


@dataclass(slots=True)
class Counts:
    """Source rows, each counted once: read = written + rejected + skipped + filtered."""

    read: int = 0
    written: int = 0
    rejected: int = 0
    skipped: int = 0
    filtered: int = 0

    def since(self, before: Counts) -> Counts:
        """Give what was counted after `before`."""
        return Counts(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


class RejectRecord(NamedTuple):
    """One row of ``_headway_rejects`` without its job and attempt."""

    seq: int
    file: str
    line: int
    byte: int
    length: int
    stage: str
    reason: str
    message: str
    raw: str
    raw_bytes: bytes | None


class SavedJob(NamedTuple):
    """What the target knows of a job; `position` is None where nothing was committed yet."""

    fingerprint: str
    position: Position | None
    counts: Counts
    finished_at: str | None


class SavedState:
    """What a pipeline's job has saved: JSON in ``_headway_states``, in the transaction of the data it speaks of."""

    def __init__(self, target: Target, job: str) -> None:
        self._target, self._job, self._epoch = target, job, 0

    def claim(self) -> dict[str, Any] | None:
        """Make the job this run's, inside a transaction, and give its last state; an earlier run cannot commit any more."""
        if self._target.describe(STATES) is None:
            self._target.create(_STATES_TABLE)
        found = self._target.execute(
            f"UPDATE {STATES} SET epoch = epoch + 1 WHERE job = ? RETURNING epoch, state", (self._job,)
        ) or self._target.execute(
            f"INSERT INTO {STATES} (job, epoch) VALUES (?, 1) RETURNING epoch, state", (self._job,)
        )
        self._epoch, state = found[0]
        return json.loads(state) if state is not None else None

    def advance(self, state: Mapping[str, Any]) -> None:
        """Store a state. Raises HeadwayError if the job was taken over."""
        moved = self._target.execute(
            f"UPDATE {STATES} SET state = ? WHERE job = ? AND epoch = ? RETURNING 1",
            (json.dumps(state), self._job, self._epoch),
        )
        if not moved:
            raise HeadwayError(f"job {self._job!r} was taken over by another run; this one stops here")


class Bookkeeping:
    """One job's entries in its target. `epoch` fences off an earlier run that is still alive."""

    def __init__(self, target: Target, job: str) -> None:
        self._target, self._job, self._epoch = target, job, 0
        self._codec = codec(target.kind)

    def saved(self) -> SavedJob | None:
        """Look the job up."""
        if self._target.describe(JOBS) is None:
            return None
        found = self._target.execute(
            f"SELECT fingerprint, position, counts, finished_at FROM {JOBS} WHERE job = ?", (self._job,)
        )
        if not found:
            return None
        fingerprint, position, counts, finished_at = found[0]
        return SavedJob(
            fingerprint,
            Position(**json.loads(position)) if position else None,
            Counts(**json.loads(counts)) if counts else Counts(),
            finished_at,
        )

    def claim(self, fingerprint: str, *, restart: bool = False) -> SavedJob | None:
        """Make the job this run's, inside a transaction; an earlier run cannot commit any more.

        `fingerprint` is the job's from now on. `restart` forgets where it stood, and the rows that it set aside,
        which will be found again. Gives what was saved: read in the same transaction, it is the last that the
        earlier run committed.
        """
        for table in (_JOBS_TABLE, _REJECTS_TABLE):
            if self._target.describe(table.name) is None:
                self._target.create(table)
        moved = self._target.execute(
            f"UPDATE {JOBS} SET epoch = epoch + 1, fingerprint = ? WHERE job = ? RETURNING epoch",
            (fingerprint, self._job),
        )
        if not moved:
            moved = self._target.execute(
                f"INSERT INTO {JOBS} (job, epoch, fingerprint) VALUES (?, 1, ?) RETURNING epoch",
                (self._job, fingerprint),
            )
        self._epoch = moved[0][0]
        if restart:
            self._target.execute(
                f"UPDATE {JOBS} SET position = NULL, counts = NULL, finished_at = NULL WHERE job = ?", (self._job,)
            )
            self._target.execute(f"DELETE FROM {REJECTS} WHERE job = ?", (self._job,))
        return self.saved()

    def left_open(self, file: str) -> bool:
        """Whether the last record of a file was set aside because a quote was left open."""
        sql = f"SELECT count(*) FROM {REJECTS} WHERE job = ? AND file = ? AND reason = ?"
        return bool(self._target.execute(sql, (self._job, file, "unclosed_quote"))[0][0])

    def advance(self, position: Position, counts: Counts, *, finished: bool) -> None:
        """Move the position, in the transaction of what it covers. Raises HeadwayError if the job was taken over."""
        finished_at = datetime.now(UTC).isoformat(timespec="seconds") if finished else None
        moved = self._target.execute(
            f"UPDATE {JOBS} SET position = ?, counts = ?, finished_at = ? WHERE job = ? AND epoch = ? RETURNING 1",
            (json.dumps(position._asdict()), json.dumps(asdict(counts)), finished_at, self._job, self._epoch),
        )
        if not moved:
            raise HeadwayError(f"job {self._job!r} was taken over by another run; this one stops here")

    def reject(self, rejects: Sequence[RejectRecord], attempts: Sequence[int] | None = None) -> None:
        """Store rows that were set aside; `attempts`: how often each was tried, once by default."""
        if rejects:
            tried = attempts if attempts is not None else [1] * len(rejects)
            columns: list[Any] = [[self._job] * len(rejects), tried, *zip(*rejects, strict=True)]
            kinds = [column.type for column in _REJECTS_TABLE.columns]
            stored = [self._codec.store(kind, values) for kind, values in zip(kinds, columns, strict=True)]
            batch = self._target.decode(_REJECTS_TABLE, [self._codec.join([self._codec.pack(_REJECTS_TABLE, stored)])])
            self._target.insert(_REJECTS_TABLE, batch)

    def stored_rejects(self, after: int, limit: int) -> list[tuple[int, RejectRecord]]:
        """Give up to `limit` rows that were set aside behind record number `after`, in order, with their attempts."""
        names = ", ".join(map(quoted, RejectRecord._fields))
        sql = f"SELECT attempt, {names} FROM {REJECTS} WHERE job = ? AND seq > ? ORDER BY seq LIMIT {int(limit)}"
        return [(attempt, RejectRecord(*row)) for attempt, *row in self._target.execute(sql, (self._job, after))]

    def replace_rejects(
        self, first: int, last: int, rejects: Sequence[RejectRecord], attempts: Sequence[int], counts: Counts
    ) -> None:
        """Have `rejects` stand for all that were set aside among the records `first` to `last`; and count anew."""
        self._target.execute(f"DELETE FROM {REJECTS} WHERE job = ? AND seq BETWEEN ? AND ?", (self._job, first, last))
        self.reject(rejects, attempts)
        self._target.execute(f"UPDATE {JOBS} SET counts = ? WHERE job = ?", (json.dumps(asdict(counts)), self._job))

    def escaped(self, text: str) -> str:
        r"""Write what no text of the target can hold as \\xNN."""
        for char in self._target.forbidden:
            text = text.replace(char, f"\\x{ord(char):02x}")
        return text

    def reject_lines(self) -> Iterator[dict[str, Any]]:
        """Give the job's rejects as JSON can hold them, in order."""
        names = _REJECTS_TABLE.names
        sql = f"SELECT {', '.join(map(quoted, names))} FROM {REJECTS} WHERE job = ? ORDER BY seq, attempt"
        for row in self._target.rows(sql, (self._job,)):
            yield _as_json(dict(zip(names, row, strict=True)))

    def export_rejects(self, path: Path) -> int:
        """Write the job's rejects as JSON lines, replacing the file at once; give their number."""
        count = 0
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with beside.open("w", encoding="utf-8") as file:
                for record in self.reject_lines():
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                    count += 1
            beside.replace(path)
        except OSError as error:
            raise HeadwayError(f"--rejects {path}: {error.strerror}") from error
        finally:
            beside.unlink(missing_ok=True)
        return count


def _as_json(record: dict[str, Any]) -> dict[str, Any]:
    raw = record["raw_bytes"]
    record["raw_bytes"] = None if raw is None else base64.b64encode(raw).decode()
    return record
