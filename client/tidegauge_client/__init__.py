"""Client library: producer, consumer, admin client, and the command line.

The classes here are asynchronous; ``tidegauge_client.sync`` offers the same to scripts without an event loop. Names are
imported on first use: a program that only reads ``cluster.json`` loads neither gRPC nor the record codec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegauge.errors import ErrorCode, TidegaugeError
    from tidegauge.partition import TopicPartition
    from tidegauge_client.admin import Admin, NewTopic, OffsetAndTimestamp
    from tidegauge_client.consumer import Consumer
    from tidegauge_client.group.commits import CommitFailedError
    from tidegauge_client.group.group_consumer import GroupConsumer
    from tidegauge_client.group.listener import RebalanceListener
    from tidegauge_client.partition_queue import RecordMetadata
    from tidegauge_client.producer import Producer
    from tidegauge_client.subscription import ConsumerRecord

__all__ = [
    "Admin",
    "CommitFailedError",
    "Consumer",
    "ConsumerRecord",
    "ErrorCode",
    "GroupConsumer",
    "NewTopic",
    "OffsetAndTimestamp",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TidegaugeError",
    "TopicPartition",
]

_HOMES = {
    "Admin": "tidegauge_client.admin",
    "CommitFailedError": "tidegauge_client.group.commits",
    "Consumer": "tidegauge_client.consumer",
    "ConsumerRecord": "tidegauge_client.subscription",
    "ErrorCode": "tidegauge.errors",
    "GroupConsumer": "tidegauge_client.group.group_consumer",
    "NewTopic": "tidegauge_client.admin",
    "OffsetAndTimestamp": "tidegauge_client.admin",
    "Producer": "tidegauge_client.producer",
    "RebalanceListener": "tidegauge_client.group.listener",
    "RecordMetadata": "tidegauge_client.partition_queue",
    "TidegaugeError": "tidegauge.errors",
    "TopicPartition": "tidegauge.partition",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
