"""What travels between a run and its child processes, and what becomes of what cannot travel.

Only our own children are at the other end of these pipes; nothing is unpickled from elsewhere.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from types import CodeType
from typing import Any

import cloudpickle

from headway.call import raised
from headway.core.ticket import Answer, Job
from headway.errors import HeadwayError, Raised
from headway.run.pipe import Ended, Message, Part, Pieces, pickled
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
Form = list[Error | None] | None
"""How values travel: all in one part (None), or each in its own, with an error in the place of what cannot travel."""


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


class Pack:
    """Pickles values one at a time, classes and functions of `__main__` by value.

    The C pickler of the standard library is tried until it meets a value that it cannot do.
    Raises what pickling raises, with a note that tells what could not be sent.
    """

    def __init__(self, what: str) -> None:
        self._what, self._plain = what, True

    def __call__(self, value: Any) -> bytes:
        if self._plain:
            try:
                return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
            except BaseException:
                self._plain = False
        try:
            return _dumps(value)
        except BaseException as error:
            raise unsendable(error, self._what, value) from None


def unsendable(error: BaseException, what: str, value: Any) -> BaseException:
    """`error`, with a note that `value` was not to be sent."""
    error.add_note(f"the {what} of type {type(value).__qualname__} cannot be sent between processes")
    return error


def _pack_values(values: list[Any], what: str) -> tuple[Form, list[Part]]:
    """Pickle `values`, classes and functions of `__main__` by value. Raises nothing.

    Where a class of the user is involved each is pickled for itself, since then one may be
    impossible to write, or to read at the other end.
    """
    pieces = Pieces()
    pickler = _Pickler(pieces, protocol=pickle.HIGHEST_PROTOCOL)

    def dump(value: Any) -> Part:
        pieces.take()
        pickler.clear_memo()
        pickler.dump(value)
        return pieces.take()

    form: list[Error | None] = []
    parts: list[Part] = []
    for value in values:
        try:
            parts.append(dump(value))
            form.append(None)
        except BaseException as error:
            form.append(portable(raised(unsendable(error, what, value))))
        if len(form) == 1 < len(values) and not pickler.custom:
            with suppress(BaseException):  # found again below, and told for the value that it comes from
                together = dump(values)
                if not pickler.custom:
                    return None, [together]
    return form, parts


def _unpack_values(form: Form, message: Message, what: str) -> tuple[list[Any], dict[int, Raised]]:
    """The reverse: values, and by number the errors of those that did not come through (None in their place)."""
    if form is None:
        return message.load(), {}
    values: list[Any] = []
    bad: dict[int, Raised] = {}
    for number, unsent in enumerate(form):
        values.append(None)
        if unsent is not None:
            bad[number] = local(*unsent)
            continue
        try:
            values[number] = message.load()
        except Ended:
            raise
        except BaseException as error:
            error.add_note(f"the {what} cannot be read in the other process")
            bad[number] = raised(error)
    return values, bad


_FIELDS = [field.name for field in fields(Answer)]


def pack_answer(answer: Answer) -> list[Part]:
    """An answer as parts of a message."""
    told_of = {name: getattr(answer, name) for name in _FIELDS}
    told_of["values"], parts = _pack_values(answer.values, "result")
    told_of["failed"] = [(offset, *portable(record)) for offset, record in answer.failed]
    return [pickled(told_of), *parts]


def unpack_answer(message: Message) -> Answer:
    """The reverse of `pack_answer`. A value that did not come through is the failure of its item."""
    told_of = message.load()
    told_of["values"], bad = _unpack_values(told_of["values"], message, "result")
    told_of["failed"] = [(offset, local(*error)) for offset, *error in told_of["failed"]]
    answer = Answer(**told_of)
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


def pack_job(job: Job, widths: list[int] | None) -> list[Part]:
    """A job as parts of a message. `widths`: how many offsets each input counts (None: one)."""
    about = job.ticket, job.tags, job.limit, job.attempt, job.born, job.until, job.epoch, job.resumed
    form, parts = _pack_values(job.values, "input")
    keys = None
    if job.keys is not None:
        keyed, more = _pack_values(list(job.keys), "key")
        keys, parts = (keyed,), parts + more
    return [pickled((about, form, keys, widths)), *parts]


def unpack_job(message: Message) -> tuple[Job, Gaps | None]:
    """The reverse of `pack_job`. Inputs that did not come through are left out; then the second value tells of them."""
    (ticket, tags, limit, *more), form, keyed, widths = message.load()
    values, bad = _unpack_values(form, message, "input")
    keys = None
    if keyed is not None:
        keys, bad_keys = _unpack_values(keyed[0], message, "key")
        bad = bad_keys | bad
    job = Job(ticket, values, tags, limit, keys, *more)
    if not bad:
        return job, None
    gaps = Gaps([n for n in range(len(values)) if n not in bad], bad, [0, *accumulate(widths or [1] * len(values))])
    return gaps.part(job), gaps


@dataclass(frozen=True)
class Gaps:
    """Inputs of a job that did not come through. ``good``: numbers of the others; input n begins at offset ``at[n]``.

    Called with the answer for the job without them it gives that for all, in which they fail.
    """

    good: list[int]
    bad: dict[int, Raised]
    at: list[int]

    def part(self, job: Job, count: int | None = None) -> Job:
        """`job` with only the first `count` of the inputs that came through."""
        return part_of(job, self.good[:count])

    def __call__(self, answer: Answer) -> Answer:
        offsets = [offset for number in self.good for offset in range(self.at[number], self.at[number + 1])]
        origin: Sequence[int] = answer.origin if answer.origin is not None else range(len(answer.values))
        answer.origin = [offsets[o] for o in origin]
        if answer.halted:
            answer.taken = self.good[answer.taken - 1] + 1
        elif answer.taken == len(self.good) and not answer.parked:
            answer.taken = len(self.at) - 1
        else:
            answer.taken = self.good[answer.taken]
        failed = [(offsets[o], record) for o, record in answer.failed]
        for number, record in self.bad.items():
            if number < answer.taken:
                failed += [(offset, record) for offset in range(self.at[number], self.at[number + 1])]
        answer.failed = sorted(failed, key=lambda pair: pair[0])
        answer.broke = [self.good[number] for number in answer.broke]
        return answer


def part_of(job: Job, numbers: Sequence[int]) -> Job:
    """`job` with only the inputs of those numbers."""
    keys = None if job.keys is None else [job.keys[n] for n in numbers]
    return replace(job, values=[job.values[n] for n in numbers], tags=[job.tags[n] for n in numbers], keys=keys)


def pack_gaps(gaps: Gaps, most: int) -> bytes:
    """As bytes, at most about `most`: where the errors are longer, one word stands for all of them."""
    bad = {number: portable(record) for number, record in gaps.bad.items()}
    data = pickle.dumps((gaps.good, bad, gaps.at), protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) > most:
        brief = portable(raised(RemoteError("the input cannot be sent between processes")))
        data = pickle.dumps((gaps.good, dict.fromkeys(bad, brief), gaps.at), protocol=pickle.HIGHEST_PROTOCOL)
    return data


def unpack_gaps(data: bytes) -> Gaps:
    """The reverse of `pack_gaps`."""
    good, bad, at = pickle.loads(data)
    return Gaps(good, {number: local(*error) for number, error in bad.items()}, at)


def pack_states(states: dict[Any, Any]) -> bytes:
    """States of a scan as bytes: each of them has travelled before, with the outcome that it came with."""
    return _dumps(states)


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
