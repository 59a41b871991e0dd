"""What travels between a run and its child processes, and what becomes of what cannot travel.

Only our own children are at the other end of these pipes; nothing is unpickled from elsewhere.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import cloudpickle

from headway.call import raised
from headway.core.block import Raised
from headway.core.ticket import Answer, Job
from headway.errors import HeadwayError
from headway.text import told


class RemoteError(HeadwayError):
    """Stands for an exception that could not be sent to or read in another process: its type and text."""


class WorkerTraceback(Exception):
    """The traceback of an exception as it was in the worker; the cause of that exception here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes whether anything but plain built-in values was pickled."""

    custom = False

    def reducer_override(self, obj: Any) -> Any:
        self.custom = True
        return super().reducer_override(obj)


def dumps(value: Any) -> bytes:
    """Pickle `value`, classes and functions of `__main__` by value. Raises if it could not be read back.

    Reading back is tried only where a class of the user is involved: that is what may fail.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    data = buffer.getvalue()
    if pickler.custom:
        pickle.loads(data)
    return data


def portable(record: Raised) -> tuple[bytes, str]:
    """An error as bytes that can be read anywhere."""
    try:
        return dumps(record.error), record.traceback
    except BaseException:
        return pickle.dumps(RemoteError(told(record.error))), record.traceback


def local(data: bytes, traceback: str) -> Raised:
    """The reverse of `portable`. The worker's traceback is the cause of the error here."""
    try:
        error = pickle.loads(data)
    except BaseException as failed:
        error = RemoteError(f"an error that cannot be read here: {told(failed)}")
    if error.__cause__ is None:
        error.__cause__ = WorkerTraceback(traceback)
    return Raised(error, traceback)


def pack_answer(answer: Answer) -> bytes:
    """An answer as bytes. A value that cannot be pickled becomes the failure of its item."""
    try:
        values = dumps(answer.values)
    except BaseException:
        values = _pack_each(answer)
    failed = [(offset, *portable(record)) for offset, record in answer.failed]
    return pickle.dumps(
        (
            answer.ticket,
            answer.taken,
            values,
            answer.origin,
            failed,
            answer.parked,
            answer.nbytes,
            answer.started,
            answer.stopped,
            answer.cpu,
            answer.sample,
        ),  # fmt: skip
        protocol=pickle.HIGHEST_PROTOCOL,
    )


def _pack_each(answer: Answer) -> bytes:
    origin = answer.origin if answer.origin is not None else list(range(len(answer.values)))
    good, kept, failed = [], [], dict(answer.failed)
    for offset, value in zip(origin, answer.values, strict=True):
        try:
            dumps(value)
        except BaseException as error:
            failed.setdefault(offset, raised(_unsendable("result", value, error)))
        else:
            good.append(value)
            kept.append(offset)
    answer.origin, answer.failed = kept, sorted(failed.items())
    return dumps(good)


def unpack_answer(data: bytes) -> Answer:
    """The reverse of `pack_answer`. Values that cannot be read here fail their items."""
    ticket, taken, values, origin, failed, *rest = pickle.loads(data)
    records = [(offset, local(error, text)) for offset, error, text in failed]
    try:
        answer = Answer(ticket, taken, pickle.loads(values), origin, records, *rest)
    except BaseException as error:
        offsets = set(range(taken)) - {offset for offset, _ in records}
        records += [(offset, raised(_unsendable("result", None, error))) for offset in offsets]
        answer = Answer(ticket, taken, [], [], sorted(records), *rest)
    return answer


def _unsendable(what: str, value: Any, error: BaseException) -> BaseException:
    """The error itself with a note that says what could not travel."""
    kind = f" of type {type(value).__qualname__}" if value is not None else ""
    error.add_note(f"the {what}{kind} cannot be sent between processes")
    return error


def pack_job(job: Job, widths: Callable[[Any], int]) -> tuple[bytes, Callable[[Answer], Answer]]:
    """A job as bytes, and what turns its answer back into one for the whole job.

    Inputs that cannot be pickled are left out; they fail in the answer. `widths`: offsets that an input counts.
    """
    try:
        return pickle.dumps((job.ticket, dumps(job.values), job.tags, job.limit)), lambda answer: answer
    except BaseException:
        good, bad = [], {}
        for number, value in enumerate(job.values):
            try:
                dumps(value)
                good.append(number)
            except BaseException as error:
                bad[number] = raised(_unsendable("input", value, error))
        values, tags = [job.values[n] for n in good], [job.tags[n] for n in good]
        at = [0, *accumulate(map(widths, job.values))]
        data = pickle.dumps((job.ticket, dumps(values), tags, job.limit))
        return data, lambda answer: _whole(answer, good, bad, at, len(job.values))


def _whole(answer: Answer, good: list[int], bad: dict[int, Raised], at: list[int], count: int) -> Answer:
    """The answer for all inputs, from one for the inputs `good`."""
    offsets = [offset for number in good for offset in range(at[number], at[number + 1])]
    origin: Sequence[int] = answer.origin if answer.origin is not None else range(len(answer.values))
    answer.origin = [offsets[o] for o in origin]
    answer.taken = count if answer.taken == len(good) and not answer.parked else good[answer.taken]
    failed = [(offsets[o], record) for o, record in answer.failed]
    for number, record in bad.items():
        if number < answer.taken:
            failed += [(offset, record) for offset in range(at[number], at[number + 1])]
    answer.failed = sorted(failed, key=lambda pair: pair[0])
    return answer


def unpack_job(data: bytes) -> Job:
    """The reverse of `pack_job`, in the child."""
    ticket, values, tags, limit = pickle.loads(data)
    return Job(ticket, pickle.loads(values), tags, limit)


def pack_recipe(recipe: Any) -> bytes:
    """A recipe as bytes. Raises what pickling raises."""
    data: bytes = cloudpickle.dumps(recipe, protocol=pickle.HIGHEST_PROTOCOL)
    return data


def culprit(fn: Any) -> str | None:
    """The name of the captured variable that keeps `fn` from being pickled, if it can be found."""
    code, closure = getattr(fn, "__code__", None), getattr(fn, "__closure__", None) or ()
    captured: dict[str, Any] = {}
    if code is not None:
        for name, cell in zip(code.co_freevars, closure, strict=False):
            try:
                captured[name] = cell.cell_contents
            except ValueError:
                continue
        names = getattr(fn, "__globals__", {})
        captured.update({name: names[name] for name in code.co_names if name in names})
    captured.update(getattr(fn, "__dict__", {}) if code is None else {})
    bound = getattr(fn, "__self__", None)
    if bound is not None:
        captured["self"] = bound
    for name, value in captured.items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            return name
    return None
