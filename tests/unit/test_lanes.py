from __future__ import annotations

import itertools
import random

import pytest

from headway.core.block import Block
from headway.core.lanes import Keys, Lanes


def lanes_with(keys, *, cheap=False, slots=4):
    lanes = Lanes({}, lambda: slots)
    lanes.cheap = cheap
    push(lanes, 0, keys)
    return lanes


def push(lanes, first, keys):
    stop = first + len(keys)
    for number, key in enumerate(keys, first):
        lanes.key_of[number] = key
    lanes.push(Block((first,), (stop,), range(first, stop), list(range(first, stop)), 8 * len(keys)))


def values(blocks):
    return [value for block in blocks for value in block.values]


def test_the_free_lane_with_the_smallest_tag_goes_first_and_is_busy_until_it_is_released():
    lanes = lanes_with("aabab")
    first = lanes.take(1)
    assert values(first) == [0]
    assert values(lanes.take(1)) == [2], "a is busy, so the oldest item of b"
    assert lanes.take(1) == []
    assert (lanes.queued, lanes.free) == (3, 0)
    lanes.ended([0])
    lanes.release([lanes.lane_of(first[0])] if 0 in lanes.key_of else [lanes._lanes["a"]])
    assert values(lanes.take(5)) == [1, 3], "what waits of one lane may be taken at once"


def test_an_item_that_waits_for_another_attempt_keeps_its_lane():
    lanes = lanes_with("aab")
    (taken,) = lanes.take(1)
    lane = lanes.lane_of(taken)
    held = lanes.hold([taken])
    lanes.release([lane])
    assert values(lanes.take(9)) == [2]
    lanes.put_back([taken])
    lanes.release(held)
    assert values(lanes.take(9)) == [0, 1]


def test_a_key_is_forgotten_with_its_last_item():
    lanes = lanes_with(["k"] * 3)
    blocks = lanes.take(3)
    lane = lanes.lane_of(blocks[0])
    lanes.ended([0, 1, 2])
    lanes.release([lane])
    assert not lanes._lanes
    assert not lanes._live
    assert not lanes.key_of


@pytest.mark.parametrize("cheap", [False, True])
def test_pieces_of_a_block_cover_it_exactly_once(cheap):
    rng = random.Random(3)
    lanes = lanes_with([rng.choice("abcdefgh") for _ in range(200)], cheap=cheap, slots=1)
    covered = []
    for block in lanes.all():
        covered += block.spans or [(block.lo, block.hi)]
    covered.sort()
    assert covered[0][0] == (0,)
    assert covered[-1][1] == (200,)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(covered))
    assert sum(block.nbytes for block in lanes.all()) == 1600


def test_cheap_items_of_many_keys_share_a_bounded_number_of_lanes():
    lanes = lanes_with(range(1000), cheap=True, slots=2)
    assert len({id(lane) for lane in lanes._lanes.values()}) == 128


def test_a_key_in_flight_stays_in_its_lane_when_items_become_cheap():
    lanes = lanes_with("ab")
    lane = lanes._lanes["a"]
    lanes.cheap = True
    push(lanes, 2, "ac")
    assert lanes._lanes["a"] is lane


def test_keys_are_computed_once_and_inherited_by_children_where_they_are_carried():
    seen = []

    def account(value):
        seen.append(value)
        return value["account"]

    keys = Keys(account, carried=True)
    assert keys.of(7, {"account": 42}) == 42
    assert keys.of(7, "changed") == 42
    assert keys.of((7, 3), "a child") == 42
    assert keys.of((7, 3, 1), "its child") == 42
    assert len(seen) == 1
    keys.forget(7, 8)
    with pytest.raises(TypeError):
        keys.of(7, "changed")


class Thing:
    account = 5


@pytest.mark.parametrize("value", [{"account": 5}, Thing()])
def test_a_name_is_an_item_or_an_attribute(value):
    assert Keys("account", carried=False).of(0, value) == 5


def test_a_name_that_is_neither_is_said():
    with pytest.raises(KeyError, match="no item or attribute 'account'"):
        Keys("account", carried=False).of(0, 3)


def test_a_key_that_cannot_be_hashed_fails():
    with pytest.raises(TypeError):
        Keys(lambda value: [value], carried=False).of(0, 3)
