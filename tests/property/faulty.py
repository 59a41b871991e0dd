"""Random pipelines under faults, with a plain loop that is told which calls failed as the reference.

Keys, scans, retries, time limits, pauses, rates, deaths of workers, changes of the number of workers, stops.
What fails by chance (a limit, a death) is taken from the run; everything else has to follow from it.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.core.block import DROP, child
from headway.core.engine import Engine
from headway.core.plan import make_plan
from headway.core.policy import RateLimit, Retry
from headway.core.scaling import scaled
from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.errors import Failure, ItemTimeout, PlanError, PredecessorFailed, RetryAfter, WorkerDied
from headway.sim.driver import VirtualRun
from property.pipelines import Boom, mix

Tag = Any


class Flaky(Exception):
    """Passes if it is tried again often enough."""


@dataclass(frozen=True)
class Item:
    """A value that remembers where it has been."""

    root: int
    path: tuple[int, ...] = ()
    trail: tuple[Any, ...] = ()

    def through(self, mark: Any) -> Item:
        return Item(self.root, self.path, (*self.trail[-3:], mark))


def by_account(item: Any) -> int:
    return item.root % 5


def by_branch(item: Any) -> int:
    return item.root // 4 % 3


KEYS = {"account": by_account, "branch": by_branch}


@dataclass
class Spec:
    """A pipeline and its faults as data, so that a failing seed can be read."""

    steps: list[dict[str, Any]]
    rows: int
    order: str
    order_key: str | None
    window: int | None
    policy: str
    service: dict[str, tuple[str, float]]
    source_s: float
    think_s: float
    stop: tuple[str, float] | None
    kills: list[float]
    scales: list[tuple[float, str, int]]
    calls: Counter[Any] = field(default_factory=Counter)


def draw(seed: int) -> Spec:
    rng = random.Random(seed)
    steps: list[dict[str, Any]] = []
    service: dict[str, tuple[str, float]] = {}
    batches = 0
    for n in range(rng.randint(1, 4)):
        name = f"s{n}"
        kind = rng.choice(["map", "map", "map", "filter", "flat_map", "scan", "scan", "map_batches", "batch"])
        if kind == "batch":
            size = rng.choice([1, 3, 7])
            batches += size
            steps.append({"kind": "batch", "name": name, "size": size})
            steps.append({"kind": "unbatch", "name": name})
            continue
        key = rng.choice([None, None, "account", "branch"]) if kind != "map_batches" else None
        process = rng.random() < 0.4 and kind != "scan"
        step: dict[str, Any] = {
            "kind": kind, "name": name, "key": key,
            "workers": rng.choice([1, 1, 2, 3, 6]),
            "queue": rng.choice([None, None, 1, 2, 9]),
            "needs": "input" if key is None and kind == "map" and rng.random() < 0.2 else "none",
            "fails": rng.choice([0, 0, 40, 300]), "drops": rng.choice([0, 0, 300]) if kind != "flat_map" else 0,
            "flaky": rng.choice([0, 0, 200]), "pauses": rng.choice([0, 0, 0, 60]),
            "retry": rng.choice([None, None, 2, 3]), "atomic": kind == "flat_map" and rng.random() < 0.5,
            "timeout": rng.choice([None, None, 1.5, 4.0]), "deadline": rng.choice([None, None, None, 60.0]),
            "on": "process" if process else "thread", "idempotent": process and rng.random() < 0.4,
            "rate": rng.choice([None, None, None, None, 4.0]),
            "on_key_failure": rng.choice(["continue", "continue", "block_key"]) if key else "continue",
        }  # fmt: skip
        if step["needs"] == "input" or (kind == "scan" and key is None):
            step["workers"] = 1
        if kind == "flat_map" and not step["atomic"]:
            step["retry"] = None
        if kind == "map_batches":
            step["size"] = rng.choice([1, 4])
            batches += step["size"]
        step["fan"] = rng.choice([2, 5])
        service[name] = (rng.choice(["const", "exp", "heavy", "zero", "tiny"]), rng.choice([0.3, 1.0]))
        steps.append(step)
    order = rng.choice(["input", "input", "key", "none"])
    least = max(5 if any(s.get("atomic") for s in steps) else 1, 2 * batches)
    killed = any(s.get("on") == "process" for s in steps)
    scalable = [s["name"] for s in steps if "workers" in s]
    return Spec(
        steps, rng.choice([1, 9, 60, 150]), order, rng.choice(list(KEYS)) if order == "key" else None,
        rng.choice([None, least + 2, least + 30]), rng.choice(["dead_letter", "dead_letter", "skip", "raise"]), service,
        rng.choice([0.0, 0.0, 0.3]), rng.choice([0.0, 0.0, 0.5]),
        rng.choice([None, None, None, None, ("drain", rng.random() * 60), ("cancel", rng.random() * 60)]),
        [rng.random() * 40 for _ in range(rng.choice([0, 1, 6]) if killed else 0)],
        [(rng.random() * 30, rng.choice(scalable), rng.choice([1, 2, 4]))
         for _ in range(rng.choice([0, 0, 1, 3]) if scalable else 0)],
    )  # fmt: skip


def raises(step: dict[str, Any], item: Item, calls: Counter[Any]) -> None:
    """What a call for `item` raises, by a fixed rule and the number of calls made before."""
    name = step["name"]
    calls[name, item.root, item.path] += 1
    made = calls[name, item.root, item.path]
    if mix(name, "pause", item.root, item.path) % 1000 < step["pauses"] and made == 1:
        raise RetryAfter(0.7)
    if booms(step, item):
        raise Boom(name)
    if mix(name, "flaky", item.root, item.path) % 1000 < step["flaky"] and made <= 1 + mix(name, "n", item.root) % 2:
        raise Flaky(name)


def booms(step: dict[str, Any], item: Item) -> bool:
    return mix(step["name"], "boom", item.root, item.path) % 1000 < step["fails"]


def drops(step: dict[str, Any], item: Item) -> bool:
    return mix(step["name"], "drop", item.root, item.path) % 1000 < step["drops"]


def fan(step: dict[str, Any], item: Item) -> int:
    return mix(step["name"], "fan", item.root, item.path) % step["fan"]


def add(state: int, item: Item) -> int:
    return mix(state, item.root, item.path)


def function(step: dict[str, Any], calls: Counter[Any]) -> Callable[..., Any]:
    kind, name = step["kind"], step["name"]

    def one(item: Item) -> Any:
        raises(step, item, calls)
        return DROP if drops(step, item) else item.through(name)

    def keep(item: Item) -> bool:
        raises(step, item, calls)
        return not drops(step, item)

    def children(item: Item) -> Iterator[Item]:
        raises(step, item, calls)
        for c in range(fan(step, item)):
            yield Item(item.root, (*item.path, c), item.trail)

    def running(state: int, item: Item) -> Any:
        raises(step, item, calls)
        after = add(state, item)
        return after, DROP if drops(step, item) else item.through(after)

    def several(items: list[Item]) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                out.append(one(item))
            except (Boom, Flaky, RetryAfter) as error:
                out.append(Failure(error))
        return out

    return {"map": one, "filter": keep, "flat_map": children, "scan": running, "map_batches": several}[kind]


def build(spec: Spec) -> list[Step]:
    steps: list[Step] = []
    limit = RateLimit(4.0)
    for step in spec.steps:
        if step["kind"] == "batch":
            steps.append(BatchSpec(step["size"]))
        elif step["kind"] == "unbatch":
            steps.append(UnbatchSpec())
        else:
            if step["kind"] == "map_batches":
                steps.append(BatchSpec(step["size"], for_map=True))
            needs = "input" if step["kind"] == "scan" and step["key"] is None else step["needs"]
            steps.append(
                StageSpec(
                    step["kind"],
                    function(step, spec.calls),
                    step["name"],
                    workers=step["workers"],
                    queue=step["queue"],
                    needs="key" if step["key"] else needs,
                    key=KEYS[step["key"]] if step["key"] else None,
                    retry=Retry(step["retry"], on=(Flaky, ItemTimeout, WorkerDied), backoff=0.4)
                    if step["retry"]
                    else None,
                    timeout=step["timeout"],
                    deadline=step["deadline"],
                    on=step["on"],
                    idempotent=step["idempotent"],
                    atomic=step["atomic"],
                    rate=limit if step["rate"] else None,
                    on_key_failure=step["on_key_failure"],
                    initial=1 if step["kind"] == "scan" else None,
                )
            )
    steps.append(StageSpec("consume", None, "output"))
    return steps


class Reference:
    """The plain loop: each stage over the items in input order, failing where the run did."""

    def __init__(self, spec: Spec, failed: dict[tuple[str, Tag], BaseException]) -> None:
        self.spec, self.failed = spec, failed
        self.used: set[tuple[str, Tag]] = set()
        self.states: dict[str, dict[Any, int]] = defaultdict(dict)

    def fails(self, step: dict[str, Any], tag: Tag, item: Item) -> bool:
        """Whether the call failed in the run, having checked that it may have, or had to."""
        error = self.failed.get((step["name"], tag))
        if error is None:
            assert not booms(step, item), f"{step['name']} {tag} had to fail"
            return False
        self.used.add((step["name"], tag))
        if isinstance(error, Boom):
            assert booms(step, item), (step["name"], tag)
        elif isinstance(error, Flaky):
            assert mix(step["name"], "flaky", item.root, item.path) % 1000 < step["flaky"], (step["name"], tag)
        elif isinstance(error, ItemTimeout):
            assert step["timeout"] or step["deadline"], (step["name"], tag)
        elif isinstance(error, WorkerDied):
            assert step["on"] == "process", (step["name"], tag)
        elif isinstance(error, RetryAfter):
            assert step["kind"] == "map_batches", (step["name"], tag)
        else:
            assert isinstance(error, PredecessorFailed), (step["name"], tag, error)
            assert step["on_key_failure"] == "block_key"
        return True

    def run(self, rows: int) -> list[Item]:
        items: list[tuple[Tag, Item]] = [(n, Item(n)) for n in range(rows)]
        for step in self.spec.steps:
            if step["kind"] not in ("batch", "unbatch"):
                items = list(self._stage(step, items))
        return [item for _, item in items]

    def _stage(self, step: dict[str, Any], items: list[tuple[Tag, Item]]) -> Iterator[tuple[Tag, Item]]:
        kind, name = step["kind"], step["name"]
        key = KEYS[step["key"]] if step["key"] else lambda _: None
        states: dict[Any, int] = self.states[name]
        blocked: set[Any] = set()
        for tag, item in items:
            if kind == "flat_map":
                yield from self._children(step, tag, item, blocked, key)
                continue
            dead = self.fails(step, tag, item)
            if step["on_key_failure"] == "block_key":
                error = self.failed.get((name, tag))
                assert (key(item) in blocked) == isinstance(error, PredecessorFailed), (name, tag, error)
                if dead:
                    blocked.add(key(item))
            if dead:
                continue
            if kind == "scan":
                after = add(states.get(key(item), 1), item)
                states[key(item)] = after
                if not drops(step, item):
                    yield tag, item.through(after)
            elif kind == "filter":
                if not drops(step, item):
                    yield tag, item
            elif not drops(step, item):
                yield tag, item.through(name)

    def _children(
        self, step: dict[str, Any], tag: Tag, item: Item, blocked: set[Any], key: Callable[[Item], Any]
    ) -> Iterator[tuple[Tag, Item]]:
        count = fan(step, item)
        for c in range(count + 1):
            place = child(tag, c) if c else tag
            if (step["name"], place) in self.failed:
                assert self.fails(step, place, item)
                return
            if c < count:
                assert not booms(step, item), (step["name"], tag)
                yield child(tag, c), Item(item.root, (*item.path, c), item.trail)


def draws_of(spec: Spec) -> dict[str, Any]:
    def make(kind: str, mean: float) -> Any:
        return {
            "const": mean,
            "zero": 0.0,
            "tiny": 1e-5,
            "exp": lambda rng, _v: rng.expovariate(1 / mean),
            "heavy": lambda rng, _v: mean * (20 if rng.random() < 0.05 else 0.3),
        }[kind]

    return {name: make(*how) for name, how in spec.service.items()}


def watch(broken: list[str]) -> Callable[[Engine], None]:
    """The window, and what is held, after every event."""

    def look(engine: Engine) -> None:
        window = engine.window
        if not 0 <= window.used <= window.items:
            broken.append(f"window {window.used} of {window.items}")
        for stage in engine.stages:
            broken.extend(
                f"held {gate.held_items} before {stage.spec.name}"
                for gate in stage.gates
                if gate.held_items > window.items - 1 and not engine._expands
            )

    return look


def run_one(seed: int) -> str:
    """Run the pipeline of `seed` and check it; returns a digest of the run. Raises AssertionError naming the seed."""
    spec = draw(seed)
    where = f"seed {seed}: {spec}"
    order_key = KEYS[spec.order_key] if spec.order_key else None
    plan = make_plan(PipelineSpec("p", tuple(build(spec)), order=spec.order, order_key=order_key, window=spec.window,
                                  on_error=spec.policy))  # fmt: skip
    broken: list[str] = []
    run = VirtualRun(plan, map(Item, range(spec.rows)), draws_of(spec), seed=seed, source_s=spec.source_s,
                     think_s=spec.think_s, on_event=watch(broken))  # fmt: skip
    failed: dict[tuple[str, Tag], BaseException] = {}
    tell = run.engine._fail

    def note(failure: Failure, *rest: Any) -> None:
        assert (failure.stage, failure.seq) not in failed, f"{failure} failed twice; {where}"
        failed[str(failure.stage), failure.seq] = failure.error
        tell(failure, *rest)

    run.engine._fail = note  # type: ignore[method-assign]
    schedule(run, spec, seed)
    run.run()
    check(spec, run, failed, broken, where)
    return repr((run.now, run.outputs, run.log, run.engine.fates, run.engine.state))


def schedule(run: VirtualRun, spec: Spec, seed: int) -> None:
    """Enter kills, changes of the number of workers and the stop into the run."""
    rng, engine = random.Random(seed + 1), run.engine

    def kill() -> None:
        slots = [s for stage in engine.stages if stage.spec.on == "process" for s in stage.slots + stage.leaving]
        if slots and not engine.finished:
            run.kill(rng.choice(slots))

    def change(name: str, workers: int) -> None:
        stage = next(stage for stage in engine.stages if stage.spec.name == name)
        try:
            scaled(engine.plan.spec, name, workers)
        except PlanError:
            return
        engine.scale(stage, workers, run.now)

    for at in spec.kills:
        run.at(at, kill)
    for at, name, workers in spec.scales:
        run.at(at, lambda name=name, workers=workers: change(name, workers))  # type: ignore[misc]
    if spec.stop:
        mode, at = spec.stop
        run.at(at, lambda: run.stop(mode, timeout=2.0))  # type: ignore[arg-type]


def check(spec: Spec, run: VirtualRun, failed: dict[Any, BaseException], broken: list[str], where: str) -> None:
    engine, outputs = run.engine, run.outputs
    assert not broken, (broken[:3], where)
    assert engine.complete, (engine.fates, [vars(s.meter) for s in engine.stages], where)
    for stage in engine.stages:
        if engine.state in ("done", "drained"):
            assert not stage.key_of, (stage.spec.name, len(stage.key_of), where)
            assert (stage.in_hand, stage.expected, stage.busy_slots, len(stage.backoff)) == (0, 0, 0, 0), where
    check_lanes(spec, run, where)
    reference = Reference(spec, failed)
    if engine.state not in ("done", "drained"):
        if spec.order == "input" and engine.state == "cancelled" and not any(s.get("rate") for s in spec.steps):
            roots = [item.root for item in outputs]
            assert roots == sorted(roots), where
        return
    try:
        expected = reference.run(engine.fates.read)
    except AssertionError as error:
        raise AssertionError((error.args, where)) from error
    assert engine.fates.unread == 0, where
    assert reference.used == set(failed), (set(failed) - reference.used, where)
    assert engine.fates.dead == len(failed), where
    if spec.order == "input":
        assert outputs == expected, (first_difference(outputs, expected), where)
    else:
        assert Counter(outputs) == Counter(expected), (Counter(outputs) - Counter(expected), where)
    if spec.order == "key":
        key = KEYS[str(spec.order_key)]
        assert per_key(outputs, key) == per_key(expected, key), where
    for name, states in run.states.items():
        if any(s["name"] == name and s["kind"] == "scan" for s in spec.steps):
            assert states == reference.states[name], (name, states, reference.states[name], where)
    died = sum(isinstance(error, WorkerDied) for error in failed.values())
    if not any(s["kind"] == "flat_map" for s in spec.steps) and not any(s["kind"] == "map_batches" for s in spec.steps):
        assert died <= len(spec.kills), (died, where)


def first_difference(outputs: list[Item], expected: list[Item]) -> Any:
    pairs = zip(outputs, expected, strict=False)
    return next(((n, a, b) for n, (a, b) in enumerate(pairs) if a != b), (len(outputs), len(expected)))


def per_key(items: list[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    lists: dict[Any, list[Item]] = defaultdict(list)
    for item in items:
        lists[key(item)].append(item)
    return lists


def check_lanes(spec: Spec, run: VirtualRun, where: str) -> None:
    """No two items of a key ran at once, and each key's began in input order."""
    for step in spec.steps:
        if not step.get("key") or step["kind"] == "map_batches":
            continue
        key, ends, last = KEYS[step["key"]], {}, {}
        for name, _, tag, started, stopped in sorted(run.log, key=lambda entry: (entry[3], entry[4])):
            if name != step["name"]:
                continue
            root = tag if isinstance(tag, int) else tag[0]
            k = key(Item(root))
            assert started >= ends.get(k, 0.0) - 1e-9, (name, tag, where)
            ends[k] = max(stopped, ends.get(k, 0.0))
            place = (tag,) if isinstance(tag, int) else tag
            if started < stopped:
                assert place >= last.get(k, ()), (name, tag, where)
                last[k] = place
