"""What travels between a run and its child processes, and what becomes of what cannot travel.

Only our own children are at the other end of these pipes; nothing is unpickled from elsewhere.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from types import CodeType
from typing import Any

import cloudpickle

from headway.call import raised
from headway.core.ticket import Answer, Job
from headway.errors import HeadwayError, Raised
from headway.text import told


class RemoteError(HeadwayError):
    """Stands for an exception that could not be sent to or read in another process: its type and text."""


class WorkerTraceback(Exception):
    """The traceback of an exception as it was in the worker; the cause of that exception here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes whether anything but plain built-in values was pickled.

    Code keeps the name of its file, which cloudpickle hides, so that tracebacks show its lines.
    """

    custom = False

    def reducer_override(self, obj: Any) -> Any:
        self.custom = True
        if isinstance(obj, CodeType):
            make, args = self.dispatch_table[CodeType](obj)
            return make, tuple(obj.co_filename if arg == "<dynamic-code>" else arg for arg in args)
        return super().reducer_override(obj)


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


Error = tuple[bytes, str, str]
"""An error on its way: pickled, as a text in case that cannot be read, and its traceback."""
Packed = bytes | list[bytes | Error]
"""Values on their way: all together, or each for itself with an error in the place of what cannot travel."""


def portable(record: Raised) -> Error:
    """An error as bytes that can be read anywhere."""
    try:
        data = _dumps(record.error)
    except BaseException:
        data = b""
    return data, told(record.error), record.traceback


def local(data: bytes, text: str, traceback: str) -> Raised:
    """The reverse of `portable`. The worker's traceback is the cause of the error here."""
    try:
        error = pickle.loads(data)
    except BaseException:
        error = RemoteError(text)
    if error.__cause__ is None:
        error.__cause__ = WorkerTraceback(traceback)
    return Raised(error, traceback)


def _pack_values(values: list[Any], what: str) -> Packed:
    """Pickle `values`, classes and functions of `__main__` by value. Raises nothing.

    Where a class of the user is involved each is pickled for itself, since then one may be
    impossible to write, or to read at the other end.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)

    def dump(value: Any) -> bytes:
        buffer.seek(0)
        buffer.truncate()
        pickler.clear_memo()
        pickler.dump(value)
        return buffer.getvalue()

    packed: list[bytes | Error] = []
    for value in values:
        try:
            packed.append(dump(value))
        except BaseException as error:
            error.add_note(f"the {what} of type {type(value).__qualname__} cannot be sent between processes")
            packed.append(portable(raised(error)))
        if len(packed) == 1 < len(values) and not pickler.custom:
            with suppress(BaseException):  # found again below, and told for the value that it comes from
                together = dump(values)
                if not pickler.custom:
                    return together
    return packed


def _unpack_values(packed: Packed, what: str) -> tuple[list[Any], dict[int, Raised]]:
    """The reverse: values, and by number the errors of those that did not come through (None in their place)."""
    if isinstance(packed, bytes):
        return pickle.loads(packed), {}
    values: list[Any] = []
    bad: dict[int, Raised] = {}
    for number, data in enumerate(packed):
        values.append(None)
        if isinstance(data, tuple):
            bad[number] = local(*data)
            continue
        try:
            values[number] = pickle.loads(data)
        except BaseException as error:
            error.add_note(f"the {what} cannot be read in the other process")
            bad[number] = raised(error)
    return values, bad


def pack_answer(answer: Answer) -> bytes:
    """An answer as bytes."""
    fields = {name: getattr(answer, name) for name in Answer.__slots__}
    fields["values"] = _pack_values(answer.values, "result")
    fields["failed"] = [(offset, *portable(record)) for offset, record in answer.failed]
    return pickle.dumps(fields, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_answer(data: bytes) -> Answer:
    """The reverse of `pack_answer`. A value that did not come through is the failure of its item."""
    fields = pickle.loads(data)
    fields["values"], bad = _unpack_values(fields["values"], "result")
    fields["failed"] = [(offset, local(*error)) for offset, *error in fields["failed"]]
    answer = Answer(**fields)
    return _without(answer, bad) if bad else answer


def _without(answer: Answer, bad: dict[int, Raised]) -> Answer:
    """`answer` without the values of those numbers: their inputs fail there, what an expansion gave behind is dropped.

    An expansion that has paused ends with it; the worker closes the generator when it ends itself.
    """
    origin: Sequence[int] = answer.origin if answer.origin is not None else range(len(answer.values))
    ended: dict[int, Raised] = {}
    values, kept = [], []
    for number, (at, value) in enumerate(zip(origin, answer.values, strict=True)):
        if number in bad:
            ended.setdefault(at, bad[number])
        elif at not in ended:
            values.append(value)
            kept.append(at)
    if answer.parked and answer.taken in ended:
        answer.parked, answer.taken = False, answer.taken + 1
    answer.values, answer.origin = values, kept
    answer.failed = sorted((dict(answer.failed) | ended).items())
    return answer


def pack_job(job: Job, widths: list[int] | None) -> bytes:
    """A job as bytes. `widths`: how many offsets each input counts (None: one)."""
    message = job.ticket, _pack_values(job.values, "input"), job.tags, job.limit, widths
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_job(data: bytes) -> tuple[Job, Callable[[Answer], Answer] | None]:
    """The reverse of `pack_job`.

    Inputs that did not come through are left out; then the second value turns the answer for the
    others into the answer for all, in which they fail.
    """
    ticket, packed, tags, limit, widths = pickle.loads(data)
    values, bad = _unpack_values(packed, "input")
    if not bad:
        return Job(ticket, values, tags, limit), None
    good = [number for number in range(len(values)) if number not in bad]
    at = [0, *accumulate(widths or [1] * len(values))]
    job = Job(ticket, [values[n] for n in good], [tags[n] for n in good], limit)
    return job, lambda answer: _whole(answer, good, bad, at)


def _whole(answer: Answer, good: list[int], bad: dict[int, Raised], at: list[int]) -> Answer:
    """The answer for all inputs, from one for the inputs `good`; input n begins at offset ``at[n]``."""
    offsets = [offset for number in good for offset in range(at[number], at[number + 1])]
    origin: Sequence[int] = answer.origin if answer.origin is not None else range(len(answer.values))
    answer.origin = [offsets[o] for o in origin]
    count = len(at) - 1
    answer.taken = count if answer.taken == len(good) and not answer.parked else good[answer.taken]
    failed = [(offsets[o], record) for o, record in answer.failed]
    for number, record in bad.items():
        if number < answer.taken:
            failed += [(offset, record) for offset in range(at[number], at[number + 1])]
    answer.failed = sorted(failed, key=lambda pair: pair[0])
    return answer


def pack_recipe(recipe: Any) -> bytes:
    """A recipe as bytes. Raises what pickling raises."""
    return _dumps(recipe)


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
