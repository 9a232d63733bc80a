"""The partitions, topics, groups and resources that any request of Kafka's protocol names. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegauge.partition import TopicPartition

NameOf = Callable[[bytes], "str | None"]
_TOPICS = ("topic", "name", "topic_name", "topic_id")
_PARTITIONS = ("partitions", "partition_data", "partition_indexes", "partition_states")
_PARTITION = ("partition", "partition_index", "index")
_GROUP = ("group_id", "transactional_id", "key")
_GROUPS = ("groups", "groups_names", "coordinator_keys")


def named_partitions(message: Any, name_of: NameOf) -> Iterator[TopicPartition]:
    """Yield each partition that a request names; one that it names a topic of has -1.

    Args:
        message: the decoded request; None if it was not read.
        name_of: the name of the topic with an id, or None.
    """
    if not dataclasses.is_dataclass(message):
        return
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, (list, tuple)):
            for item in value:
                if field.name.startswith("topic"):
                    yield from _of_topic(item, name_of)
                else:
                    yield from named_partitions(item, name_of)


def topic_name(item: Any, name_of: NameOf) -> str | None:
    """Return the topic name in a message's part, or None."""
    names = [item] if isinstance(item, str) else [getattr(item, name, None) for name in _TOPICS]
    topic = next((name for name in names if isinstance(name, str) and name), None)
    if topic is not None:
        return topic
    return next((name_of(name) for name in names if isinstance(name, bytes) and any(name)), None)


def _of_topic(item: Any, name_of: NameOf) -> Iterator[TopicPartition]:
    topic = topic_name(item, name_of)
    if topic is None:
        return
    partitions = next(
        (found for name in _PARTITIONS if isinstance(found := getattr(item, name, None), (list, tuple))), ()
    )
    if not partitions:
        yield TopicPartition(topic, -1)
    for partition in partitions:
        yield TopicPartition(topic, partition_number(partition))


def partition_number(partition: Any) -> int:
    """Return the partition number in a message's part; -1: it has none."""
    if isinstance(partition, int):
        return partition
    return next((found for name in _PARTITION if isinstance(found := getattr(partition, name, None), int)), -1)


def named_group(message: Any) -> str:
    """Return a request's group or transactional id; empty for none or several."""
    found = next((value for name in _GROUP if isinstance(value := getattr(message, name, None), str) and value), None)
    if found is not None:
        return found
    several: Iterable[Any] = next((value for name in _GROUPS if (value := getattr(message, name, None))), ())
    groups = [item if isinstance(item, str) else getattr(item, "group_id", "") for item in several]
    return groups[0] if len(groups) == 1 else ""


def named_transaction(message: Any) -> str:
    """Return the transactional id in a request; empty without one."""
    found = getattr(message, "transactional_id", None)
    return found if isinstance(found, str) else ""


def named_resources(message: Any) -> tuple[str, ...]:
    """Return the names of the resources whose configurations a request is about."""
    found = getattr(message, "resources", None)
    return tuple(name for one in found or () if isinstance(name := getattr(one, "resource_name", None), str))
