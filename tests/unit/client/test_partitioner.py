"""Kafka's built-in partitioner: murmur2 for keys, sticky without (KIP-480, KIP-794)."""

from __future__ import annotations

import pytest

from tidegauge_client.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_kafkas_numbers(data: bytes, expected: int) -> None:
    """Kafka's own vectors (UtilsTest.testMurmur2): a key must lie where Kafka's clients put it."""
    assert murmur2(data) == expected


def test_a_key_goes_to_its_hash_without_the_sign_bit() -> None:
    assert partition_for_key(b"21", 3) == (-973932308 & 0x7FFFFFFF) % 3


def no_queue(partition: int) -> int:
    return 0


def every_one(partition: int) -> bool:
    return True


def test_without_a_key_a_partition_is_kept_until_a_batch_is_full() -> None:
    draws = iter([1, 0])
    sticky = StickyPartitioner(100, lambda _: next(draws))

    first = sticky.partition([0, 1], every_one, no_queue)
    sticky.produced(90, batch_is_full=False)
    second = sticky.partition([0, 1], every_one, no_queue)
    sticky.produced(20, batch_is_full=True)
    third = sticky.partition([0, 1], every_one, no_queue)

    assert (first, second, third) == (1, 1, 0)


def test_the_switch_waits_for_a_full_batch_but_not_longer_than_two() -> None:
    """KIP-794: a switch in the middle of a batch would make small batches."""
    draws = iter([0, 1])
    sticky = StickyPartitioner(100, lambda _: next(draws))

    assert sticky.partition([0, 1], every_one, no_queue) == 0
    sticky.produced(150, batch_is_full=False)
    assert sticky.partition([0, 1], every_one, no_queue) == 0
    sticky.produced(50, batch_is_full=False)
    assert sticky.partition([0, 1], every_one, no_queue) == 1


def test_a_long_queue_is_drawn_less_often() -> None:
    """Adaptive partitioning: weights are longest + 1 - length."""
    lengths = {0: 4, 1: 0}
    drawn = []
    for number in range(6):
        sticky = StickyPartitioner(100, lambda _, number=number: number)
        drawn.append(sticky.partition([0, 1], every_one, lengths.__getitem__))

    assert drawn == [0, 1, 1, 1, 1, 1]


def test_partitions_without_a_leader_are_drawn_only_if_none_has_one() -> None:
    assert StickyPartitioner(1, lambda _: 0).partition([0, 1, 2], lambda index: index == 2, no_queue) == 2
    assert StickyPartitioner(1, lambda _: 0).partition([5, 6], lambda _: False, no_queue) == 5
