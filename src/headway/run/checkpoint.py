"""Where a run stands: what its sink is told at each commit, and what the next run of the same job goes on from.

What does not belong here: when to commit (see commits.py), and the file of a sink that keeps nothing.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.core.block import Block, Position, Span, Tag, after, position
from headway.core.engine import Engine
from headway.errors import CheckpointError, HeadwayError, PlanError
from headway.run.setup import settled
from headway.run.source import Start


class Store(Protocol):
    """Keeps the state of a job for a sink that does not."""

    def load(self) -> dict[str, Any] | None:
        """Hold the job and give its last state."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace it."""

    def close(self) -> None:
        """Let go of the job."""


@dataclass(frozen=True)
class JobIdentity:
    """What a run is a part of. `source`: the fingerprint of the source, None if it has none; `seeks`: it has positions.

    `code` has a digest for each function, by stage. ``named``: the user gave the name.
    """

    name: str
    named: bool = True
    source: str | None = None
    seeks: bool = False
    stages: Sequence[str] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    accept_changed: bool = False
    kept_in: str = "the sink"
    effect: str = "exactly once"


class Checkpoint:
    """The state of a run. Without a job it is only told to the sink; with one, an earlier run may have left its own.

    A state is JSON: ``watermark``, below which every row is done (a row's number, or a list where it was
    expanded and only some of its children are); ``done``, what is done above that, as pairs [from, to);
    ``written``, the values written by all runs of the job; ``finished``. With a job also ``position``
    (the source's own, and the row that comes there), ``source`` (its fingerprint), ``stages`` and ``code``.
    """

    def __init__(
        self,
        job: JobIdentity | None = None,
        store: Store | None = None,
        keep_letters: Callable[[], None] = lambda: None,
    ) -> None:
        self.job, self.store, self._keep_letters = job, store, keep_letters
        self.resumed: dict[str, Any] | None = None
        """what an earlier run has left"""
        self.current: dict[str, Any] = {"watermark": 0, "done": [], "written": 0, "finished": False}
        self.frozen = False
        """a dead letter could not be kept: nothing is committed any more, so that its item comes again"""
        self.skipped = 0
        self._before: list[Span] = []
        self._changed: list[str] = []
        self._position: dict[str, Any] | None = None

    # ---- what an earlier run has left

    def prepare(self) -> None:
        """Load the state, where it is not the sink's. Raises CheckpointError, PlanError."""
        if self.store is not None:
            try:
                self._go_on_from(self.store.load())
            except BaseException:
                self.store.close()
                raise

    async def load(self, sink: Any) -> dict[str, Any] | None:
        """What `sink` is to be opened with; called where it is. Raises CheckpointError."""
        if self.job is None or self.store is not None:
            return self.resumed
        try:
            state = await settled(sink.load(self.job.name))
        except (CheckpointError, PlanError):
            raise
        except HeadwayError as error:
            raise CheckpointError(str(error)) from error
        try:
            self._go_on_from(state)
        except BaseException as error:
            await settled(sink.close(error))
            raise
        return self.resumed

    def _go_on_from(self, state: dict[str, Any] | None) -> None:
        """Check that this run may go on from `state`."""
        if state is None or self.job is None:
            return
        if lacking := {"watermark", "done", "written", "finished", "position", "source", "stages", "code"} - set(state):
            raise CheckpointError(
                f"job {self.job.name!r}: what was kept is no checkpoint of a pipeline, it lacks {', '.join(sorted(lacking))}. "
                "Nothing was done. Give this job a name of its own: job=NAME"
            )
        job, row = self.job, _row(state["watermark"])
        begun = "was finished" if state["finished"] else "was begun"
        if not job.named and list(job.stages) != state["stages"]:
            raise CheckpointError(
                f"job {job.name!r} {begun} by another pipeline, of {', '.join(state['stages'])}; this one has "
                f"{', '.join(job.stages)}. Nothing was done. If it is another job, give it a name of its own: job=NAME. "
                f"If it is the same, say so: job={job.name!r}"
            )
        if job.source != state["source"] and not job.accept_changed:
            raise CheckpointError(
                f"job {job.name!r} {begun} with another source: {_told(state['source'])} then, {_told(job.source)} now. "
                f"Nothing was done. accept_changed=True (--accept-changed) goes on with the source as it is now, at row {row}; a name of its "
                "own, job=NAME, runs it from its beginning"
            )
        if list(job.stages) != state["stages"]:
            self._changed.append(f"its stages were {', '.join(state['stages'])} and are now {', '.join(job.stages)}")
        names = [name for name, digest in job.code.items() if _other(digest, state["code"].get(name))]
        if names:
            self._changed.append(f"the code of {', '.join(names)} is another")
        self.resumed, self.current = state, state
        self._before = [((0,), _position(state["watermark"]))]
        self._before += [(_position(lo), _position(hi)) for lo, hi in state["done"]]
        self._position = state["position"] if job.seeks else None

    @property
    def already_finished(self) -> bool:
        """Whether an earlier run has done it all."""
        return (
            self.resumed is not None
            and self.job is not None
            and self.resumed["finished"]
            and self.resumed["source"] == self.job.source
        )

    def start(self) -> Start:
        """Where the source is to be read from."""
        row = self._before[0][1][0] if self._before else 0
        seeks = self.job is not None and self.job.seeks
        if self._position is None:
            return Start(skip=row, notes=seeks)
        return Start(self._position["row"], row - self._position["row"], (self._position["at"],), notes=seeks)

    def begin(self, engine: Engine, now: float) -> None:
        """Tell `engine` what is done already, and that nothing comes if that is all."""
        if self.job is None or engine.finished:
            return
        engine.begin_at(self._before[0][1][0] if self._before else 0, self._drop)
        if self.already_finished:
            engine.end(now)

    def warn(self) -> None:
        """Say once that the pipeline is not the one that began the job."""
        if self._changed and self.job is not None:
            changed, self._changed = self._changed, []
            warnings.warn(
                f"job {self.job.name!r} was begun by another version of this pipeline: {'; '.join(changed)}. What was done "
                "before stands as it is",
                RuntimeWarning,
                stacklevel=2,
            )

    def _drop(self, block: Block) -> int:
        """Take out of `block` the items that an earlier run has brought to their end; their number."""
        if not self._before or block.lo >= self._before[-1][1]:
            return 0
        left = [at for at, tag in enumerate(block.tags) if not _covered(self._before, position(tag), after(tag))]
        dropped = len(block.values) - len(left)
        if dropped:
            block.tags, block.values = [block.tags[at] for at in left], [block.values[at] for at in left]
            self.skipped += dropped
        return dropped

    # ---- where this run stands

    def take(self, engine: Engine, marks: deque[tuple[int, Any]], *, finished: bool = False) -> bool:
        """Note where the run stands now, for the next commit; whether it may be kept.

        The dead letters of what is done are made durable first. Raises CheckpointError where that fails.
        `marks`: the positions of the source that have come since, with the number of the row that comes there.
        """
        last = engine.stages[-1].plan
        if self.frozen or (engine.undone and last.batched and not last.per_member):
            return False  # which items of a list that failed are to come again, nobody knows
        try:
            self._keep_letters()
        except CheckpointError:
            self.frozen = True
            raise
        spans = _union([*self._before, *_without(engine.frontier.spans(), engine.undone)])
        low = spans.pop(0)[1] if spans and spans[0][0] == (0,) else (0,)
        self.current = {
            "watermark": _json(low),
            "done": [[_json(lo), _json(hi)] for lo, hi in spans],
            "written": engine.fates.written + (self.resumed["written"] if self.resumed is not None else 0),
            "finished": finished,
        }
        if self.job is not None:
            while marks and marks[0][0] <= low[0]:
                row, at = marks.popleft()
                self._position = {"row": row, "at": at}
            self.current |= {
                "position": self._position, "source": self.job.source,
                "stages": list(self.job.stages), "code": dict(self.job.code),
            }  # fmt: skip
        return True

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep `state` in the file, if there is one."""
        if self.store is not None:
            self.store.save(state)

    def close(self) -> None:
        """Let go of the job."""
        if self.store is not None:
            self.store.close()

    def told(self) -> dict[str, Any] | None:
        """What the report says of the job: None without one."""
        if self.job is None:
            return None
        resumed = self.resumed
        return {
            "name": self.job.name,
            "resumed_at": _row(resumed["watermark"]) if resumed is not None else None,
            "skipped": self.skipped,
            "written_before": resumed["written"] if resumed is not None else 0,
            "already_finished": self.already_finished,
            "kept_in": self.job.kept_in,
            "effect": self.job.effect,
        }


def _json(at: Position) -> int | list[int]:
    return at[0] if len(at) == 1 else list(at)


def _position(told: int | Sequence[int]) -> Position:
    return (told,) if isinstance(told, int) else tuple(told)


def _row(told: int | Sequence[int]) -> int:
    return _position(told)[0]


def _told(fingerprint: str | None) -> str:
    return repr(fingerprint) if fingerprint is not None else "one without a fingerprint"


def _other(digest: str, before: str | None) -> bool:
    """Whether the code is another: compiled by the same interpreter, whose name stands in front, and not the same."""
    return before is not None and before != digest and before.partition(":")[0] == digest.partition(":")[0]


def _covered(spans: Sequence[Span], lo: Position, hi: Position) -> bool:
    at = bisect_right(spans, lo, key=lambda span: span[0]) - 1
    return at >= 0 and hi <= spans[at][1]


def _without(spans: Iterable[Span], tags: Iterable[Tag]) -> list[Span]:
    """`spans` less what the items `tags` cover."""
    left = list(spans)
    for tag in tags:
        lo, hi = position(tag), after(tag)
        left = [part for a, b in left for part in ((a, min(b, lo)), (max(a, hi), b)) if part[0] < part[1]]
    return left


def _union(spans: Iterable[Span]) -> list[Span]:
    """All that `spans` cover, as intervals that do not touch, in order."""
    out: list[Span] = []
    for lo, hi in sorted(span for span in spans if span[0] < span[1]):
        if out and lo <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], hi)
        else:
            out.append((lo, hi))
    return out
