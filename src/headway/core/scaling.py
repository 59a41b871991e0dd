"""More or fewer workers while a run goes on. Order holds throughout: what it needs is placed before the second slot starts."""

from __future__ import annotations

from dataclasses import replace

from headway.core.batch import Batcher
from headway.core.block import Block, Position, Span
from headway.core.gate import Gate
from headway.core.hedging import Hedging
from headway.core.lanes import Lanes
from headway.core.plan import BatchPlan, GatePlan, Plan, StagePlan, make_plan
from headway.core.spec import PipelineSpec, StageSpec
from headway.core.stage import Slot, Stage
from headway.errors import PlanError


def scaled(spec: PipelineSpec, name: str, workers: int) -> Plan:
    """The plan with another number of workers of stage `name`. Raises PlanError for what cannot be."""
    steps = spec.steps
    if not any(isinstance(step, StageSpec) and step.name == name for step in steps):
        names = ", ".join(repr(step.name) for step in steps if isinstance(step, StageSpec) and step.kind != "consume")
        raise PlanError(f"there is no stage {name!r}; there are {names}")
    for step in steps:
        if isinstance(step, StageSpec) and step.name == name:
            if step.kind == "consume" or (step.kind == "sink" and not callable(step.fn)):
                raise PlanError(f"{name!r} has one worker, which cannot be changed")
            steps = tuple(
                replace(s, workers=workers, most=s.most and max(s.most, workers)) if s is step else s for s in steps
            )
    return make_plan(replace(spec, steps=steps))


class Scaling(Hedging):
    """Changes the number of slots of a stage."""

    def scale(self, stage: Stage, workers: int, now: float) -> None:
        """Give `stage` so many slots. Those that go finish what they have in hand, paused expansions included."""
        if self.finished:
            return
        self.plan = scaled(self.plan.spec, stage.spec.name, workers)
        for old, new in zip(self.stages, self.plan.stages, strict=True):
            self._replan(old, new)
        while len(stage.slots) < workers:
            slot = Slot(stage, stage.numbers)
            stage.numbers += 1
            stage.slots.append(slot)
            self._out.append((self._commands.replace, (slot,)))
        spare = len(stage.slots) - workers
        for slot in sorted(stage.slots, key=lambda slot: len(slot.tickets))[: max(0, spare)]:
            stage.slots.remove(slot)
            stage.leaving.append(slot)
            stage.busy_slots -= bool(slot.tickets)
            slot.leaving = True
            for ticket in slot.tickets:
                self._recall(ticket)
            self._retire(slot)
        stage.size_up()
        for each in self.stages:
            each.touched = True
        self._pump(now)

    def _replan(self, stage: Stage, plan: StagePlan) -> None:
        """Place what the order needs from now on in front of `stage`."""
        stage.spec, stage.plan = plan.spec, plan
        for at, step in enumerate(plan.intake):
            there = stage.steps[at] if at < len(stage.steps) else None
            if isinstance(step, GatePlan) and not isinstance(there, Gate):
                stage.steps.insert(at, Gate(self._passed(stage.index)))
            elif isinstance(step, BatchPlan) and isinstance(there, Batcher):
                there.total = there.total and step.total
        stage.keeps_total = stage.keeps_total and plan.keeps_total
        if plan.lanes and not isinstance(stage.inbox, Lanes):
            waiting = list(stage.inbox.all())
            stage.inbox = Lanes(stage.key_of, lambda: len(stage.slots))
            for ticket in [ticket for slot in stage.slots for ticket in slot.tickets] + stage.parked:
                ticket.lanes = stage.inbox.adopt(ticket.blocks)
            for block in waiting:
                for part in block.parts():
                    if part.values:
                        stage.inbox.push(part)
                    else:
                        self._forward(stage, [part], self._now)
        stage.sort_steps()

    def _passed(self, index: int) -> list[Span]:
        """What has come as far as stage `index`: everything read but what is in the stages before it."""
        blocks: list[Block] = []
        waiting: list[Span] = [((self.rows,), (self.rows,))]
        for stage in self.stages[:index]:
            blocks += stage.inbox.all()
            blocks += [block for _, _, block, _ in stage.backoff]
            tickets = [ticket for slot in stage.slots + stage.leaving for ticket in slot.tickets]
            blocks += [block for ticket in tickets + stage.parked for block in ticket.blocks]
            blocks += [block for gate in stage.gates for block in gate.held()]
            waiting += [span for batcher in stage.batchers for span in batcher.spans]
        for block in blocks:
            waiting += block.spans or [(block.lo, block.hi)]
        passed: list[Span] = []
        at: Position = (0,)
        for lo, hi in sorted(waiting):
            if at < lo:
                passed.append((at, lo))
            at = max(at, hi)
        return passed
