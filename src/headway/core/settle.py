"""A ticket and its answer become blocks: results, the rest that was not started, what is paused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.batch import spread
from headway.core.block import Block, Tag, child, is_kept, position
from headway.core.ticket import Answer, Ticket
from headway.errors import Failure, Kept, Raised


@dataclass(slots=True)
class Settled:
    """What an answer amounts to. Counts are items; a batch counts its members."""

    outs: list[Block] = field(default_factory=list)
    rest: list[Block] = field(default_factory=list)
    parked: Block | None = None
    again: list[tuple[Block, int]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    items_in: int = 0
    items_out: int = 0
    expanded: int = 0
    dead: int = 0
    made: int = 0


def _piece(answer: Answer, offset: int, width: int) -> tuple[list[Any], list[int] | None, list[tuple[int, Raised]]]:
    """Outputs, their inputs' numbers within the piece, and failures of the inputs [offset, offset + width)."""
    upto, origin, failed = offset + width, answer.origin, answer.failed
    if failed:
        first, last = (bisect_left(failed, at, key=lambda pair: pair[0]) for at in (offset, upto))
        failed = [(at - offset, raised) for at, raised in failed[first:last]]
    if origin is None:
        whole = offset == 0 and upto >= len(answer.values)
        return answer.values if whole else answer.values[offset:upto], None, failed
    first, last = bisect_left(origin, offset), bisect_left(origin, upto)
    return answer.values[first:last], [o - offset for o in origin[first:last]], failed


def settle(ticket: Ticket, answer: Answer, again: frozenset[int] = frozenset()) -> Settled:
    """Turn `answer` into blocks; the blocks of `ticket` are used up.

    Results cover exactly what the settled inputs covered, so whatever yielded nothing is a
    tombstone in them; under ``on_error="keep"`` the failures stand in their ``kept``. The inputs at
    the offsets `again` leave their block unsettled, each alone: ``Settled.again``, with the offset.
    """
    done = Settled()
    each = answer.nbytes // max(1, len(answer.values))
    per_member = ticket.stage.plan.per_member
    at, offset, left, parked = 0, 0, answer.taken, answer.parked
    for block in ticket.blocks:
        taken = min(left, len(block.values))
        whole = taken == len(block.values)
        left -= taken
        settled = block if whole else block.cut(taken) if taken else None
        for piece, number in pieces(settled, at, again) if settled is not None else ():
            members = piece.members
            width = len(members.tags) if per_member and members is not None else len(piece.values)
            if number in again:
                done.again.append((piece, number))
            else:
                part = _piece(answer, offset, width)
                _settle_block(done, ticket, piece, *part, each, ticket.base if offset == 0 else 0)
            offset += width
        at += taken
        if not whole:
            if parked:
                _park(done, ticket, block, len(_piece(answer, offset, 1)[0]), answer, each)
                parked = False
            else:
                done.rest.append(block)
    return done


def pieces(block: Block, at: int, again: frozenset[int]) -> Iterator[tuple[Block, int]]:
    """`block`, whose first input has the offset `at`, cut around the inputs at the offsets `again`."""
    end = at + len(block.values)
    for number in sorted(n for n in again if at <= n < end) if again else ():
        if number > at:
            yield block.cut(number - at), at
        if number + 1 == end:
            yield block, number
            return
        yield block.cut(1), number
        at = number + 1
    if block.values:
        yield block, at


def _settle_block(
    done: Settled,
    ticket: Ticket,
    block: Block,
    values: list[Any],
    within: list[int] | None,
    failed: list[tuple[int, Raised]],
    each: int,
    base: int,
) -> None:
    """A block whose inputs are all settled. `base`: children that its first input had given before."""
    stage, members = ticket.stage, block.members
    kind, nbytes = stage.spec.kind, each * len(values)
    tags: Sequence[Tag] = block.tags
    inputs: list[Any] = block.values
    weight = 1  # of one input
    if members is not None:
        if stage.plan.per_member:
            tags, inputs = members.tags, block.values[0]
        else:
            weight = members.weight
    counts: dict[int, int] = {0: base} if base else {}
    new_tags: Sequence[Tag] = tags
    if kind == "flat_map":
        new_tags = _child_tags(tags, within or [], counts)
    elif within is not None:
        new_tags = [tags[o] for o in within]
    failures: list[Failure] = []
    kind_of = Kept if stage.on_error == "keep" else Failure
    for at, raised in failed:
        if is_kept(inputs[at]):
            continue
        count = counts.pop(at, 0)
        place = child(tags[at], count) if count else tags[at]
        failures.append(
            kind_of(raised.error, seq=place, stage=stage.spec.name, attempts=ticket.attempt,
                    value=inputs[at], traceback=raised.traceback)
        )  # fmt: skip
    dead = weight * len(failures)
    done.failures += failures
    done.dead += dead
    shown = sum(map(is_kept, inputs)) if stage.shows_kept and members is None else 0
    done.items_in += block.weight - shown
    if kind in ("sink", "consume"):
        done.items_out += block.weight - shown - dead
        done.outs.append(block)
        return
    if kind in ("flat_map", "map_batches"):
        done.expanded += weight * len(counts)
        done.items_out += len(values)
        outs = spread(block, new_tags, values, nbytes)
    else:
        block.tags, block.values, block.nbytes = new_tags, values, nbytes
        if not values:
            block.members = None
        done.items_out += block.weight
        outs = [block]
    if stage.on_error == "keep":
        for failure in failures:
            at_ = position(failure.seq)  # type: ignore[arg-type]
            home = next((b for b in outs if b.lo <= at_ < b.hi), outs[0])
            home.kept = {**(home.kept or {}), at_: failure}
    done.outs += outs


def _child_tags(tags: Sequence[Tag], within: list[int], counts: dict[int, int]) -> list[Tag]:
    """Tags of children in order; `counts` gets the number of children of each input that has some."""
    out: list[Tag] = []
    for at in within:
        number = counts.get(at, 0)
        out.append(child(tags[at], number))
        counts[at] = number + 1
    return out


def _park(done: Settled, ticket: Ticket, block: Block, made: int, answer: Answer, each: int) -> None:
    """The first input of `block` is a paused expansion that has just given `made` children."""
    if len(block.values) > 1:
        paused = block.cut(1)
        done.rest.append(block)
    else:
        paused = block
    if made:
        tag = paused.tags[0]
        tags = [child(tag, ticket.base + i) for i in range(made)]
        stop = position(child(tag, ticket.base + made))
        out = paused.like(paused.lo, stop, tags, answer.values[-made:], each * made)
        paused.leave(out, stop)
        done.outs.append(out)
        done.items_out += made
        done.made = made
    done.parked = paused
