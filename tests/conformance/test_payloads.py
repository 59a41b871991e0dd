"""Every Python value is an ordinary payload, in every mode and in every kind of stage."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.faults import PAYLOADS, OnlyIn, Touchy
from conformance.modes import CONCURRENT, MODES, plain, run
from headway import DROP, Failure, Pipeline

VALUES = [make() for make in PAYLOADS.values()]
PLAIN = [plain(value) for value in VALUES]


def same(value: Any) -> Any:
    return value


async def same_async(value: Any) -> Any:
    return value


@pytest.mark.parametrize("mode", MODES)
def test_values_of_every_kind_pass_through_functions(mode):
    out = run(mode, lambda source, on: Pipeline(source).map(same, on=on, workers=2).map(same_async, on=on), VALUES)
    assert out.values == PLAIN
    assert out.counts("same") == (len(VALUES), len(VALUES), 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_values_of_every_kind_pass_filters_expansions_and_batches(mode):
    def describe(source, on):
        # A child process has had its turn above: here the other steps are what matters.
        on = "thread" if on == "process" else on
        return (
            Pipeline(source, on_error="keep")
            .filter(lambda value: True, on=on)
            .flat_map(lambda value: (value, None), on=on)
            .flat_map(lambda value: iter([value]), on=on)
            .map_batches(lambda values: values, 5, on=on)
            .batch(7)
            .map(lambda values: values, on=on)
            .unbatch()
            .map(same, on=on)
        )

    out = run(mode, describe, VALUES)
    assert out.values == [shown for value in PLAIN for shown in (value, plain(None))]


@pytest.mark.parametrize("mode", MODES)
def test_values_of_every_kind_can_be_made_by_a_function(mode):
    names = list(PAYLOADS)
    out = run(mode, lambda source, on: Pipeline(source).map(lambda name: PAYLOADS[name](), on=on), names)
    assert out.values == PLAIN


@pytest.mark.parametrize("mode", MODES)
def test_a_value_of_any_kind_stands_in_the_record_of_its_failure(mode):
    def fail(value: Any) -> Any:
        raise ValueError("bad")

    out = run(mode, lambda source, on: Pipeline(source, on_error="dead_letter").map(fail, on=on), VALUES)
    assert out.values == []
    assert [r[5] for r in out.records] == PLAIN
    assert {r[3:5] for r in out.records} == {("ValueError", "bad")}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_value_of_any_kind_can_stand_in_the_error_that_stops_the_run(name):
    def fail(value: Any) -> Any:
        raise ValueError("bad")

    out = run("thread", lambda source, on: Pipeline(source).map(fail, on=on), [PAYLOADS[name]()])
    assert str(out.error).endswith("ValueError: bad")
    assert plain(out.error.value) == plain(PAYLOADS[name]())
    assert out.error.report.to_dict()["failures"][0]["message"] == "bad"
    assert "1 dead" in str(out.error.report)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_value_of_any_kind_can_be_written_as_a_dead_letter(tmp_path, name):
    def fail(value: Any) -> Any:
        raise ValueError("bad")

    path = tmp_path / "letters.jsonl"
    report = Pipeline([PAYLOADS[name]()], on_error="dead_letter").map(fail).run(dead_letters=path)
    assert report.items.dead == 1
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("mode", MODES)
def test_only_the_sentinel_filters(mode):
    def drop(value: Any) -> Any:
        return DROP if value == 3 else value

    rows = [1, 3, None, False, 0, 3, "DROP"]
    out = run(mode, lambda source, on: Pipeline(source).map(drop, on=on), rows)
    assert out.values == [plain(v) for v in (1, None, False, 0, "DROP")]
    assert out.counts("drop") == (7, 5, 2, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_that_answers_with_a_value_without_truth_fails_that_item(mode):
    def ask(value: Any) -> Any:
        return Touchy() if value == 2 else value

    out = run(mode, lambda source, on: Pipeline(source, on_error="dead_letter").filter(ask, on=on), [0, 1, 2, 3])
    assert out.values == [1, 3]
    assert out.records == [("ask", 2, 1, "RuntimeError", "neither true nor false", 2)]
    assert out.counts("ask") == (4, 2, 1, 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "policy",
    ["raise", "dead_letter", "keep"],
)
def test_failures_of_an_earlier_run_are_ordinary_values(mode, policy):
    earlier = run("inline", lambda source, on: Pipeline(source, on_error="keep").map(len), ["a", 1, "bc", 2]).outputs
    failures = [value for value in earlier if isinstance(value, Failure)]
    assert [f.seq for f in failures] == [1, 3]

    def value_of(failure: Failure) -> Any:
        return failure.value

    def describe(source, on):
        return Pipeline(source, on_error=policy).map(same, on="thread" if on == "process" else on).map(value_of, on=on)

    out = run(mode, describe, failures)
    assert out.error is None
    assert out.values == [1, 2]
    assert out.counts("value_of") == (2, 2, 0, 0)
    through = run(mode, lambda source, on: Pipeline(source, on_error=policy).map(same, on=on), failures)
    assert [v.value for v in through.outputs] == [1, 2]
    assert through.items["written"] == 2


def unsendable() -> Any:
    """A value that cannot leave its process."""
    import threading

    return threading.Lock()


SHAPES = ["map", "filter", "flat_map", "map_batches", "sink"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["cannot be pickled", "cannot be read elsewhere"])
def test_an_input_that_cannot_travel_fails_alone(shape, kind):
    bad = unsendable() if kind == "cannot be pickled" else OnlyIn(home=True)
    rows: list[Any] = [*range(40)]
    rows[7] = rows[31] = bad

    def describe(source, on):
        stages = Pipeline(source, on_error="dead_letter")
        if shape == "sink":
            return stages.to(same, on=on, name="first")
        if shape == "map_batches":
            return stages.map_batches(same, 1, on=on, name="first")
        fn = (lambda value: [value]) if shape == "flat_map" else (lambda value: True) if shape == "filter" else same
        return getattr(stages, shape)(fn, on=on, name="first", workers=2)

    out = run("process", describe, rows)
    good = [row for row in rows if isinstance(row, int)]
    assert out.error is None
    assert out.values == ([] if shape == "sink" else good)
    assert [(r[0], r[1]) for r in out.records] == [("first", 7), ("first", 31)]
    assert all(letter.value is bad for letter in out.letters)
    assert all("cannot be" in "".join(letter.error.__notes__) for letter in out.letters)
    assert out.counts("first")[0] == 40
    assert out.counts("first")[3] == 2


@pytest.mark.parametrize("kind", ["cannot be pickled", "cannot be read elsewhere"])
def test_an_input_that_cannot_travel_fails_its_batch_and_no_other(kind):
    bad = unsendable() if kind == "cannot be pickled" else OnlyIn(home=True)
    rows: list[Any] = [*range(12)]
    rows[4] = bad

    def describe(source, on):
        return Pipeline(source, on_error="keep").map_batches(same, 3, on=on, name="first")

    out = run("process", describe, rows)
    assert [v if isinstance(v, int) else v[2] for v in out.values] == list(range(12))
    assert [type(v) for v in out.outputs[3:6]] == [Failure] * 3
    assert out.counts("first") == (12, 9, 0, 3)


@pytest.mark.parametrize("kind", ["cannot be pickled", "cannot be read elsewhere"])
@pytest.mark.parametrize("shape", ["map", "flat_map", "generator", "map_batches"])
def test_a_result_that_cannot_travel_fails_alone(shape, kind):
    def bad() -> Any:
        return unsendable() if kind == "cannot be pickled" else OnlyIn(home=True)

    def make(value: Any) -> Any:
        return bad() if value % 10 == 5 else value

    def children(value: Any) -> Any:
        yield value
        yield make(value)
        yield -value

    def describe(source, on):
        stages = Pipeline(source, on_error="dead_letter")
        if shape == "map_batches":
            return stages.map_batches(lambda values: [make(v) for v in values], 4, on=on, name="first")
        fn = {"map": make, "flat_map": lambda value: [make(value)], "generator": children}[shape]
        return getattr(stages, "map" if shape == "map" else "flat_map")(fn, on=on, name="first", workers=2)

    out = run("process", describe, range(40))
    bad_rows = [5, 15, 25, 35]
    if shape == "generator":
        expected = [c for n in range(40) for c in ((n,) if n in bad_rows else (n, n, -n))]
        where = [(n, 1) for n in bad_rows]
    else:
        expected = [n for n in range(40) if n not in bad_rows]
        where = bad_rows
    assert out.error is None
    assert out.values == expected
    assert [(r[0], r[1], r[5]) for r in out.records] == [
        ("first", seq, n) for seq, n in zip(where, bad_rows, strict=True)
    ]
    assert all("cannot be" in "".join(letter.error.__notes__) for letter in out.letters)
    assert out.complete


@pytest.mark.parametrize("kind", ["cannot be pickled", "cannot be read elsewhere"])
def test_a_child_that_cannot_travel_ends_its_expansion_even_if_that_has_paused(kind):
    def children(count: int) -> Any:
        for n in range(count):
            yield (unsendable() if kind == "cannot be pickled" else OnlyIn(home=True)) if n == 50 else n

    def describe(source, on):
        return Pipeline(source, on_error="dead_letter").flat_map(children, on=on).map(same, on="thread", queue=8)

    out = run("process", describe, [3, 400, 2])
    assert out.error is None
    assert out.values == [0, 1, 2, *range(50), 0, 1]
    assert [(r[0], r[1], r[5]) for r in out.records] == [("children", (1, 50), 400)]
    assert out.complete


@pytest.mark.parametrize("mode", CONCURRENT)
def test_a_size_function_that_raises_fails_nothing(mode):
    def describe(source, on):
        return Pipeline(source, size=lambda value: 1 // 0).map(same, on=on).batch(3).map(same, on=on)

    out = run(mode, describe, range(7))
    assert out.outputs == [[0, 1, 2], [3, 4, 5], [6]]
