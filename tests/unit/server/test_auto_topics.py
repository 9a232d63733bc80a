"""Internal topics are created on first use with settings of their own (AutoTopicCreationManager)."""

from __future__ import annotations

from tidegauge.settings import parse_broker_settings
from tidegauge_broker.server.metadata.auto_topics import offsets_topic


def test_the_topic_of_offsets_is_compacted_and_replicated_exactly_as_set() -> None:
    """GroupCoordinator.offsetsTopicConfigs; the replication factor does not fall back to fewer brokers."""
    values, _ = parse_broker_settings(
        {
            "broker.id": "0",
            "zookeeper.connect": "z:1",
            "offsets.topic.num.partitions": "7",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "1048576",
            "default.replication.factor": "5",
        }
    )
    topic = offsets_topic(values)
    assert (topic.name, topic.partition_count, topic.replication_factor) == ("__consumer_offsets", 7, 2)
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "compression.type": "producer",
    }


def test_the_defaults_are_kafkas() -> None:
    """Fifty partitions of three replicas."""
    values, _ = parse_broker_settings({"broker.id": "0", "zookeeper.connect": "z:1"})
    topic = offsets_topic(values)
    assert (topic.partition_count, topic.replication_factor) == (50, 3)
    assert topic.configs["segment.bytes"] == "104857600"
