"""The order in which Kafka writes a transaction's partitions: the order of the Scala collections that hold them.

A record of __transaction_state has the partitions as an ``immutable.Set`` of them yields them, grouped by an
``immutable.HashMap`` of topics. The order means nothing, but it decides the bytes. Hash maps, and sets of more than 4
elements, are tries of five bits a level, which yield the elements of a node before its children's; a
group of such a set is a trie again, of partition numbers. A set of up to four elements yields them in the order of
insertion, which is the order of the ``mutable.HashSet`` it is made of: by bucket, and by hash within a bucket.
Source: TransactionLog.valueToBytes, TransactionMetadata.prepareAddPartitions; Scala 2.13: mutable.HashSet,
immutable.Set, immutable.HashSet, immutable.HashMap, IterableOps.groupBy, Hashing.improve; TopicPartition.hashCode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tidegauge.groups import java_hash
from tidegauge.partition import TopicPartition, partitions_by_topic

_T = TypeVar("_T")
_BITS = 0xFFFFFFFF
_LEVEL_BITS = 5
_LEVELS = 7
_SMALL_SET = 4
_SMALLEST_TABLE = 4
_PRIME = 31


def by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return a transaction's partitions by topic, in Kafka's write order."""
    ordered = _table_order(list(dict.fromkeys(partitions)))
    topics = partitions_by_topic(ordered)
    is_trie = len(ordered) > _SMALL_SET
    return [
        (topic, _trie_order(topics[topic], int) if is_trie else topics[topic])
        for topic in _trie_order(topics, java_hash)
    ]


def _partition_hash(topic_partition: TopicPartition) -> int:
    topic, partition = topic_partition
    return _PRIME * (_PRIME + partition) + java_hash(topic)


def _table_order(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return the order of a ``mutable.HashSet`` sized for these elements."""
    capacity = max(int((len(partitions) + 1) / 0.75) - 1, _SMALLEST_TABLE)
    buckets = 2 << (capacity.bit_length() - 1)

    def place(topic_partition: TopicPartition) -> tuple[int, int]:
        value = _partition_hash(topic_partition) & _BITS
        value ^= value >> 16
        return value & (buckets - 1), value - 2**32 if value >= 2**31 else value

    return sorted(partitions, key=place)


def _trie_order(elements: Iterable[_T], hash_code: Callable[[_T], int]) -> list[_T]:
    """Return the order of a hash trie: a node's elements before its children's."""
    hashes = {element: _improved(hash_code(element)) for element in elements}

    def ordered(members: list[_T], level: int) -> list[_T]:
        if len(members) <= 1 or level == _LEVELS:
            return members
        groups: dict[int, list[_T]] = {}
        for member in members:
            groups.setdefault(hashes[member] >> (level * _LEVEL_BITS) & 31, []).append(member)
        chosen = [groups[index] for index in sorted(groups)]
        single = [group[0] for group in chosen if len(group) == 1]
        return single + [member for group in chosen if len(group) > 1 for member in ordered(group, level + 1)]

    return ordered(list(hashes), 0)


def _improved(value: int) -> int:
    """Return the hash of an element of a trie."""
    value = (value + ~(value << 9)) & _BITS
    value ^= value >> 14
    value = (value + (value << 4)) & _BITS
    return value ^ value >> 10
