"""Random pipelines with a plain-loop reference: what the engine must give under any schedule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.core.block import DROP
from headway.core.engine import Engine
from headway.core.plan import make_plan
from headway.core.spec import BatchSpec, PipelineSpec, StageSpec, Step, UnbatchSpec
from headway.errors import Failure
from headway.sim.driver import VirtualRun


def mix(*parts: Any) -> int:
    """A number that is a fixed function of its arguments."""
    h = 2166136261
    for c in repr(parts).encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h ^ (h >> 13)


class Boom(Exception):
    pass


@dataclass
class Spec:
    """A pipeline as data, so that a failing seed can be read."""

    steps: list[dict[str, Any]]
    rows: int
    order: str
    window: int | None
    window_bytes: int
    policy: str
    service: dict[str, tuple[str, float]]
    source_s: float
    think_s: float
    stop: tuple[str, float] | None
    leave_after: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def element(step: dict[str, Any]) -> Callable[[Any], Any]:
    """The function of one item for a step: it fails, filters or maps by a fixed rule."""
    name, fails, drops = step["name"], step.get("fails", 0), step.get("drops", 0)

    def fn(value: Any) -> Any:
        h = mix(name, value) % 1000
        if h < fails:
            raise Boom(name)
        if h < fails + drops:
            return DROP
        return (value, name) if not isinstance(value, tuple) else (*value[:4], name)

    return fn


def function(step: dict[str, Any]) -> Any:
    kind, fn = step["kind"], element(step)
    if kind == "map" and step.get("batched"):
        return lambda items: [v if isinstance(v, Failure) else (v, step["name"]) for v in items]
    if kind == "filter":

        def keep(value: Any) -> bool:
            return fn(value) is not DROP

        return keep
    if kind == "flat_map":

        def children(value: Any) -> Iterator[Any]:
            h = mix(step["name"], "n", value)
            count = h % step["fan"]
            if h % 97 == 0:
                count *= 20
            bad = h // 97 % 1000 < step.get("fails", 0)
            for c in range(count):
                if bad and c == count // 2:
                    raise Boom(step["name"])
                yield (value, c)
            if bad and not count:
                raise Boom(step["name"])

        return children
    if kind == "map_batches":

        def batch(values: list[Any]) -> list[Any]:
            out = []
            for value in values:
                try:
                    out.append(fn(value))
                except Boom as error:
                    out.append(Failure(error))
            return out

        return batch
    return fn


def draw_spec(seed: int) -> Spec:
    rng = random.Random(seed)
    policy = rng.choice(["dead_letter", "dead_letter", "skip", "keep", "raise"])
    order = rng.choice(["input", "input", "input", "none"])
    steps: list[dict[str, Any]] = []
    batched = False
    batches = 0
    service = {}
    for n in range(rng.randint(1, 5)):
        kinds = (
            ["map", "map", "filter", "flat_map", "map_batches", "batch"]
            if not batched
            else ["map", "unbatch", "unbatch"]
        )
        kind = rng.choice(kinds)
        step: dict[str, Any] = {"kind": kind, "name": f"s{n}"}
        if kind == "batch":
            step |= {"size": rng.choice([1, 2, 5, 9]), "within": None, "bytes": rng.choice([None, None, 200])}
            batched, batches = True, batches + step["size"]
        elif kind == "unbatch":
            batched = False
        else:
            step |= {
                "workers": rng.choice([1, 1, 2, 3, 8]),
                "queue": rng.choice([None, 1, 1, 2, 7, 40]),
                "fails": rng.choice([0, 0, 30, 200, 990]) if policy != "raise" else rng.choice([0, 0, 3, 30]),
                "drops": rng.choice([0, 0, 300, 950]) if kind != "flat_map" else 0,
                "batched": batched,
                "needs": "input" if kind == "map" and rng.random() < 0.15 else "none",
            }
            if step["needs"] == "input":
                step["workers"] = 1
            if kind == "flat_map":
                step["fan"] = rng.choice([2, 4, 9])
            if kind == "map_batches":
                step["size"] = rng.choice([1, 3, 8])
                batches += step["size"]
            if batched:
                step["fails"] = step["drops"] = 0
            service[step["name"]] = (rng.choice(["const", "exp", "heavy", "zero", "tiny"]), rng.choice([0.5, 1.0, 3.0]))
        steps.append(step)
    least = max(1, 2 * batches)
    byte_choices = [1 << 28, 1 << 28, 2000, 300] if not any(s.get("bytes") for s in steps) else [1 << 28, 4000]
    return Spec(
        steps, rng.choice([0, 1, 7, 60, 250]), order,
        rng.choice([None, least, least + 3, least + 20, 200 + least]),
        rng.choice(byte_choices), policy, service,
        rng.choice([0.0, 0.0, 0.7]), rng.choice([0.0, 0.0, 0.5, 2.0]),
        rng.choice([None, None, None, ("drain", rng.random() * 60), ("cancel", rng.random() * 60)]),
        rng.choice([None, None, None, None, rng.randint(1, 50)]),
    )  # fmt: skip


def build(spec: Spec) -> list[Step]:
    steps: list[Step] = []
    for step in spec.steps:
        if step["kind"] == "batch":
            steps.append(BatchSpec(step["size"], step["within"], step["bytes"]))
        elif step["kind"] == "unbatch":
            steps.append(UnbatchSpec())
        else:
            if step["kind"] == "map_batches":
                steps.append(BatchSpec(step["size"], for_map=True))
            steps.append(
                StageSpec(step["kind"], function(step), step["name"], workers=step["workers"],
                          queue=step["queue"], needs=step["needs"])
            )  # fmt: skip
    steps.append(StageSpec("consume", None, "output", queue=spec.extra.get("queue")))
    return steps


def reference(spec: Spec, rows: list[Any]) -> tuple[list[Any], Counter[str]]:
    """Outputs and failures by stage of a plain loop. A kept failure is ("failed", stage)."""
    keep = spec.policy == "keep"
    items: list[Any] = list(rows)
    failed: Counter[str] = Counter()
    for step in spec.steps:
        kind, out = step["kind"], []
        fn = function(step) if kind not in ("batch", "unbatch") else None
        if kind == "batch":
            items = [items[i : i + step["size"]] for i in range(0, len(items), step["size"])]
            continue
        if kind == "unbatch":
            items = [x for xs in items for x in xs]
            continue
        for value in items:
            if isinstance(value, Mark):
                out.append(value)
            elif kind == "map" and step["batched"]:
                out.append([v if isinstance(v, Mark) else (v, step["name"]) for v in value])
            elif kind == "flat_map":
                try:
                    for c in fn(value):
                        out.append(c)
                except Boom:
                    failed[step["name"]] += 1
                    if keep:
                        out.append(Mark(step["name"]))
            else:
                try:
                    result = element(step)(value)
                    if result is not DROP:
                        out.append(value if kind == "filter" else result)
                except Boom:
                    failed[step["name"]] += 1
                    if keep:
                        out.append(Mark(step["name"]))
        items = out
    return items, failed


@dataclass(frozen=True)
class Mark:
    stage: str


def plain(value: Any) -> Any:
    """Outputs in comparable form."""
    if isinstance(value, Failure):
        return Mark(str(value.stage))
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def flat(values: list[Any]) -> Counter[Any]:
    return Counter(x for v in values for x in (v if isinstance(v, list) else [v]))


def draws_of(spec: Spec) -> dict[str, Any]:
    def make(kind: str, mean: float) -> Any:
        if kind == "const":
            return mean
        if kind == "zero":
            return 0.0
        if kind == "tiny":
            return 1e-5
        if kind == "exp":
            return lambda rng, _v: rng.expovariate(1 / mean)
        return lambda rng, _v: mean * (20 if rng.random() < 0.05 else 0.3)

    return {name: make(*how) for name, how in spec.service.items()}


def watch(spec: Spec, checks: list[str]) -> Callable[[Engine], None]:
    """I5 after every event."""

    def look(engine: Engine) -> None:
        window = engine.window
        if window.used > window.items or window.used < 0:
            checks.append(f"window {window.used} of {window.items}")
        for stage in engine.stages:
            for gate in stage.gates:
                if gate.held_items > window.items - 1 and not engine._expands:
                    checks.append(f"held {gate.held_items}")
            lifted = stage.steps or (stage.index and engine.stages[stage.index - 1].spec.kind == "map_batches")
            # Above the byte limit what is queued cannot run, and takes no room.
            limited = spec.window_bytes < 1 << 28
            if (
                not lifted
                and not engine._expands
                and not limited
                and stage.runnable > stage.capacity
                and stage.spec.queue
            ):
                checks.append(f"{stage.spec.name}: runnable {stage.runnable} > {stage.capacity}")
        if engine._expands and not any(s.spec.atomic for s in engine.stages):
            open_items = sum(b.size for s in engine.stages for b in s.batchers)
            expanding = sum(s.spec.kind == "flat_map" for s in engine.stages)
            if window.children > window.budget + open_items + expanding:
                checks.append(f"children {window.children} > {window.budget}")

    return look


def run_one(seed: int) -> str:
    """Run the pipeline of `seed` and check it; returns a digest of the run. Raises AssertionError naming the seed."""
    spec = draw_spec(seed)
    rows = list(range(spec.rows))
    plan = make_plan(PipelineSpec("p", tuple(build(spec)), order=spec.order, window=spec.window,
                                  window_bytes=spec.window_bytes, on_error=spec.policy))  # fmt: skip
    broken: list[str] = []
    run = VirtualRun(plan, rows, draws_of(spec), seed=seed, source_s=spec.source_s, think_s=spec.think_s,
                     leave_after=spec.leave_after, on_event=watch(spec, broken))  # fmt: skip
    if spec.stop:
        mode, at = spec.stop
        run.at(at, lambda: run.stop(mode, timeout=2.0))  # type: ignore[arg-type]
    run.run()
    engine, outputs = run.engine, [plain(v) for v in run.outputs]
    where = f"seed {seed}: {spec}"
    assert not broken, (broken[:3], where)
    fates = engine.fates
    assert fates.balanced, (fates, where)
    for stage in engine.stages:
        m = stage.meter
        if stage.spec.kind == "flat_map":
            assert m.items_in == m.expanded + m.filtered + m.failed, (
                stage.spec.name,
                m.items_in,
                m.expanded,
                m.filtered,
                m.failed,
                where,
            )
        else:
            assert m.items_in == m.items_out + m.filtered + m.failed, (stage.spec.name, where)
    expected, failed = reference(spec, list(range(fates.read)))
    seen: Counter[tuple[str, Any]] = Counter((name, tag) for name, _, tag, _, _ in run.log)
    for (name, tag), times in seen.items():
        assert times == 1, (f"{name} ran {tag} {times} times", where)
    if engine.state in ("done", "drained"):
        assert fates.unread == 0, (fates, where)
        assert fates.dead == sum(failed.values()), (fates, failed, where)
        if spec.order == "input" and spec.window_bytes == 1 << 28 and not any(s.get("bytes") for s in spec.steps):
            assert outputs == expected, (outputs[:20], expected[:20], where)
        else:
            assert flat(outputs) == flat(expected), where
        if spec.policy == "dead_letter":
            assert Counter(f.stage for f in run.dead) == failed, where
    elif spec.order == "input":
        if engine.state == "failed" and not spec.stop and spec.leave_after is None:
            check_prefix_of_failure(engine, spec, rows, outputs, where)
        flat_out = [x for v in outputs for x in (v if isinstance(v, list) else [v])]
        flat_expected = [x for v in expected for x in (v if isinstance(v, list) else [v])]
        assert flat_out == flat_expected[: len(flat_out)], (flat_out[:9], flat_expected[:9], where)
    if engine.state == "cancelled" and spec.leave_after is not None and not spec.stop:
        assert len(outputs) == spec.leave_after, (len(outputs), where)
    return repr((run.now, run.outputs and outputs, run.log, fates, engine.state))


def check_prefix_of_failure(engine: Engine, spec: Spec, rows: list[Any], outputs: list[Any], where: str) -> None:
    """Everything before the item that failed first is emitted, and nothing behind it."""
    failure = engine.cause
    assert failure is not None
    root = failure.seq if isinstance(failure.seq, int) else failure.seq[0]  # type: ignore[index]
    before, failed = reference(spec, rows[:root])
    assert not failed, where
    if not any(s["kind"] in ("flat_map", "batch") for s in spec.steps):
        assert outputs == before, (outputs[-3:], before[-3:], root, where)
