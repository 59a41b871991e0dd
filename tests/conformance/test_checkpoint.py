"""`job=` and `checkpoint=`: what is kept, what goes on from it, and what is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headway import (
    CheckpointError,
    HeadwayError,
    Pipeline,
    PlanError,
    SourceError,
    SQLiteSink,
    StageError,
    current_item,
)
from headway.core.meter import STATES
from headway.run import commits, inline
from support.importing import query
from support.workers import reached

MODES = ("inline", "concurrent")


class Told:
    """A sink that keeps nothing of a job itself."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.opened: list[Any] = []
        self.states: list[dict[str, Any]] = []

    def open(self, resume: dict[str, Any] | None) -> None:
        self.opened.append(resume)

    def write(self, items: Any) -> None:
        self.rows += items

    def commit(self, state: dict[str, Any]) -> None:
        self.states.append(state)

    def close(self, error: BaseException | None) -> None:
        pass


class TellingAsync(Told):
    async def open(self, resume: dict[str, Any] | None) -> None:
        super().open(resume)

    async def write(self, items: Any) -> None:
        await asyncio.sleep(0)  # a turn of the loop for the others
        super().write(items)

    async def commit(self, state: dict[str, Any]) -> None:
        super().commit(state)


class Numbers:
    """A `Source` with positions; `asked` notes what was read and sought."""

    def __init__(self, count: int, name: str = "numbers") -> None:
        self.at, self.count, self.name = 0, count, name
        self.asked: list[Any] = []
        self.closed = 0

    def read(self, n: int) -> list[int]:
        rows = list(range(self.at, min(self.at + min(n, 10), self.count)))
        self.asked.append(self.at)
        self.at += len(rows)
        return rows

    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position

    def fingerprint(self) -> str:
        return self.name

    def close(self) -> None:
        self.closed += 1


def fails_at(bad: int | None) -> Any:
    def check(value: int) -> int:
        if value == bad:
            raise ValueError(f"no {value}")
        return value

    return check


def state_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["state"]


@pytest.mark.parametrize("kind", [Told, TellingAsync])
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_failed_goes_on_where_it_stopped_and_a_finished_one_does_nothing(tmp_path, mode, kind):
    path, sink = tmp_path / "ck.json", kind()
    make = lambda bad: Pipeline(range(100), mode=mode).map(fails_at(bad)).to(sink)
    with pytest.raises(StageError, match="no 60") as failed:
        make(60).run(checkpoint=path, job="j")
    assert state_of(path)["watermark"] == 60
    assert "begun here; at least once, kept in" in str(failed.value.report)
    assert "run it again to go on" in str(failed.value.report)
    report = make(None).run(checkpoint=path, job="j")
    assert sink.rows == list(range(100))
    assert (report.items.read, report.items.written, report.complete) == (40, 40, True)
    assert (report.job.resumed_at, report.job.written_before, report.job.effect) == (60, 60, "at least once")
    assert "went on at row 60" in str(report)
    before = state_of(path)
    third = make(None).run(checkpoint=path, job="j")
    assert sink.rows == list(range(100))
    assert (third.state, third.items.read, third.job.already_finished) == ("done", 0, True)
    assert "finished before, with 100 written: there was nothing to do" in str(third)
    assert state_of(path) == before
    assert [resume and resume["watermark"] for resume in sink.opened] == [None, 60, 100]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["input", "none"])
def test_an_item_that_its_sink_refused_under_raise_comes_again(tmp_path, mode, order):
    path, out = tmp_path / "ck.json", []

    def write(value: int) -> None:
        fails_at(bad)(value)
        out.append(value)

    bad: int | None = 5
    made = Pipeline(range(50), mode=mode).to(write, order=order, workers=1 if order == "input" else 3)
    with pytest.raises(StageError, match="no 5"):
        made.run(checkpoint=path)
    bad = None
    made.run(checkpoint=path)
    assert 5 in out
    assert set(out) == set(range(50))


@pytest.mark.parametrize("mode", MODES)
def test_a_list_that_its_sink_refused_comes_again_whole(tmp_path, mode):
    path, out = tmp_path / "ck.json", []

    def write(values: list[int]) -> None:
        if bad in values:
            raise ValueError(f"no {bad}")
        out.extend(values)

    bad: int | None = 25
    made = Pipeline(range(50), mode=mode).batch(10).to(write)
    with pytest.raises(StageError, match="no 25"):
        made.run(checkpoint=path)
    bad = None
    made.run(checkpoint=path)
    assert sorted(set(out)) == list(range(50))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_items_count_from_the_beginning_of_the_source(tmp_path, mode):
    path, seen = tmp_path / "ck.json", []

    def note(value: int) -> int:
        seen.append((current_item().seq, current_item().trace_id))
        return fails_at(bad)(value)

    bad: int | None = 3
    made = Pipeline([10, 11, 12, 3, 14], mode=mode, name="n").map(note)
    with pytest.raises(StageError) as failed:
        made.run(checkpoint=path)
    assert failed.value.seq == 3
    bad = None
    report = made.run(checkpoint=path)
    assert seen[-2:] == [(3, "n/0/3"), (4, "n/0/4")]
    assert report.unfinished == []


@pytest.mark.parametrize("mode", MODES)
def test_a_source_with_positions_is_asked_for_nothing_that_is_done(tmp_path, mode):
    path, sink = tmp_path / "ck.json", Told()
    first, second = Numbers(100), Numbers(100)
    with pytest.raises(StageError):
        Pipeline(first, mode=mode).map(fails_at(57)).to(sink).run(checkpoint=path)
    position = state_of(path)["position"]
    assert 0 < position["row"] == position["at"] <= 57
    Pipeline(second, mode=mode).map(fails_at(None)).to(sink).run(checkpoint=path)
    assert sink.rows == list(range(100))
    assert min(second.asked) == position["at"]
    third = Numbers(100)
    assert Pipeline(third, mode=mode).map(fails_at(None)).to(sink).run(checkpoint=path).job.already_finished
    assert (third.asked, third.closed) == ([], 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_has_changed_is_refused_unless_that_is_accepted(tmp_path, mode):
    path, sink = tmp_path / "ck.json", Told()
    make = lambda source: Pipeline(source, mode=mode).map(fails_at(None)).to(sink)
    make(Numbers(20)).run(checkpoint=path, job="j")
    other = Numbers(30, "others")
    with pytest.raises(CheckpointError, match=r"'numbers' then, 'others' now.*accept_changed=True") as refused:
        make(other).run(checkpoint=path, job="j")
    assert "Nothing was done" in str(refused.value)
    assert (len(sink.rows), other.closed) == (20, 1)
    report = make(other).run(checkpoint=path, job="j", accept_changed=True)
    assert sink.rows == list(range(30))
    assert report.job.resumed_at == 20
    with pytest.raises(CheckpointError, match="'others' then, '5 items' now"):
        make([1] * 5).run(checkpoint=path, job="j")


@pytest.mark.parametrize("source", [lambda: iter(range(5)), lambda: aiter_of(5), lambda: list(range(5))])
@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_ends_before_the_place_where_the_job_stood_is_refused(tmp_path, mode, source):
    path = tmp_path / "ck.json"
    with pytest.raises(StageError):
        Pipeline(lambda: iter(range(20)), mode=mode).map(fails_at(10)).run(checkpoint=path)
    with pytest.raises(CheckpointError, match="the source has only 5 rows now; this job stood at row 10"):
        Pipeline(source, mode=mode).map(fails_at(None)).run(checkpoint=path, accept_changed=True)
    assert state_of(path)["watermark"] == 10


async def aiter_of(count: int) -> Any:
    for number in range(count):
        yield number


@pytest.mark.parametrize("mode", MODES)
def test_an_async_source_is_read_again_and_skipped(tmp_path, mode):
    path, sink = tmp_path / "ck.json", Told()
    with pytest.raises(StageError):
        Pipeline(lambda: aiter_of(300), mode=mode).map(fails_at(250)).to(sink).run(checkpoint=path)
    Pipeline(lambda: aiter_of(300), mode=mode).map(fails_at(None)).to(sink).run(checkpoint=path)
    assert sink.rows == list(range(300))


def test_what_cannot_go_on_is_refused_before_anything_is_read(tmp_path):
    path, sink = tmp_path / "ck.json", Told()
    untouched = iter(range(3))
    plans = [
        (Pipeline(untouched).to(sink), "gives its items once"),
        (Pipeline(range(3)).scan(lambda s, v: (s, v), 0).to(sink), "state of a scan"),
        (Pipeline(range(3)).map(abs, key=abs, on_key_failure="block_key").to(sink), "forgets the blocked keys"),
        (Pipeline(range(3)).batch(2).flat_map(list).to(sink), "children of a batch"),
        (Pipeline(range(3)).to(sink, timeout=1.0), "leave out timeout="),
    ]
    for made, why in plans:
        with pytest.raises(PlanError, match=why):
            made.run(checkpoint=path)
    assert list(untouched) == [0, 1, 2]
    with pytest.raises(PlanError, match="say where to keep it: checkpoint=path"):
        Pipeline(range(3)).to(sink).run(job="j")
    with pytest.raises(PlanError, match="collect"):
        Pipeline(range(3)).collect(checkpoint=path)
    with pytest.raises(PlanError, match="there is no folder"):
        Pipeline(range(3)).to(sink).run(checkpoint=tmp_path / "no" / "ck.json")
    with pytest.raises(PlanError, match="job is a name"):
        Pipeline(range(3)).to(sink).run(job="", checkpoint=path)
    with pytest.raises(PlanError, match="accept_changed"):
        Pipeline(range(3)).to(sink).run(accept_changed=True)
    assert not path.exists()
    assert sink.opened == []


def test_the_plan_says_what_a_job_comes_to(tmp_path):
    to_file = Pipeline(range(3)).to(print)
    assert to_file.plan().to_dict()["checkpoint"]["effect"] == "at least once"
    assert "with job=: at least once" in str(to_file.plan())
    to_database = Pipeline(range(3)).to(SQLiteSink(tmp_path / "x.db", "t", columns={"id": "int"}))
    assert "with job=: exactly once (sink 'SQLiteSink' keeps the checkpoint" in str(to_database.plan())
    assert "with job=: refused" in str(Pipeline(range(3)).scan(lambda s, v: (s, v), 0).plan())


def test_a_list_of_another_length_in_place_of_a_batch_fails_where_children_have_to_be_known_again(tmp_path):
    made = Pipeline(range(6)).batch(2).map(lambda pair: pair[:1], name="first").unbatch().map(abs)
    report = made.run()
    assert (report.items.written, report.items.children, report.complete) == (3, 3, True)
    with pytest.raises(StageError, match="a batch of 2 came back as 1 items"):
        made.run(checkpoint=tmp_path / "ck.json")


def test_a_file_of_another_job_or_kind_is_refused(tmp_path):
    path = tmp_path / "ck.json"
    made = Pipeline(range(3)).to(print, order="none")
    Pipeline(range(3)).to(Told()).run(checkpoint=path, job="one")
    with pytest.raises(CheckpointError, match="belongs to job 'one', not to 'two'"):
        made.run(checkpoint=path, job="two")
    for text in ("hello", "[]", "{}", '{"format": 2, "job": "one", "epoch": 1, "state": null}'):
        path.write_text(text)
        with pytest.raises(CheckpointError, match="is no checkpoint"):
            made.run(checkpoint=path, job="one")
        assert path.read_text() == text


def test_two_pipelines_that_nobody_named_are_not_taken_for_one_job(tmp_path):
    target = tmp_path / "x.db"
    sink = lambda: SQLiteSink(target, "t", columns={"id": "int"})
    path = tmp_path / "ck.json"
    Pipeline(range(3)).map(lambda n: (n,)).to(sink()).run(checkpoint=path)
    with pytest.raises(CheckpointError, match="by another pipeline, of map map, sink SQLiteSink"):
        Pipeline(range(3)).map(lambda n: (n,), name="pair").to(sink()).run(checkpoint=path)
    assert not path.exists(), "the sink keeps it"
    assert query(str(target), "SELECT count(*) FROM t") == [(3,)]


@pytest.mark.parametrize("mode", MODES)
def test_other_code_goes_on_with_a_warning(tmp_path, mode):
    path = tmp_path / "ck.json"
    with pytest.raises(StageError):
        Pipeline(range(9), mode=mode).map(lambda n: 1 // (n - 5), name="f").run(checkpoint=path, job="j")
    with pytest.warns(RuntimeWarning, match="another version of this pipeline: the code of f is another"):
        report = Pipeline(range(9), mode=mode).map(lambda n: n, name="f").run(checkpoint=path, job="j")
    assert report.items.written == 4


def test_a_second_run_of_a_job_is_refused_while_the_first_is_at_it(tmp_path):
    target, path = tmp_path / "x.db", tmp_path / "ck.json"
    to_database = lambda: Pipeline(range(5)).map(lambda n: (n,)).to(SQLiteSink(target, "t", columns={"id": "int"}))
    to_file = lambda: Pipeline(range(5)).to(Told())
    for make, how in ((to_database, {"job": "j"}), (to_file, {"job": "j", "checkpoint": path})):
        met: list[str] = []

        def meet(value: Any, make: Any = make, how: Any = how, met: list[str] = met) -> Any:
            if not met:
                with pytest.raises(CheckpointError) as refused:
                    make().run(**how)
                met.append(str(refused.value))
            return value

        first = Pipeline(range(5)).map(meet).map(lambda n: (n,))
        sink = SQLiteSink(target, "t", columns={"id": "int"}) if make is to_database else Told()
        assert first.to(sink).run(**how).items.written == 5
        assert "job 'j' is being run by another process" in met[0]
        assert make().run(**how, accept_changed=True).job.already_finished


def test_a_run_that_was_overtaken_cannot_move_the_checkpoint(tmp_path):
    path = tmp_path / "ck.json"

    def overtake(value: int) -> int:
        if value == 5:
            stored = json.loads(path.read_text())
            path.write_text(json.dumps(stored | {"epoch": stored["epoch"] + 1}))
        return value

    with pytest.raises(CheckpointError, match="was taken over by another run"):
        Pipeline(range(10)).map(overtake).run(checkpoint=path, job="j")
    assert json.loads(path.read_text())["state"] is None


def test_a_dead_letter_that_cannot_be_kept_is_not_behind_a_checkpoint(tmp_path):
    path, sink = tmp_path / "ck.json", Told()

    def refuse(failure: Any) -> None:
        raise OSError("disk full")

    made = Pipeline(range(10), on_error="dead_letter").map(fails_at(4)).to(sink, order="none")
    with pytest.raises(HeadwayError, match="disk full"):
        made.run(checkpoint=path, job="j", dead_letters=refuse)
    assert state_of(path) is None
    kept: list[Any] = []
    made.run(checkpoint=path, job="j", dead_letters=kept)
    assert [failure.seq for failure in kept] == [4]
    assert set(sink.rows) == set(range(10)) - {4}


class Aside(Told):
    """Keeps what it was committed, as a database does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def commit(self, state: dict[str, Any]) -> None:
        self.kept += self.rows
        self.rows = []


@pytest.mark.parametrize("mode", MODES)
def test_a_dead_letter_is_durable_before_the_checkpoint_moves_past_its_item(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(commits, "COMMIT_S", 0.0)
    monkeypatch.setattr(inline, "COMMIT_S", 0.0)
    aside, sink, committed = Aside(), Told(), threading.Event()
    behind: list[tuple[int, int]] = []

    def commit(state: dict[str, Any]) -> None:
        behind.append((state["watermark"], len(aside.kept)))
        committed.set()

    def check(value: int) -> float:
        assert value < 200 or committed.wait(60)
        return 1 // (value % 10)

    sink.commit = commit  # type: ignore[method-assign]
    made = Pipeline(range(400), mode=mode, on_error="dead_letter", window=20).map(check).to(sink)
    made.run(checkpoint=tmp_path / "ck.json", dead_letters=aside)
    assert behind[0][0] <= 200
    assert all(kept >= -(-watermark // 10) for watermark, kept in behind)
    assert behind[-1] == (400, 40)


def test_dead_letters_that_would_go_with_the_process_are_refused(tmp_path):
    made = Pipeline(range(3)).map(abs, on_error="dead_letter")
    with pytest.raises(PlanError, match="name a place that stays, dead_letters=path"):
        made.run(checkpoint=tmp_path / "ck.json")
    assert made.run(checkpoint=tmp_path / "ck.json", dead_letters=tmp_path / "aside").items.written == 3


def test_a_fingerprint_that_raises_is_told_as_the_sources_failure(tmp_path):
    source = Numbers(3)
    source.fingerprint = lambda: 1 // 0  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="fingerprint of the source failed: ZeroDivisionError"):
        Pipeline(source).run(checkpoint=tmp_path / "ck.json")
    assert source.closed == 1


def test_a_position_that_is_not_json_ends_the_run_and_says_so(tmp_path):
    source = Numbers(3)
    source.position = lambda: {1}  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(CheckpointError, match="position is not JSON"):
        Pipeline(source).run(checkpoint=tmp_path / "ck.json")


def test_the_consumer_of_an_open_run_goes_on_behind_what_it_took(tmp_path):
    path, taken = tmp_path / "ck.json", []
    made = Pipeline(range(20)).map(lambda n: n)
    with made.open(checkpoint=path) as run:
        for value in run:
            taken.append(value)
            if value == 7:
                break
    with made.open(checkpoint=path) as run:
        taken += run
    assert taken == list(range(20))


def test_commits_come_while_the_run_goes_on_and_speak_of_what_the_sink_has(monkeypatch):
    monkeypatch.setattr(commits, "COMMIT_S", 0.0)
    monkeypatch.setattr(inline, "COMMIT_S", 0.0)
    for mode in MODES:
        sink, three = Told(), threading.Event()
        sizes: list[int] = []

        def commit(
            state: dict[str, Any], sink: Told = sink, three: threading.Event = three, sizes: list[int] = sizes
        ) -> None:
            sizes.append(len(sink.rows))
            sink.states.append(state)
            if len(sizes) == 3:
                three.set()

        def rows(three: threading.Event = three) -> Any:
            for row in range(3000):
                assert row < 2000 or three.wait(60)
                yield row

        sink.commit = commit  # type: ignore[method-assign]
        Pipeline(rows, mode=mode, window=50).to(sink).run()  # type: ignore[arg-type]
        assert len(sizes) > 3
        assert [state["watermark"] for state in sink.states] == sizes
        assert sink.states[-1] == {"watermark": 3000, "done": [], "written": 3000, "finished": True}


@pytest.mark.parametrize("pause_s", [0.0005, 0.004])
@pytest.mark.parametrize("mode", MODES)
def test_the_time_of_commits_is_the_sinks(monkeypatch, mode, pause_s):
    monkeypatch.setattr(commits, "COMMIT_S", 0.02)
    monkeypatch.setattr(inline, "COMMIT_S", 0.02)
    sink, spent = Told(), [0.0]

    def rows() -> Any:
        for row in range(300):
            time.sleep(pause_s)  # the run has to last for several commits, which come by the real clock
            yield row

    def commit(state: dict[str, Any]) -> None:
        started = time.perf_counter()
        time.sleep(0.01)  # what is measured: a commit that takes its time
        spent.append(time.perf_counter() - started)

    sink.commit = commit  # type: ignore[method-assign]
    report = Pipeline(rows, mode=mode).map(lambda row: row, name="same").to(sink).run()
    write = report.figures()["stages"][-1]
    assert len(spent) > 2, "one at least before the last"
    shares = sum(write[state] for state in STATES)
    assert shares == pytest.approx(1.0, abs=0.02)
    seconds = report.figures()["elapsed"]
    assert write["busy"] * seconds >= sum(spent[:-1]) * 0.98, "the last one ends the run"


def test_a_sink_that_always_has_the_next_job_in_hand_is_committed_all_the_same(monkeypatch):
    monkeypatch.setattr(commits, "COMMIT_S", 0.0)
    sink, enough, opened = Told(), threading.Event(), threading.Event()

    def rows() -> Any:
        for row in range(1_000_000):
            if enough.is_set():
                return
            yield row

    def write(items: Any) -> None:
        assert opened.wait(60), "the first rows may come before open() has given the run"
        assert reached(lambda: enough.is_set() or run.driver.engine.stages[-1].inbox.queued)
        sink.rows += items

    def commit(state: dict[str, Any]) -> None:
        sink.states.append(state)
        if len(sink.states) == 5:
            enough.set()

    sink.write, sink.commit = write, commit  # type: ignore[method-assign]
    with Pipeline(rows).to(sink).open() as run:
        opened.set()
        run.wait()
    assert len(sink.rows) < 1_000_000, "five commits came before the end"


def test_what_a_sink_takes_after_a_cancel_is_not_committed_and_comes_again():
    table: list[int] = []
    states: list[dict[str, Any] | None] = [None]
    cancelled: list[bool] = []
    opened = threading.Event()

    class Late(Told):
        def load(self, job: str) -> dict[str, Any] | None:
            return states[-1]

        def write(self, items: Any) -> None:
            if 30 in items and not cancelled:
                cancelled.append(True)
                assert opened.wait(60)
                run.cancel()
                reached(lambda: run.driver.engine.finished)
            super().write(items)

        def commit(self, state: dict[str, Any]) -> None:
            table.extend(self.rows)
            states.append(state)
            self.rows = []

    late = Pipeline(range(50), window=10).to(Late())
    with late.open(job="j") as run:
        opened.set()
        assert run.wait().state == "cancelled"
    with Pipeline(range(50), window=10).to(Late()).open(job="j") as run:
        run.wait()
    assert table == list(range(50))


def test_the_command_has_the_same_options(tmp_path):
    module = tmp_path / "mine.py"
    module.write_text("from headway import Pipeline\npipeline = Pipeline(range(5)).map(abs)\n")
    path = tmp_path / "ck.json"
    command = [sys.executable, "-m", "headway", "run", f"{module}:pipeline", "--checkpoint", str(path), "--job", "j"]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "job 'j': begun here" in first.stdout
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "job 'j' was finished before, with 5 written" in second.stdout
    # Of another length: Python takes a module of the same second and length for the one that it has compiled.
    module.write_text("from headway import Pipeline\npipeline = Pipeline(range(60)).map(abs)\n")
    third = subprocess.run(command, capture_output=True, text=True, check=False)
    assert third.returncode == 1
    assert "'5 items' then, '60 items' now" in third.stderr
    assert "Traceback" not in third.stderr
    fourth = subprocess.run([*command, "--accept-changed"], capture_output=True, text=True, check=True)
    assert "went on at row 5" in fourth.stdout


def test_functions_in_processes_go_on_too(tmp_path):
    path, sink = tmp_path / "ck.json", Told()
    with pytest.raises(StageError):
        Pipeline(range(30)).map(fails_at(20), on="process", workers=2).to(sink).run(checkpoint=path)
    Pipeline(range(30)).map(fails_at(None), on="process", workers=2).to(sink).run(checkpoint=path)
    assert sink.rows == list(range(30))
