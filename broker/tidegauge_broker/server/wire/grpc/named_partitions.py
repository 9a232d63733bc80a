"""The partitions and topics that a request in protobuf names, whichever message it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from tidegauge.partition import TopicPartition

_TOPIC_NAMES = {"topic", "topics", "names", "resource_name"}


def named_partitions(request: Message) -> Iterator[TopicPartition]:
    """Yield each partition that a request names; one that it names a topic of has -1."""
    fields = request.DESCRIPTOR.fields_by_name
    if "topic" in fields and "partition" in fields:
        yield TopicPartition(request.topic, request.partition)  # type: ignore[attr-defined]  # it has both fields
        return
    for field, value in request.ListFields():
        for one in _items(value):
            if isinstance(one, str) and field.name in _TOPIC_NAMES:
                yield TopicPartition(one, -1)
            elif isinstance(one, Message):
                name = getattr(one, "name", None) if field.name in _TOPIC_NAMES else None
                if isinstance(name, str):
                    yield TopicPartition(name, -1)
                else:
                    yield from named_partitions(one)


def _items(value: Any) -> Any:
    return (value,) if isinstance(value, (str, bytes, int, float, Message)) else value
