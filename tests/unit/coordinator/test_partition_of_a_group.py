"""FindCoordinator's rule: Java's String.hashCode over UTF-16, Utils.abs, modulo the topic's partitions."""

import pytest

from tidegauge.groups import java_hash, partition_of

OF_FIFTY = {
    "": 0,
    "g": 3,
    "gs": 8,
    "tx": 16,
    "test-group": 12,
    "my-group": 12,
    "polygenelubricants": 0,
    "copier-0": 33,
    "groupé": 6,
    "a😀": 16,
}


@pytest.mark.parametrize(("group", "partition"), OF_FIFTY.items())
def test_groups_live_where_kafkas_broker_puts_them(group, partition):
    assert partition_of(group, 50) == partition


def test_the_hash_wraps_at_32_bits_and_is_signed():
    assert java_hash("my-group") == -1906497762
    assert java_hash("polygenelubricants") == -(2**31)


def test_the_smallest_integer_counts_as_zero_whatever_the_number_of_partitions():
    # Utils.abs(Integer.MIN_VALUE) is 0; -2147483648 modulo 7 would be 5 by Python's rule, 2 by Math.abs on 64 bits.
    assert [partition_of("polygenelubricants", partitions) for partitions in (3, 7, 10, 50)] == [0, 0, 0, 0]
