"""Positions, the frontier and the total-order gate, against plain models."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.block import Block, after, child, position
from headway.core.frontier import Frontier
from headway.core.gate import Gate
from headway.core.window import RowSet
from headway.errors import InternalError


def block(lo: int, hi: int) -> Block:
    return Block((lo,), (hi,), range(lo, hi), list(range(lo, hi)))


def test_positions_of_children_lie_in_their_parent_and_touch() -> None:
    assert position(5) == position(child(5, 0)) == position(child(child(5, 0), 0)) == (5,)
    assert after(child(5, 0)) == position(child(5, 1)) == (5, 1)
    assert after(child(child(5, 1), 2)) == position(child(child(5, 1), 3)) == (5, 1, 3)
    assert position(5) < position(child(5, 1)) < position(child(child(5, 1), 3)) < position(child(5, 2)) < after(5)


def test_rows_count_as_whole_only_with_their_last_child() -> None:
    frontier = Frontier()
    assert frontier.add((0,), (3, 1)) == (0, 3)
    assert frontier.add((3, 2), (7, 2)) == (4, 7)
    assert frontier.add((7, 2), (7, 5)) == (0, 0)
    assert frontier.add((3, 1), (3, 2)) == (3, 4)
    assert frontier.add((7, 5), (8,)) == (7, 8)
    assert frontier.watermark == (8,)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 8)), max_size=30))
def test_a_set_of_rows_counts_what_is_new_and_what_was_there(steps: list[tuple[bool, int, int]]) -> None:
    rows, model = RowSet(), set[int]()
    for add, first, width in steps:
        span = set(range(first, first + width))
        if add:
            assert rows.add(first, first + width) == len(span - model)
            model |= span
        else:
            assert rows.discard(first, first + width) == len(span & model)
            model -= span


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_frontier_counts_every_row_once_in_any_order(sizes: list[int], rng: random.Random) -> None:
    cuts = [0]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    spans = list(pairwise(cuts))
    rng.shuffle(spans)
    frontier, seen, done = Frontier(), 0, set()
    for lo, hi in spans:
        first, stop = frontier.add((lo,), (hi,))
        assert (first, stop) == (lo, hi)
        seen += stop - first
        done |= set(range(lo, hi))
        prefix = next(n for n in range(cuts[-1] + 1) if n not in done)
        assert frontier.watermark == (prefix,)
        assert seen == len(done)
        assert len(frontier.spans()) <= len(spans) + 1
    with pytest.raises(InternalError):
        frontier.add(*[(x,) for x in spans[0]])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=25), st.randoms(use_true_random=False))
def test_the_gate_lets_a_gapless_run_out_and_never_holds_the_awaited_item(sizes: list[int], rng: random.Random) -> None:
    cuts = [0]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    blocks = [block(lo, hi) for lo, hi in pairwise(cuts)]
    rng.shuffle(blocks)
    gate, out = Gate(), []
    for number, pushed in enumerate(blocks):
        for released in gate.push(pushed, float(number)):
            out += released.values
        assert out == list(range(len(out)))
        assert gate.awaited == (len(out),)
    assert out == list(range(cuts[-1]))
    assert gate.empty
    assert gate.held_items == 0
    assert gate.peak_items <= max(0, cuts[-1] - 1)


def test_a_position_that_comes_to_a_gate_twice_is_a_defect_and_not_silence() -> None:
    gate = Gate()
    gate.push(block(0, 2), 0.0)
    with pytest.raises(InternalError):
        gate.push(block(1, 3), 0.0)
    gate.push(block(5, 6), 0.0)
    with pytest.raises(InternalError):
        gate.push(block(5, 7), 0.0)


def test_a_cut_block_covers_the_same_interval_without_a_gap() -> None:
    whole = Block((3,), (20,), [4, 9, 15], ["a", "b", "c"], 300)
    head = whole.cut(2)
    assert (head.lo, head.hi, head.values) == ((3,), (15,), ["a", "b"])
    assert (whole.lo, whole.hi, whole.values) == ((15,), (20,), ["c"])
    assert head.nbytes + whole.nbytes == 300
