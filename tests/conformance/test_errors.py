"""Whatever a stage raises is the failure of its item: the same record, fate and neighbours in every mode."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from conformance.faults import ERRORS, TEXTS, breathe, errors_of, make_error
from conformance.modes import MODES, Outcome, error_text, run
from headway import DROP, Failure, Pipeline, StageError

POLICIES = ("skip", "keep", "dead_letter")


def one(value: Any) -> Any:
    """Names of errors raise, numbers pass."""
    if isinstance(value, str):
        raise make_error(value)
    return value * 10


async def one_async(value: Any) -> Any:
    await breathe()
    return one(value)


def keep(value: Any) -> Any:
    return one(value) % 20


async def keep_async(value: Any) -> Any:
    await breathe()
    return one(value) % 20


def twice(value: Any) -> Any:
    return [one(value), one(value) + 1]


async def twice_async(value: Any) -> Any:
    await breathe()
    return twice(value)


def children(value: Any) -> Any:
    yield -1
    yield one(value)


async def children_async(value: Any) -> Any:
    await breathe()
    yield -1
    yield one(value)


def slots(values: list[Any]) -> list[Any]:
    return [Failure(make_error(v)) if isinstance(v, str) else DROP if v == 1 else v * 10 for v in values]


async def slots_async(values: list[Any]) -> list[Any]:
    await breathe()
    return slots(values)


class Case:
    """A stage, what it makes of good items, and how many children stand before a bad one."""

    def __init__(self, fn: Any, method: str, good: Any, *, before: tuple[Any, ...] = (), generator: str = "") -> None:
        self.fn, self.method, self.good, self.before, self.generator = fn, method, good, before, generator


def _numbers(value: int) -> list[Any]:
    return [value * 10]


def _filtered(value: int) -> list[Any]:
    return [value] if value * 10 % 20 else []


def _twice(value: int) -> list[Any]:
    return [value * 10, value * 10 + 1]


def _children(value: int) -> list[Any]:
    return [-1, value * 10]


def _slots(value: int) -> list[Any]:
    return [] if value == 1 else [value * 10]


CASES = {
    "map": Case(one, "map", _numbers),
    "map async": Case(one_async, "map", _numbers),
    "filter": Case(keep, "filter", _filtered),
    "filter async": Case(keep_async, "filter", _filtered),
    "flat_map": Case(twice, "flat_map", _twice),
    "flat_map async": Case(twice_async, "flat_map", _twice),
    "flat_map generator": Case(children, "flat_map", _children, before=(-1,), generator="generator"),
    "flat_map async generator": Case(
        children_async, "flat_map", _children, before=(-1,), generator="async generator"
    ),
    "map_batches": Case(slots, "map_batches", _slots),
    "map_batches async": Case(slots_async, "map_batches", _slots),
}  # fmt: skip


def fault(name: str, case: Case) -> tuple[str, str]:
    """Type and text of the error that the item called `name` fails with: Python renames some that leave a generator."""
    if case.generator and name == "StopIteration":
        return "RuntimeError", f"{case.generator} raised StopIteration"
    if case.generator == "async generator" and name == "StopAsyncIteration":
        return "RuntimeError", f"{case.generator} raised StopAsyncIteration"
    return name, TEXTS[name]


def describe(case: Case, policy: str, workers: int) -> Any:
    """The case's stage, and a second one that must never meet what the first one did not give."""

    def after(value: Any) -> Any:
        if type(value) is not int:
            raise AssertionError(f"met {value!r}")
        return value

    def build(source: Any, on: str) -> Pipeline[Any]:
        options = {"on": on, "workers": workers, "name": "first"}
        stages = Pipeline(source, on_error=policy)
        if case.method == "map_batches":
            stages = stages.map_batches(case.fn, 3, **options)
        else:
            stages = getattr(stages, case.method)(case.fn, **options)
        return stages.map(after, on="task" if on == "process" else on, name="second")

    return build


def rows_of(mode: str) -> list[Any]:
    """A number, an error, a number, an error, ..."""
    rows: list[Any] = []
    for name in errors_of(mode):
        rows += [len(rows) // 2, name]
    return rows


def slow_in_processes(quick: Any, *parameters: Any) -> Any:
    """All combinations; where they would start many children, those that are not `quick` are slow."""
    return [
        pytest.param(*choice, marks=[] if choice[0] != "process" or quick(*choice[1:]) else pytest.mark.slow)
        for choice in itertools.product(MODES, *parameters)
    ]


def dead_letter_or_generator(name: str, policy: str) -> bool:
    return policy == "dead_letter" or name == "flat_map generator"


@pytest.mark.parametrize(("mode", "name", "policy"), slow_in_processes(dead_letter_or_generator, CASES, POLICIES))
def test_an_error_of_any_class_fails_its_item_and_no_other(mode, name, policy):
    case, rows = CASES[name], rows_of(mode)
    out = run(mode, describe(case, policy, workers=2), rows)
    bad = [(seq, row) for seq, row in enumerate(rows) if isinstance(row, str)]

    def where(seq: int) -> Any:
        return (seq, len(case.before)) if case.before else seq

    expected: list[Any] = []
    for seq, row in enumerate(rows):
        if not isinstance(row, str):
            expected += case.good(row)
            continue
        expected += case.before
        if policy == "keep":
            expected.append(("Failure", "first", where(seq), 1, *fault(row, case)))
    assert out.error is None
    assert out.values == expected
    letters = [("first", where(seq), 1, *fault(row, case), row) for seq, row in bad]
    assert out.records == (letters if policy == "dead_letter" else [])
    check_counts(out, case, rows, expected, policy)


def check_counts(out: Outcome, case: Case, rows: list[Any], expected: list[Any], policy: str) -> None:
    good = [row for row in rows if not isinstance(row, str)]
    failed = len(rows) - len(good)
    made = len(expected) - (failed if policy == "keep" else 0)
    dropped = sum(not case.good(row) for row in good)
    assert out.complete
    assert out.state == "done"
    assert out.counts("first") == (len(rows), made, dropped, failed)
    assert out.counts("second") == (made, made, 0, 0)
    expands = case.method == "flat_map"
    assert out.items == {
        "read": len(rows), "written": made, "filtered": dropped, "dead": failed, "unread": 0, "late": 0,
        "expanded": len(good) if expands else 0, "children": made if expands else 0,
    }  # fmt: skip


def hard_to_send(name: str) -> bool:
    return name in ("ValueError", "SystemExit", "Unloadable", "Unsendable", "Mute")


@pytest.mark.parametrize(("mode", "name"), slow_in_processes(hard_to_send, ERRORS))
def test_raise_stops_at_the_item_after_all_that_lies_before_it(mode, name):
    if name not in errors_of(mode):
        pytest.skip("on the calling thread Ctrl-C is not an item's failure")
    rows = [0, 1, 2, 3, name, 5, 6, name, 8]
    out = run(mode, describe(CASES["map"], "raise", workers=1), rows)
    assert out.values == [0, 10, 20, 30]
    error = out.error
    assert type(error) is StageError
    assert (error.stage, error.seq, error.attempts, error.value) == ("first", 4, 1, name)
    assert error.__cause__ is not None
    assert error_text(error.__cause__) == (name, TEXTS[name])
    assert str(error).endswith(f"{name}: {TEXTS[name]}")
    assert out.state == "failed"
    assert out.items["dead"] >= 1
    assert out.complete
    if mode != "simulated":
        assert error.report.failures[0].error == type(error.__cause__).__name__


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "inline"])
@pytest.mark.parametrize("name", ["map async", "filter", "flat_map", "flat_map async generator", "map_batches"])
def test_raise_stops_at_the_first_failure_of_every_kind_of_stage(mode, name):
    rows = [0, 1, 2, "Fatal", 4, 5, "Mute", 7]
    case = CASES[name]
    out = run(mode, describe(case, "raise", workers=2), rows)
    expected = [value for row in rows[:3] for value in case.good(row)]
    assert out.values == [*expected, *case.before]
    assert type(out.error) is StageError
    seq = (3, len(case.before)) if case.before else 3
    assert (out.error.stage, out.error.seq, out.error.value) == ("first", seq, "Fatal")
    assert error_text(out.error.__cause__) == ("Fatal", "bad")


def test_ctrl_c_in_a_stage_on_the_calling_thread_reaches_the_caller_and_closes_everything():
    closed = []

    def source():
        try:
            yield from [1, 2, "KeyboardInterrupt", 4]
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        Pipeline(source, on_error="skip").map(one).collect(mode="inline")
    assert closed == [True]


@pytest.mark.parametrize("mode", MODES)
def test_the_traceback_in_the_record_shows_the_line_of_the_function(mode):
    out = run(mode, describe(CASES["map"], "dead_letter", workers=1), [1, "ValueError", "Mute"])
    for letter in out.letters:
        assert "raise make_error(value)" in letter.traceback


@pytest.mark.parametrize("mode", MODES)
def test_when_every_item_fails_the_run_ends_with_nothing(mode):
    out = run(mode, describe(CASES["map"], "dead_letter", workers=2), ["ValueError"] * 40)
    assert out.values == []
    assert [letter.seq for letter in sorted(out.letters, key=lambda f: f.seq)] == list(range(40))
    assert out.counts("first") == (40, 0, 0, 40)
    assert out.complete


@pytest.mark.parametrize("mode", MODES)
def test_the_last_items_all_failing_does_not_keep_the_run_open(mode):
    out = run(mode, describe(CASES["map"], "skip", workers=2), [*range(20), *["Fatal"] * 20])
    assert out.values == [n * 10 for n in range(20)]
    assert out.complete
