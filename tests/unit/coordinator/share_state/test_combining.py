"""States that were written one after the other, combined as PersisterStateBatchCombiner of Kafka does."""

import random
from itertools import pairwise

import pytest

from tidegauge.share_groups import StateBatch
from tidegauge_broker.coordinator.share_state.combining import combined


def test_a_batch_without_offsets_is_left_out():
    """It has no overlap that could be resolved."""
    assert list(combined(of((0, 10, 0, 1), (5, 3, 0, 2)), -1)) == of((0, 10, 0, 1))


def of(*batches):
    return [StateBatch(*one) for one in batches]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(0, 9, 0, 1), (10, 19, 0, 1)], [(0, 19, 0, 1)]),
        ([(0, 9, 0, 1), (5, 14, 0, 1)], [(0, 14, 0, 1)]),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 2, 1), (3, 5, 0, 2)], [(0, 2, 2, 1), (3, 5, 0, 2), (6, 9, 2, 1)]),
        ([(0, 9, 0, 2), (5, 14, 4, 1)], [(0, 9, 0, 2), (10, 14, 4, 1)]),
        ([(0, 9, 0, 1), (20, 29, 0, 1)], [(0, 9, 0, 1), (20, 29, 0, 1)]),
        ([(0, 4, 2, 3), (0, 4, 0, 1)], [(0, 4, 2, 3)]),
    ],
)
def test_the_higher_count_and_then_the_higher_state_counts(before, after):
    assert list(combined(of(*before), -1)) == of(*after)
    assert list(combined(of(*reversed(before)), -1)) == of(*after)


def test_nothing_below_the_start_offset_is_kept():
    assert list(combined(of((0, 9, 2, 1), (10, 19, 0, 1)), 5)) == of((5, 9, 2, 1), (10, 19, 0, 1))
    assert list(combined(of((0, 9, 2, 1)), 10)) == []


OF_KAFKA = [
    ([(2, 5, 0, 2), (4, 4, 2, 3), (5, 9, 2, 3)], 2, [(2, 3, 0, 2), (4, 4, 2, 3), (5, 9, 2, 3)]),
    ([(22, 22, 4, 3), (22, 26, 4, 2), (23, 27, 4, 3)], -1, [(22, 22, 4, 3), (23, 27, 4, 3)]),
    ([(1, 5, 4, 3), (3, 7, 0, 2), (6, 10, 4, 3), (9, 9, 0, 3)], 0, [(1, 5, 4, 3), (6, 10, 4, 3)]),
    ([(21, 25, 4, 2), (26, 29, 2, 1), (26, 31, 4, 2)], 5, [(21, 25, 4, 2), (26, 31, 4, 2)]),
    ([(8, 16, 0, 2), (12, 13, 4, 2), (14, 21, 4, 2)], 2, [(8, 11, 0, 2), (12, 13, 4, 2), (14, 21, 4, 2)]),
    ([(18, 29, 0, 3), (30, 30, 0, 2), (30, 30, 0, 3)], 18, [(18, 29, 0, 3), (30, 30, 0, 3)]),
    ([(18, 29, 0, 3), (30, 30, 0, 3)], 18, [(18, 30, 0, 3)]),
]
"""Batches, a start offset, and the batches that PersisterStateBatchCombiner of Kafka 4.3.1 returns."""


@pytest.mark.parametrize(("before", "start_offset", "after"), OF_KAFKA)
def test_an_equal_neighbour_that_an_overlap_brings_about_stays_apart(before, start_offset, after):
    assert list(combined(of(*before), start_offset)) == of(*after)
    assert list(combined(of(*reversed(before)), start_offset)) == of(*after)


@pytest.mark.parametrize("seed", range(60))
def test_the_states_are_those_of_a_twin_that_keeps_every_offset(seed):
    """A batch may end before it begins: a record of a log may say anything, and must not stop its reader."""
    chance = random.Random(seed)
    batches, start = [], chance.choice((-1, 0, 7))
    twin: dict[int, tuple[int, int]] = {}
    for _ in range(chance.randint(0, 25)):
        first = chance.randint(0, 30)
        batch = StateBatch(first, first + chance.randint(-3, 12), chance.choice((0, 2, 4)), chance.randint(0, 3))
        batches.append(batch)
        for offset in range(max(first, start), batch.last_offset + 1):
            twin[offset] = max(twin.get(offset, (-1, -1)), (batch.delivery_count, batch.state))
    found = combined(batches, start)
    assert {
        offset: (one.delivery_count, one.state)
        for one in found
        for offset in range(one.first_offset, one.last_offset + 1)
    } == twin
    assert len(twin) == sum(one.last_offset - one.first_offset + 1 for one in found)
    assert all(one.last_offset < following.first_offset for one, following in pairwise(found))
    assert len(combined(found, start)) <= len(found)
