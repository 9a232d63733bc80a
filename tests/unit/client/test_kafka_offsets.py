"""Offsets in the requests that commit them: each partition is in its field, whatever fields a topic has besides."""

from __future__ import annotations

import pytest

from tidegauge.kafka.messages import offset_commit, txn_offset_commit
from tidegauge.partition import TopicPartition
from tidegauge_client.kafka_offsets import OffsetAndMetadata, topics_to_commit


@pytest.mark.parametrize(
    ("of_topic", "of_partition"),
    [
        (offset_commit.OffsetCommitRequestTopic, offset_commit.OffsetCommitRequestPartition),
        (txn_offset_commit.TxnOffsetCommitRequestTopic, txn_offset_commit.TxnOffsetCommitRequestPartition),
    ],
)
def test_each_offset_is_among_its_topics_partitions(of_topic: type, of_partition: type) -> None:
    """OffsetCommit v10 has topic ids (KIP-848), and the message's class a field for them."""
    offsets = {TopicPartition("t", 1): OffsetAndMetadata(7, 3, "m"), TopicPartition("t", 0): OffsetAndMetadata(5)}
    [topic] = topics_to_commit(offsets, of_topic, of_partition)
    assert topic.name == "t"
    found = {one.partition_index: (one.committed_offset, one.committed_metadata) for one in topic.partitions}
    assert found == {1: (7, "m"), 0: (5, None)}
