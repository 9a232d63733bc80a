"""The name of a partition, and the rules of legal topic names.

Source: Kafka's ``TopicPartition`` and ``Topic.validate``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_TOPIC_NAME_LENGTH = 249
_SHOWN_CHARACTERS = 1_000
"""Number of a longer name's characters in a message: a response's message is a string of at most 32,767 bytes."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that clients may neither write to nor truncate (Topic.INTERNAL_TOPICS)."""
METADATA_TOPIC = "__cluster_metadata"
"""The topic whose only partition is the metadata log of a cluster in KRaft mode (Topic.CLUSTER_METADATA_TOPIC_NAME)."""
MAX_PARTITION = 2**31 - 1
"""Largest partition index: it is an int32 in Kafka's protocol."""
_INDEX_DIGITS = len(str(MAX_PARTITION))
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """A topic's name and a partition index, printed as ``topic-partition`` like Kafka does."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Read ``topic-partition``; the last hyphen separates.

        Raises:
            ValueError: the text has no such form, or the index is above ``MAX_PARTITION``.
        """
        topic, separator, index = text.rpartition("-")
        is_index = index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS and int(index) <= MAX_PARTITION
        if not separator or not topic or not is_index:
            raise ValueError(f"'{text}' is not a partition; write TOPIC-PARTITION, for example orders-0")
        return cls(topic, int(index))


@lru_cache(maxsize=1 << 16)
def partition_named(topic: str, partition: int) -> TopicPartition:
    """Return a partition's name, always the same object, which speeds up dictionaries."""
    return TopicPartition(topic, partition)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return each topic's partition indexes, both in the order of first mention."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is illegal, in Kafka's words; None if legal."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}..."
        return (
            f"Topic name is invalid: the length of '{shown}' is longer than the max allowed "
            f"length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL_TOPIC_NAME.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def partition_problem(topic_partition: TopicPartition) -> str | None:
    """Return why no directory may be made for a partition's name, or None."""
    problem = topic_name_problem(topic_partition.topic)
    if problem is None and topic_partition.partition < 0:
        problem = f"Partition {topic_partition.partition} is invalid: it is negative"
    return problem


def topic_names_collide(one: str, other: str) -> bool:
    """Whether two topic names give one metric name ('.' becomes '_'); Kafka rejects the second topic."""
    return one.replace(".", "_") == other.replace(".", "_")
