"""Random pipelines over real threads, tasks and processes, whose workers are killed at random moments.

What fails by chance (a kill, a time limit) is taken from the dead letters; everything else has to be what
a plain loop gives that is told which items failed. A run is drawn from its seed: pipeline, faults, and
when is killed. The machine decides what a kill meets, so a seed that fails may have to be run a few times:
``python -m chaos.runs SEED [TIMES]`` in the folder of the tests.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headway import DROP, Failure, ItemTimeout, Pipeline, Retry, WorkerDied, current_item
from headway.errors import PlanError
from headway.run.restart import HOPELESS
from property.faulty import KEYS, Flaky, Item, Reference, add, booms, drops, fan, per_key
from property.pipelines import Boom, mix

PATIENCE_S = 120.0
HANG_S = 0.6
"""How long a call hangs that has a time limit of a third of that. A thread has to live through it."""
PROGRESS_S = 5.0
"""How long a kill waits for an item to be through since the last one in its stage."""
CHUNK = 24
"""Rows that are read for each kill."""


@dataclass
class Plan:
    """A pipeline and its faults as data."""

    steps: list[dict[str, Any]]
    order: str
    order_key: str | None
    window: int | None
    kills: int
    think_s: float
    sink: bool
    stop: str | None
    scales: bool


@dataclass
class Tally:
    """What a run came to."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    items: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0

    def add(self, other: Tally) -> None:
        """Count another run in."""
        self.runs += other.runs
        self.kills += other.kills
        self.lost += other.lost
        self.items += other.items
        self.failed += other.failed
        self.timeouts += other.timeouts
        self.retries += other.retries

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.items:,} items, {sum(self.kills.values())} kills ({dict(self.kills)}), "
            f"{sum(self.lost.values())} items lost ({dict(self.lost)}), {self.failed} failed in all, "
            f"{self.timeouts} timeouts, {self.retries} retries"
        )


def draw(seed: int) -> Plan:
    """The plan of `seed`; at least one stage runs in processes."""
    rng = random.Random(seed)
    steps: list[dict[str, Any]] = []
    batches = 0
    count = rng.randint(1, 3)
    process_at = rng.randrange(count)
    for n in range(count):
        name = f"s{n}"
        kind = rng.choice(["map", "map", "filter", "flat_map", "scan", "map_batches"])
        if n != process_at and rng.random() < 0.2:
            size = rng.choice([1, 3, 7])
            batches += size
            steps += [{"kind": "batch", "name": name, "size": size}, {"kind": "unbatch", "name": name}]
            continue
        key = rng.choice([None, None, "account", "branch"]) if kind != "map_batches" else None
        process = n == process_at or rng.random() < 0.3
        timed = rng.random() < 0.3
        step: dict[str, Any] = {
            "kind": kind, "name": name, "key": key, "on": "process" if process else rng.choice(["thread", "task"]),
            "workers": rng.choice([1, 2, 3, 4]), "queue": rng.choice([None, None, 2, 9]),
            "needs": "input" if key is None and kind == "map" and rng.random() < 0.15 else "none",
            "fails": rng.choice([0, 30, 100]), "drops": rng.choice([0, 300]) if kind != "flat_map" else 0,
            "flaky": rng.choice([0, 100]), "retry": rng.choice([None, None, 2, 3]),
            "atomic": kind == "flat_map" and rng.random() < 0.5,
            "timeout": HANG_S / 3 if timed and kind != "flat_map" else None, "deadline": None,
            "hangs": rng.choice([0, 8]) if timed else 0, "idempotent": process and rng.random() < 0.4,
            "on_key_failure": rng.choice(["continue", "continue", "block_key"]) if key else "continue",
            "pace_s": rng.choice([0.0, 0.001, 0.004]), "fan": rng.choice([2, 5]),
        }  # fmt: skip
        if step["needs"] == "input" or (kind == "scan" and (key is None or process)):
            step["workers"] = 1
        if kind == "flat_map" and not step["atomic"]:
            step["retry"] = None
        if kind == "map_batches":
            step["size"] = rng.choice([1, 4])
            batches += step["size"]
        if step["on"] == "task":
            step["timeout"], step["hangs"] = None, 0
        steps.append(step)
    order = rng.choice(["input", "input", "key", "none"])
    least = max(5 if any(s.get("atomic") for s in steps) else 1, 2 * batches)
    return Plan(
        steps, order, rng.choice(list(KEYS)) if order == "key" else None,
        rng.choice([None, None, least + 2, least + 30]), rng.randint(4, 10), rng.choice([0.0, 0.0, 0.002]),
        rng.random() < 0.5, rng.choice([None, None, None, None, "drain", "cancel"]), rng.random() < 0.3,
    )  # fmt: skip


def enter(step: dict[str, Any], item: Item) -> None:
    """What a call for `item` goes through: a while, a hang, and what it raises, by a fixed rule and its attempt."""
    name, attempt = step["name"], current_item().attempt
    time.sleep(step["pace_s"])  # real work: without it no kill would meet a call
    if mix(name, "hang", item.root, item.path) % 1000 < step["hangs"] and attempt == 1:
        time.sleep(HANG_S)  # a call that hangs: its time limit is what is tried
    if booms(step, item):
        raise Boom(name)
    if mix(name, "flaky", item.root, item.path) % 1000 < step["flaky"] and attempt <= 1 + mix(name, "n", item.root) % 2:
        raise Flaky(name)


def function(step: dict[str, Any]) -> Callable[..., Any]:
    """The function of a stage."""
    kind, name = step["kind"], step["name"]

    def one(item: Item) -> Any:
        enter(step, item)
        return DROP if drops(step, item) else item.through(name)

    def keep(item: Item) -> bool:
        enter(step, item)
        return not drops(step, item)

    def children(item: Item) -> Iterator[Item]:
        enter(step, item)
        for c in range(fan(step, item)):
            yield Item(item.root, (*item.path, c), item.trail)

    def running(state: int, item: Item) -> Any:
        enter(step, item)
        after = add(state, item)
        return after, DROP if drops(step, item) else item.through(after)

    def several(items: list[Item]) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                out.append(one(item))
            except (Boom, Flaky) as error:
                out.append(Failure(error))
        return out

    return {"map": one, "filter": keep, "flat_map": children, "scan": running, "map_batches": several}[kind]


def build(plan: Plan, source: Any) -> Pipeline[Any]:
    """The pipeline of a plan."""
    made: Pipeline[Any] = Pipeline(source, window=plan.window, on_error="dead_letter", name="chaos")
    for step in plan.steps:
        if step["kind"] == "batch":
            made = made.batch(step["size"])
            continue
        if step["kind"] == "unbatch":
            made = made.unbatch()
            continue
        options: dict[str, Any] = {
            "name": step["name"], "on": step["on"], "workers": step["workers"], "queue": step["queue"],
            "key": KEYS[step["key"]] if step["key"] else None, "timeout": step["timeout"],
            "idempotent": step["idempotent"], "on_key_failure": step["on_key_failure"],
            "retry": Retry(step["retry"], on=(Flaky, ItemTimeout, WorkerDied), backoff=0.005) if step["retry"] else None,
        }  # fmt: skip
        fn = function(step)
        if step["kind"] == "scan":
            made = made.scan(fn, 1, **options)
        elif step["kind"] == "map_batches":
            made = made.map_batches(fn, step["size"], **options)
        elif step["kind"] == "flat_map":
            made = made.flat_map(fn, atomic=step["atomic"], **options)
        elif step["kind"] == "filter":
            made = made.filter(fn, **options)
        else:
            made = made.map(fn, needs=step["needs"] if not step["key"] else "key", **options)
    return made.ordered(plan.order, KEYS[plan.order_key] if plan.order_key else None)  # type: ignore[arg-type]


class Chaos:
    """One run: its source, which is read a chunk for each kill, the killer, and what came out."""

    def __init__(self, seed: int) -> None:
        self.seed, self.plan = seed, draw(seed)
        self._rng = random.Random(seed + 1)
        self._chunks = threading.Semaphore(1)
        self._over = threading.Event()
        self.kills: Counter[str] = Counter()
        self.broken: list[str] = []
        self.outputs: list[Item] = []
        self.letters: list[Failure] = []
        self.run: Any = None

    def rows(self) -> Iterator[Item]:
        """The source."""
        for n in range(CHUNK * (self.plan.kills + 1)):
            if n % CHUNK == 0:
                while not self._chunks.acquire(timeout=0.05):
                    if self._over.is_set():
                        break
            yield Item(n)

    def take(self, item: Item) -> None:
        """The consumer."""
        self.outputs.append(item)
        if self.plan.think_s:
            time.sleep(self.plan.think_s)  # a consumer that takes its time is part of the plan

    def go(self) -> Tally:
        """Run, check everything, and count. Raises AssertionError naming the seed."""
        where = f"seed {self.seed} ({sys.executable} -m chaos.runs {self.seed} 20): {self.plan}"
        pipeline = build(self.plan, self.rows)
        how = {"dead_letters": self.letters, "drain_timeout": PATIENCE_S}
        killer = threading.Thread(target=self._kill_all, name="chaos-killer")
        try:
            if self.plan.sink:
                order, key = self.plan.order, KEYS[self.plan.order_key] if self.plan.order_key else None
                self.run = pipeline.to(self.take, order=order, key=key, on_error="dead_letter").start(**how)  # type: ignore[arg-type]
                killer.start()
                report = self.run.wait()
            else:
                with pipeline.open(**how) as self.run:
                    killer.start()
                    for item in self.run:
                        self.take(item)
                report = self.run.report
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}; {where}") from error
        finally:
            self._over.set()
            if killer.ident:
                killer.join()
        assert not self.broken, (self.broken, where)
        return self._check(report, where)

    # ---- the killer

    def _kill_all(self) -> None:
        try:
            if self._rng.random() < 0.8:
                self._wait_for_all_workers()  # else the first ones are killed while they start
            for number in range(self.plan.kills):
                self._chunks.release()
                self._over.wait(self._rng.choice([0, 0.002, 0.02, 0.1]) * self._rng.random())
                if self.plan.stop and number == self.plan.kills // 2:
                    getattr(self.run, self.plan.stop)()
                if self.plan.scales and self._rng.random() < 0.4:
                    self._scale()
                self._kill_one()
            self._wait_for_all_workers()
        except Exception as error:
            self.broken.append(f"{type(error).__name__}: {error}")
        finally:
            self._chunks.release(1000)

    def _crew(self) -> list[tuple[Any, Any]]:
        """Slots and workers in processes, as they stand."""
        crew = getattr(self.run.driver, "crew", None)
        return [(s, w) for s, w in (list(crew) if crew else []) if s.stage.spec.on == "process"]

    def _kill_one(self) -> None:
        """Kill a child that lives, wherever it is: starting, in a call, writing its answer, idle."""
        until = time.monotonic() + PROGRESS_S
        while time.monotonic() < until and not self._over.is_set():
            found = [(s, w) for s, w in self._crew() if w._child is not None and w._child.poll() is None]
            if found:
                slot, worker = self._rng.choice(found)
                if self._bearable(slot.stage):
                    worker._child.kill()
                    self.kills[slot.stage.spec.name] += 1
                    return
            time.sleep(0.002)  # nothing tells when a child of a moment's choosing lives

    def _bearable(self, stage: Any) -> bool:
        """Whether another death would not be the fifth without an item between, which would rightly end the run."""
        restarts = self.run.driver._restarts.get(stage.index)
        noted, barren = (len(restarts._deaths), len(restarts._barren)) if restarts is not None else (0, 0)
        return self.kills[stage.spec.name] - noted + barren < HOPELESS - 1

    def _scale(self) -> None:
        step = self._rng.choice(self.plan.steps)
        try:
            self.run.scale(step["name"], self._rng.choice([1, 2, 3]))
        except PlanError:
            return

    def _wait_for_all_workers(self) -> None:
        """The pool comes back to its size: a live child at every slot."""
        until = time.monotonic() + PATIENCE_S
        while not self._over.is_set() and not self.run.ended:
            here = self._crew()
            if here and all(w._child is not None and w._child.poll() is None for _, w in here):
                return
            if time.monotonic() > until:
                pids = [(s.stage.spec.name, s.number, w.pid) for s, w in here]
                self.broken.append(f"the pool is not back to its size: {pids}")
                return
            time.sleep(0.005)  # nothing tells when a pool is whole again

    # ---- the check

    def _check(self, report: Any, where: str) -> Tally:
        plan = self.plan
        assert report.complete, (report.to_dict(), where)
        failed: dict[Any, BaseException] = {}
        for letter in self.letters:
            assert (letter.stage, letter.seq) not in failed, (letter, where)
            failed[letter.stage, letter.seq] = letter.error
        lost: Counter[str] = Counter()
        for letter in self.letters:
            if isinstance(letter.error, WorkerDied):
                lost[str(letter.stage)] += 1
        self._check_lost(lost, where)
        items = report.items
        assert items.dead == len(self.letters), where
        assert items.written == len(self.outputs), (items, len(self.outputs), where)
        if report.state in ("done", "drained"):
            assert plan.stop or items.read == CHUNK * (plan.kills + 1), where
            assert (items.unread, report.unfinished) == (0, []), where
            self._compare(failed, items.read, report, where)
        else:
            assert plan.stop == "cancel", (report.state, where)
            seen = Counter((item.root, item.path) for item in self.outputs)
            assert all(times == 1 for times in seen.values()), ([k for k, t in seen.items() if t > 1][:6], where)
            if plan.order == "input":
                roots = [(item.root, item.path) for item in self.outputs]
                assert roots == sorted(roots), where
        return Tally(
            1, self.kills, lost, items.read, len(self.letters),
            sum(isinstance(letter.error, ItemTimeout) for letter in self.letters),
            sum(stage.retries for stage in report.stages),
        )  # fmt: skip

    def _check_lost(self, lost: Counter[str], where: str) -> None:
        """At most one item for each kill, and none where the block may run again or the item be tried again."""
        for step in plan_stages(self.plan):
            name, weight = step["name"], step.get("size", 1)
            covered = step["idempotent"] or step["retry"]
            poison = [f for f in self.letters if f.stage == name and isinstance(f.error, WorkerDied)]
            if step["kind"] == "flat_map":  # what a worker held paused goes with it
                continue
            if covered:
                # Only what met two kills, or had used up its attempts otherwise.
                assert all("poison" in str(f.error) or f.attempts > 1 for f in poison), (poison, where)
                assert len(poison) <= weight * (self.kills[name] // 2), (poison, self.kills, where)
            assert lost[name] <= weight * self.kills[name], (lost, self.kills, where)
            assert not lost[name] or step["on"] == "process", (lost, where)

    def _compare(self, failed: dict[Any, BaseException], rows: int, report: Any, where: str) -> None:
        reference = Reference(self.plan, failed)  # type: ignore[arg-type]
        try:
            expected = reference.run(rows)
        except AssertionError as error:
            raise AssertionError((error.args, where)) from error
        assert reference.used == set(failed), (set(failed) - reference.used, where)
        if self.plan.order == "input":
            assert self.outputs == expected, (difference(self.outputs, expected), where)
        else:
            assert Counter(self.outputs) == Counter(expected), (difference(self.outputs, expected), where)
        if self.plan.order_key:
            key = KEYS[self.plan.order_key]
            assert per_key(self.outputs, key) == per_key(expected, key), where
        for name, states in report_states(report).items():
            assert states == reference.states[name], (name, states, reference.states[name], where)


def plan_stages(plan: Plan) -> list[dict[str, Any]]:
    """The steps that are stages."""
    return [step for step in plan.steps if "workers" in step]


def report_states(report: Any) -> dict[str, dict[Any, int]]:
    """The final states of the scans."""
    return dict(report.states)


def difference(outputs: list[Item], expected: list[Item]) -> Any:
    """What is missing and what is too much, and where the order differs first."""
    missing, more = Counter(expected) - Counter(outputs), Counter(outputs) - Counter(expected)
    pairs = zip(outputs, expected, strict=False)
    return list(missing)[:5], list(more)[:5], next(((n, a, b) for n, (a, b) in enumerate(pairs) if a != b), None)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)
    totals = Tally()
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        totals.add(Chaos(int(sys.argv[1])).go())
    print(totals)
