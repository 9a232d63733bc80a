"""The planner: ranges of tasks, and what counts as lost data."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.planner import (
    GROUP_OFFSETS,
    OffsetRange,
    check_start_before_end,
    group_ranges,
    plan_batch,
    split_ranges,
)

ZERO, ONE, TWO = (TopicPartition("orders", index) for index in range(3))


def test_one_task_per_partition_with_something_to_read() -> None:
    plan = plan_batch({ONE: 5, ZERO: 0, TWO: 9}, {TWO: 9, ZERO: 4, ONE: 8}, {})
    assert plan.ranges == [OffsetRange(ZERO, 0, 4), OffsetRange(ONE, 5, 8)]
    assert plan.losses == []


def test_a_new_partition_begins_at_earliest() -> None:
    """Spark: new partitions found mid-query start at earliest; a start above 0 is data loss."""
    plan = plan_batch({ZERO: 1}, {ZERO: 1, ONE: 3}, {ONE: 0})
    assert (plan.ranges, plan.losses) == ([OffsetRange(ONE, 0, 3)], [])
    plan = plan_batch({ZERO: 1}, {ZERO: 1, ONE: 3}, {ONE: 2})
    assert plan.ranges == [OffsetRange(ONE, 2, 3)]
    assert "orders-1 starts from 2 instead of 0" in plan.losses[0]


def test_missing_partition_and_backward_offset_are_losses() -> None:
    plan = plan_batch({ZERO: 5, ONE: 5}, {ONE: 3}, {})
    assert plan.ranges == []
    assert "orders-0 is gone" in plan.losses[0]
    assert "orders-1's offset was changed from 5 to 3" in plan.losses[1]


def test_a_batch_that_begins_behind_its_end_is_refused() -> None:
    """Spark: RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET; failOnDataLoss has no say in it."""
    check_start_before_end({ZERO: 3, ONE: 0}, {ZERO: 3, ONE: 4})
    with pytest.raises(
        TidegaugeError, match=r"start offset 5 is greater than the resolved end offset 4 .* partition 1"
    ):
        check_start_before_end({ZERO: 3, ONE: 5}, {ZERO: 3, ONE: 4})


def test_split_by_min_partitions() -> None:
    """KafkaOffsetRangeCalculator: a share of the tasks by size, the last piece takes the rest."""
    ranges = [OffsetRange(ZERO, 0, 10), OffsetRange(ONE, 100, 103)]
    assert split_ranges(ranges, None) == ranges
    assert split_ranges(ranges, 2) == ranges
    assert split_ranges(ranges, 4) == [
        OffsetRange(ZERO, 0, 3),
        OffsetRange(ZERO, 3, 6),
        OffsetRange(ZERO, 6, 10),
        OffsetRange(ONE, 100, 103),
    ]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 10**6), max_size=6), st.integers(1, 40))
def test_split_covers_every_offset_once(sizes: list[int], min_partitions: int) -> None:
    ranges = [OffsetRange(TopicPartition("t", index), index, index + size) for index, size in enumerate(sizes)]
    pieces = split_ranges(ranges, min_partitions)
    assert all(piece.size > 0 for piece in pieces)
    for whole in ranges:
        own = [piece for piece in pieces if piece.topic_partition == whole.topic_partition]
        assert own[0].from_offset == whole.from_offset
        assert own[-1].until_offset == whole.until_offset
        assert all(one.until_offset == other.from_offset for one, other in itertools.pairwise(own))


def test_small_ranges_leave_their_share_to_the_large_ones() -> None:
    """KafkaOffsetRangeCalculator: unsplit ranges are taken out before the rest is shared."""
    small = [OffsetRange(TopicPartition("t", index), 0, 1) for index in range(3)]
    pieces = split_ranges([OffsetRange(ZERO, 0, 1000), *small], 6)
    assert len(pieces) == 6
    assert [piece.size for piece in pieces if piece.topic_partition == ZERO] == [333, 333, 334]


def test_max_records_per_partition() -> None:
    """No task above the limit; then minPartitions has its say."""
    ranges = [OffsetRange(ZERO, 0, 10), OffsetRange(ONE, 0, 3)]
    assert [piece.size for piece in split_ranges(ranges, None, 4)] == [3, 3, 4, 3]
    assert [piece.size for piece in split_ranges(ranges, 2, 4)] == [3, 3, 4, 3]
    assert len(split_ranges(ranges, 6, 5)) == 7, "a hint: shares are rounded"


def test_few_ranges_have_a_task_each() -> None:
    """As with Kafka's source: the parallelism of a small topic is that of its partitions."""
    ranges = [OffsetRange(TopicPartition("t", index), 0, 5) for index in range(8)]
    assert group_ranges(ranges) == [[one] for one in ranges]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 3 * GROUP_OFFSETS), min_size=9, max_size=60))
def test_many_small_ranges_share_tasks(sizes: list[int]) -> None:
    """Nothing is left out or moved; a shared task stays small."""
    ranges = [OffsetRange(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)]
    groups = group_ranges(ranges)
    assert [one for group in groups for one in group] == ranges
    assert all(sum(one.size for one in group) <= GROUP_OFFSETS for group in groups if len(group) > 1)
    for one, other in itertools.pairwise(groups):
        assert sum(piece.size for piece in one) + other[0].size > GROUP_OFFSETS, "no task more than needed"
    assert len(group_ranges([OffsetRange(TopicPartition("t", index), 0, 20) for index in range(50)])) == 1
