"""What a pipeline has to be so that a job of its own can go on, and where it keeps how far it came.

What does not belong here: the state itself (run/checkpoint.py) and the file (io/checkpoint.py).
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from headway.core.plan import Plan
from headway.core.spec import BatchSpec, StageSpec
from headway.errors import PlanError, SourceError
from headway.io.checkpoint import CheckpointFile
from headway.io.deadletter import Letters
from headway.run.checkpoint import Checkpoint, JobIdentity
from headway.text import told

AT_LEAST = "at least once"
EXACTLY = "exactly once"


def read_once(source: Any) -> bool:
    """Whether `source` is its own iterator: what it gave is gone."""
    return not callable(source) and (
        (hasattr(source, "__next__") and hasattr(source, "__iter__")) or hasattr(source, "__anext__")
    )


def keeps_state(plan: Plan) -> bool:
    """Whether the sink keeps the checkpoint in the transaction of its data."""
    last = plan.stages[-1].spec
    return last.kind == "sink" and not callable(last.fn) and hasattr(last.fn, "load")


def effect(plan: Plan) -> dict[str, str | None]:
    """What a job of this pipeline comes to when it is killed and goes on; ``refused``: why it cannot."""
    last = plan.stages[-1].spec
    refused = next(_refused(plan), None)
    if keeps_state(plan):
        why = f"sink {last.name!r} keeps the checkpoint in the transaction of its data"
        return {"effect": EXACTLY, "kept_in": "the sink", "why": why, "refused": refused}
    why = "the checkpoint is a file beside what is written: after a kill the last second is written again"
    return {"effect": AT_LEAST, "kept_in": "a file", "why": why, "refused": refused}


def _refused(plan: Plan) -> Iterator[str]:
    for stage in plan.stages:
        spec, name = stage.spec, f"stage {stage.spec.name!r}"
        if spec.kind == "scan":
            yield f"{name}: the state of a scan is not part of a checkpoint; keep it in the sink, or run without job="
        if spec.on_key_failure == "block_key":
            yield f'{name}: on_key_failure="block_key" forgets the blocked keys when the run is killed; use "halt"'
        if spec.kind == "flat_map" and stage.batched:
            yield f"{name}: children of a batch cannot be told apart in the next run, which batches otherwise; expand items before .batch"
        if spec.kind == "sink" and not callable(spec.fn) and (spec.timeout or spec.deadline):
            yield f"{name}: a write that is given up at its time limit may still take effect; leave out timeout= and deadline="


def checkpoint_of(
    plan: Plan,
    source: Any,
    letters: Letters,
    *,
    path: Any,
    job: str | None,
    default: str,
    accept_changed: bool,
) -> Checkpoint:
    """The checkpoint of a run of `plan`; `job` None: the pipeline's name, `default`, names it.

    Raises PlanError where the run could not go on, CheckpointError where it may not.
    """
    if job is None and path is None:
        return Checkpoint()
    for why in _refused(plan):
        raise PlanError(why)
    if letters.place is None and any(stage.on_error == "dead_letter" for stage in plan.stages):
        raise PlanError(
            "dead letters in memory are gone when the run is killed, and their items are not run again: name a place that "
            "stays, dead_letters=path"
        )
    own = keeps_state(plan)
    if path is None and not own:
        raise PlanError(
            f"job={job!r}: {plan.stages[-1].spec.name!r} cannot keep a checkpoint with its data; say where to keep it: "
            f"checkpoint=path. Then the job has its effect {AT_LEAST}; with DuckDBSink, SQLiteSink or PostgresSink {EXACTLY}"
        )
    name = job or default
    identity = JobIdentity(
        name, job is not None, _fingerprint(source), _seeks(source), _stages(plan), _code(plan), accept_changed,
        "the sink" if own else str(path), EXACTLY if own else AT_LEAST,
    )  # fmt: skip
    made = Checkpoint(identity, None if own else CheckpointFile(path, name), letters.keep)
    made.prepare()
    return made


def _fingerprint(source: Any) -> str | None:
    """What the source says of its content; of what is in memory its length."""
    own = getattr(source, "fingerprint", None)
    if callable(own):
        try:
            return str(own())
        except Exception as error:
            raise SourceError(f"the fingerprint of the source failed: {told(error)}") from error
    return f"{len(source):,} items" if type(source) in (list, tuple, range) else None


def _seeks(source: Any) -> bool:
    iterated = hasattr(source, "__iter__") or hasattr(source, "__aiter__")
    return not iterated and hasattr(source, "position") and hasattr(source, "seek")


def _stages(plan: Plan) -> list[str]:
    """The steps that shape what comes out, in order."""
    steps = []
    for step in plan.spec.steps:
        if isinstance(step, StageSpec):
            steps += [f"{step.kind} {step.name}"] if step.kind != "consume" else []
        else:
            steps.append(f"batch {step.size}" if isinstance(step, BatchSpec) else "unbatch")
    return steps


def _code(plan: Plan) -> dict[str, str]:
    """A digest of each stage's own function; what it calls is not looked at."""
    digests = {}
    for stage in plan.stages:
        fn = stage.spec.fn
        while isinstance(fn, functools.partial):
            fn = fn.func
        code = getattr(fn, "__code__", None) or getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004
        if isinstance(code, CodeType):
            digest = hashlib.sha256("\n".join(_parts(code)).encode(errors="surrogatepass")).hexdigest()[:16]
            digests[stage.spec.name] = f"{sys.implementation.cache_tag}:{digest}"
    return digests


def _parts(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _parts(const)
        else:  # the order of a set is another in each process
            yield repr(sorted(map(repr, const)) if isinstance(const, frozenset) else const)
