"""Each line of the page of endings is a test: a line without one fails, and so does a test without a line."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import Tally
from acceptance.terminal import Script, alive
from headway import Failure, Pipeline, Retry, RunError, StageError, WorkerDied
from support.census import Census

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "endings.md"
LINES = re.findall(r"^\* (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
TESTS: list[tuple[str, Callable[..., None]]] = []


def says(line: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated function tests a line of the page."""

    def enter(test: Callable[..., None]) -> Callable[..., None]:
        TESTS.append((line, test))
        return test

    return enter


class Store:
    """A sink that keeps what it is given, and what of it was committed when."""

    def __init__(self, *, reached: int = 0) -> None:
        self.rows: list[Any] = []
        self.committed: list[Any] = []
        self.calls: list[Any] = []
        self.reached = threading.Event()
        self._at = reached

    def open(self, resume: Any) -> None:
        self.calls.append("open")

    def write(self, items: Any) -> None:
        self.rows += items
        if len(self.rows) >= self._at:
            self.reached.set()

    def commit(self, state: Any) -> None:
        self.committed = list(self.rows)
        self.calls.append("commit")

    def close(self, error: BaseException | None) -> None:
        self.calls.append(error)


def same(value: Any) -> Any:
    return value


def bad_at_30(value: int) -> int:
    if value == 30:
        raise ValueError("thirty")
    if value % 10 == 9:
        raise KeyError("nine")
    return value


class Gate:
    """A source that gives some rows and then waits, and the run over it."""

    def __init__(self, rows: int, store: Any, *, mode: str = "thread", fn: Any = same, **how: Any) -> None:
        self.go, self.given = threading.Event(), 0
        self._rows = rows
        made = Pipeline(self.source, window=64).map(fn, on=mode, workers=2, queue=4)
        self.run = made.to(store, name="store").start(**how)

    def source(self) -> Any:
        for n in range(self._rows):
            self.given += 1
            yield n
        while not self.go.is_set():
            self.go.wait(0.001)
            self.given += 1
            yield self.given - 1


# ---- success


@says("Every item that was read is written, filtered, dead or expanded.")
def success_ledger(folder: Path) -> None:
    pipeline = (
        Pipeline(range(100), on_error="dead_letter")
        .filter(lambda value: value % 3)
        .map(bad_at_30, workers=2)
        .flat_map(lambda value: [value] * (value % 4))
    )
    items = pipeline.run().items
    assert items.read + items.children == items.written + items.filtered + items.dead + items.expanded
    assert (items.read, items.unread) == (100, 0)


@says("The sink gets its items in input order.")
def success_order(folder: Path) -> None:
    store = Store()
    Pipeline(range(500)).map(same, workers=4).to(store).run()
    assert store.rows == list(range(500))


@says("The sink is committed and then closed with None.")
def success_commit(folder: Path) -> None:
    store = Store()
    Pipeline(range(50)).to(store).run()
    assert store.committed == store.rows == list(range(50))
    assert store.calls[-2:] == ["commit", None]


@says("No thread, child process, file or memory of the run is left.")
def success_left(folder: Path) -> None:
    before = Census()
    Pipeline(range(20)).map(same, on="process", workers=2).map(same, workers=2).run(dead_letters=folder / "letters")
    assert before.left(patience_s=0) == []


# ---- failure


def only_30(value: int) -> int:
    if value == 30:
        raise ValueError("thirty")
    return value


def fail_at_30(store: Any) -> StageError:
    with pytest.raises(StageError) as caught:
        Pipeline(range(100)).map(only_30, workers=4).to(store).run()
    return caught.value


@says("Everything before the failed item is delivered.")
def failure_before(folder: Path) -> None:
    store = Store()
    fail_at_30(store)
    assert store.rows[:30] == list(range(30))


@says("Nothing behind the failed item is delivered.")
def failure_behind(folder: Path) -> None:
    store = Store()
    fail_at_30(store)
    assert len(store.rows) == 30


@says("The sink commits what it was given.")
def failure_commit(folder: Path) -> None:
    store = Store()
    fail_at_30(store)
    assert store.committed == list(range(30))


@says("The sink is closed with the error.")
def failure_close(folder: Path) -> None:
    store = Store()
    error = fail_at_30(store)
    assert type(store.calls[-1]) is type(error)
    assert str(store.calls[-1]) == str(error)


@says("The error names the stage, the item, the attempt and the input of the stage.")
def failure_names(folder: Path) -> None:
    error = fail_at_30(Store())
    assert (error.stage, error.seq, error.attempts, error.value) == ("only_30", 30, 1, 30)


@says("The original exception is the cause of the error.")
def failure_cause(folder: Path) -> None:
    cause = fail_at_30(Store()).__cause__
    assert isinstance(cause, ValueError)
    assert str(cause) == "thirty"


@says("What was read and given up is counted as unread.")
def failure_unread(folder: Path) -> None:
    items = fail_at_30(Store()).report.items
    assert items.read == 30 + 1 + items.unread
    assert (items.written, items.dead) == (30, 1)


@says("Dead letters that were set aside before are kept.")
def failure_letters(folder: Path) -> None:
    letters: list[Failure] = []

    def nine(value: int) -> int:
        if value % 10 == 9:
            raise KeyError("nine")
        return value

    with pytest.raises(StageError):
        pipeline = Pipeline(range(100)).map(nine, on_error="dead_letter").map(only_30)
        pipeline.run(dead_letters=letters)
    assert [letter.seq for letter in letters][:3] == [9, 19, 29]


@says("A failing run leaves no thread, child process, file or memory.")
def failure_left(folder: Path) -> None:
    before = Census()
    with pytest.raises(StageError):
        Pipeline(range(100)).map(only_30, on="process", workers=2).run(dead_letters=folder / "letters")
    assert before.left(patience_s=0) == []


# ---- drain


@says("After a drain nothing more is read.")
def drain_reads(folder: Path) -> None:
    store = Store(reached=200)
    gate = Gate(100, store)
    assert store.reached.wait(60)
    gate.run.drain()
    report = gate.run.wait()
    # One row may have been on its way: it was given up by nobody.
    assert gate.given - 1 <= report.items.read <= gate.given


@says("A drain delivers everything that was read.")
def drain_delivers(folder: Path) -> None:
    store = Store(reached=200)
    gate = Gate(100, store)
    assert store.reached.wait(60)
    gate.run.drain()
    report = gate.run.wait()
    assert store.rows == list(range(report.items.read))
    assert (report.state, report.items.unread) == ("drained", 0)


@says("A drain delivers an incomplete batch.")
def drain_batch(folder: Path) -> None:
    batches: list[list[int]] = []
    waiting = threading.Event()

    async def rows() -> Any:
        import asyncio

        for n in range(10):
            yield n
        waiting.set()
        await asyncio.Event().wait()

    run = Pipeline(rows).batch(7).to(batches.append).start()
    assert waiting.wait(60)
    run.drain()
    run.wait()
    assert batches == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]


@says("A source that is blocked in a read is not waited for.")
def drain_blocked(folder: Path) -> None:
    go, waiting = threading.Event(), threading.Event()

    def rows() -> Any:
        yield from range(10)
        waiting.set()
        go.wait(100)

    store = Store()
    run = Pipeline(rows).to(store).start()
    assert waiting.wait(60)
    run.drain()
    with pytest.warns(RuntimeWarning, match="still in a read"):
        run.wait()
    go.set()
    assert store.rows == list(range(10))


@says("After `drain_timeout` a drain becomes a cancel.")
def drain_timeout(folder: Path) -> None:
    go, within = threading.Event(), threading.Event()

    def hang_from_5(value: int) -> int:
        if value >= 5:
            within.set()
            go.wait(100)
        return value

    store = Store()
    gate = Gate(10, store, fn=hang_from_5, drain_timeout=0.1)
    assert within.wait(60)
    gate.run.drain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        report = gate.run.wait()
    go.set()
    assert report.state == "cancelled"
    assert store.rows == list(range(len(store.rows)))


@says("A drained sink is committed and closed with None.")
def drain_commit(folder: Path) -> None:
    store = Store(reached=20)
    gate = Gate(20, store)
    assert store.reached.wait(60)
    gate.run.drain()
    gate.run.wait()
    assert store.committed == store.rows
    assert store.calls[-2:] == ["commit", None]


@says("A drained run leaves no thread, child process, file or memory.")
def drain_left(folder: Path) -> None:
    before = Census()
    store = Store(reached=20)
    gate = Gate(20, store, mode="process", dead_letters=folder / "letters")
    assert store.reached.wait(60)
    gate.run.drain()
    gate.run.wait()
    assert before.left(patience_s=0) == []


# ---- cancel


def cancel_within_calls(mode: str, folder: Path, timeout: float, seconds: float) -> tuple[Store, Any, Tally, Tally]:
    """Cancel while the calls for the items from 5 on take so many seconds."""
    started, ended = Tally(folder / "started"), Tally(folder / "ended")

    def work(value: int) -> int:
        import time

        started.bump()
        if value >= 5:
            time.sleep(seconds)  # the call of a child, which no event of this process reaches
        ended.bump()
        return value

    store = Store(reached=5)
    run = Pipeline(range(100)).map(work, on=mode, workers=2).to(store).start()
    assert store.reached.wait(60)
    while started.count < 7:
        threading.Event().wait(0.002)
    run.cancel(timeout)
    return store, run.wait(), started, ended


@says("After a cancel no call is started.")
def cancel_starts(folder: Path) -> None:
    _, _, started, _ = cancel_within_calls("process", folder, 0, 600)
    assert started.count == 7


@says("A call that runs has the seconds that the cancel gives it.")
def cancel_timeout(folder: Path) -> None:
    _, report, _, ended = cancel_within_calls("thread", folder, 60, 0.3)
    assert ended.count == 7
    assert report.state == "cancelled"


@says("A cancelled run has delivered an unbroken beginning of its input.")
def cancel_prefix(folder: Path) -> None:
    store = Store(reached=200)
    gate = Gate(100, store, mode="thread")
    assert store.reached.wait(60)
    gate.run.cancel()
    gate.run.wait()
    assert store.rows == list(range(len(store.rows)))
    assert len(store.rows) >= 200


@says("The report lists the numbers of the rows that were not finished.")
def cancel_unfinished(folder: Path) -> None:
    _, report, _, _ = cancel_within_calls("process", folder, 0, 600)
    assert report.unfinished == [[5, report.items.read - 1]]


@says("A cancelled sink is committed and closed with None.")
def cancel_commit(folder: Path) -> None:
    store, _, _, _ = cancel_within_calls("process", folder, 0, 600)
    assert store.committed == store.rows == list(range(5))
    assert store.calls[-2:] == ["commit", None]


@says("A process whose call does not return is killed.")
def cancel_process(folder: Path) -> None:
    before = Census()
    cancel_within_calls("process", folder, 0, 600)
    assert before.left(patience_s=0) == []


@says("A thread whose call does not return is left behind, with a warning.")
def cancel_thread(folder: Path) -> None:
    go, within = threading.Event(), threading.Event()

    def hang(value: int) -> None:
        within.set()
        go.wait(100)

    run = Pipeline([1]).map(hang, name="hang").start()
    assert within.wait(60)
    run.cancel()
    with pytest.warns(RuntimeWarning, match="'hang' does not return"):
        run.wait()
    go.set()


# ---- abort


@says("An aborted sink is closed without a commit.")
def abort_commit(folder: Path) -> None:
    store = Store(reached=20)
    gate = Gate(20, store)
    assert store.reached.wait(60)
    commits = store.calls.count("commit")
    gate.run.abort()
    with pytest.raises(RunError, match="aborted"):
        gate.run.wait()
    assert store.calls.count("commit") - commits <= 1  # the one that may be due each second
    assert store.calls[-1] != "commit"


@says("Only the last commit of an aborted sink stands.")
def abort_stands(folder: Path) -> None:
    store = Store(reached=20)
    gate = Gate(20, store)
    assert store.reached.wait(60)
    gate.run.abort()
    with pytest.raises(RunError, match="aborted"):
        gate.run.wait()
    assert store.committed == store.rows[: len(store.committed)]
    assert len(store.committed) < len(store.rows)


@says("Waiting for an aborted run raises, with the counts.")
def abort_raises(folder: Path) -> None:
    store = Store(reached=20)
    gate = Gate(20, store)
    assert store.reached.wait(60)
    gate.run.abort()
    with pytest.raises(RunError) as caught:
        gate.run.wait()
    items = caught.value.report.items
    assert f"{items.read:,} read, {items.written:,} written" in str(caught.value)


@says("An aborted run leaves no thread, child process, file or memory.")
def abort_left(folder: Path) -> None:
    before = Census()
    store = Store(reached=20)
    gate = Gate(20, store, mode="process", dead_letters=folder / "letters")
    assert store.reached.wait(60)
    gate.run.abort()
    with pytest.raises(RunError):
        gate.run.wait()
    assert before.left(patience_s=0) == []


# ---- kill -9 of a worker


def killing(folder: Path) -> Callable[[int], int]:
    """A function whose first call for item 10 kills its own process."""
    flag = folder / "killed"

    def work(value: int) -> int:
        if value == 10 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return work


def kill(folder: Path, **options: Any) -> tuple[list[int], Any]:
    outputs: list[int] = []
    pipeline = Pipeline(range(100), on_error="dead_letter").map(killing(folder), on="process", workers=3, **options)
    return outputs, pipeline.to(outputs.append).run()


@says("The item whose call ran is lost, and no other.")
def killed_item(folder: Path) -> None:
    outputs, report = kill(folder)
    assert outputs == [n for n in range(100) if n != 10]
    assert [letter.seq for letter in report.dead_letters] == [10]


@says("A stage that is idempotent loses nothing.")
def killed_idempotent(folder: Path) -> None:
    outputs, report = kill(folder, idempotent=True)
    assert outputs == list(range(100))
    assert report.stages[0].restarts == 1


@says("A stage that retries on `WorkerDied` loses nothing.")
def killed_retry(folder: Path) -> None:
    outputs, report = kill(folder, retry=Retry(2, on=WorkerDied))
    assert outputs == list(range(100))
    assert report.stages[0].restarts == 1


def pids_around_a_kill() -> tuple[list[int], list[int], int]:
    """The pids of three workers before and after one of them was killed, and of which."""
    go, run = threading.Event(), None

    def rows() -> Any:
        yield from range(10)
        assert go.wait(100)
        yield from range(10, 20)

    run = Pipeline(rows, on_error="skip").map(same, on="process", workers=3).start()

    def pids() -> list[int]:
        workers = [w for s, w in getattr(run.driver, "crew", ()) if s.stage.spec.on == "process"]
        return [w.pid for w in workers if w.pid and alive_now(w.pid)]

    while len(pids()) < 3 or not run.snapshot().items.read:
        threading.Event().wait(0.005)
    before = pids()
    os.kill(before[1], signal.SIGKILL)
    while len(pids()) < 3 or before[1] in pids():
        threading.Event().wait(0.005)
    after = pids()
    go.set()
    assert run.wait().items.read == 20
    return before, after, before[1]


def alive_now(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@says("Another worker takes the place of the killed one.")
def killed_replaced(folder: Path) -> None:
    before, after, killed = pids_around_a_kill()
    assert len(after) == len(before) == 3
    assert killed not in after


@says("The other workers stay.")
def killed_others(folder: Path) -> None:
    before, after, killed = pids_around_a_kill()
    assert set(before) - set(after) == {killed}


@says("The set-up of a killed worker is not taken down.")
def killed_setup(folder: Path) -> None:
    made, taken_down = Tally(folder / "made"), Tally(folder / "taken down")

    class Connection:
        def __enter__(self) -> None:
            made.bump()

        def __exit__(self, *error: object) -> None:
            taken_down.bump()

    work = killing(folder)
    pipeline = Pipeline(range(100), on_error="skip").map(
        lambda value, _: work(value), on="process", workers=2, setup=Connection
    )
    assert pipeline.run().items.dead == 1
    assert (made.count, taken_down.count) == (3, 2)


@says('Under the policy "raise" the run ends with `WorkerDied`, which names the item and the signal.')
def killed_raise(folder: Path) -> None:
    with pytest.raises(WorkerDied, match="item 10") as caught:
        Pipeline(range(100)).map(killing(folder), on="process", workers=3).run()
    assert (caught.value.seq, caught.value.signal) == (10, signal.SIGKILL)


# ---- kill -9 of the parent

PARENT = """
import itertools
from headway import Pipeline

def work(value):
    note("started", value)
    if value % 10 == 3:
        raise ValueError("three")
    time.sleep(0.01)  # so that the parent is killed while items are under way
    return value

class Store:
    rows = []
    def open(self, resume):
        pass
    def write(self, items):
        self.rows += items
    def commit(self, state):
        path = FOLDER / "committed.new"
        path.write_text(" ".join(map(str, self.rows)))
        path.rename(FOLDER / "committed")
        note("commits")
    def close(self, error):
        note("closed")

pipeline = Pipeline(itertools.count(), on_error="dead_letter").map(work, on="process", workers=2).to(Store())
pipeline.run(dead_letters=FOLDER / "letters")
"""


def kill_parent(folder: Path) -> Script:
    with Script(folder, PARENT, options=()) as script:
        script.wait_for("commits", 2)
        os.kill(script.process.pid, signal.SIGKILL)
        script.process.wait(60)
    return script


@says("The child processes end with the parent.")
def parent_children(folder: Path) -> None:
    script = kill_parent(folder)
    assert len(script.pids("started")) == 2
    assert not any(alive(pid) for pid in script.pids("started"))


@says("Only the last commit of the sink of a killed parent stands.")
def parent_commit(folder: Path) -> None:
    script = kill_parent(folder)
    committed = [int(n) for n in (folder / "committed").read_text().split()]
    assert committed == [n for n in range(committed[-1] + 1) if n % 10 != 3]
    assert script.noted("closed") == []


@says("Dead letters in a file are there up to the kill.")
def parent_letters(folder: Path) -> None:
    kill_parent(folder)
    committed = [int(n) for n in (folder / "committed").read_text().split()]
    letters = [json.loads(line)["seq"] for line in (folder / "letters").read_text().splitlines()]
    assert {n for n in range(committed[-1]) if n % 10 == 3} <= set(letters)


@says("A killed parent leaves no shared memory.")
def parent_memory(folder: Path) -> None:
    before = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").exists() else set()
    kill_parent(folder)
    after = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").exists() else set()
    assert not [path for path in after - before if "headway" in path.name]


# ---- the page


@pytest.mark.parametrize("line", LINES)
def test_the_page_is_true(tmp_path, line):
    tests = [test for said, test in TESTS if said == line]
    assert tests, f"no test of: {line}"
    tests[0](tmp_path)


def test_every_line_has_one_test_and_every_test_a_line():
    assert LINES
    assert Counter(line for line, _ in TESTS) == Counter(LINES)
