"""What a client knows of the cluster from the brokers' Metadata responses: addresses, and the leader of each partition.

Metadata with a lower leader epoch than was seen before is ignored: a partitioned former leader still serves it. A new
topic id ends what was known of the topic of that name. No call is made here.
Source: Metadata.updateLatestMetadata of Kafka's client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2


class PartitionLeader(NamedTuple):
    """The leader of a partition; ``leader_id`` is None while there is none."""

    leader_id: int | None
    leader_epoch: int
    topic_id: str


class ClusterMetadata:
    """See the module.

    Attributes:
        addresses: of the brokers in the latest response, host:port by their ids.
        leaders: of all partitions that any response has named.
    """

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        self.leaders: dict[TopicPartition, PartitionLeader] = {}
        self._kafka_brokers: set[int] = set()

    def learn(self, response: metadata_pb2.MetadataResponse) -> set[str]:
        """Take in one broker's view; return the names of the topics in it.

        Raises:
            TidegaugeError: INVALID_TOPIC_EXCEPTION or TOPIC_AUTHORIZATION_FAILED, of a topic that was asked for.
        """
        self.addresses = {broker.broker_id: address_of(broker.host, broker.port) for broker in response.brokers}
        self._kafka_brokers = {one.broker_id for one in response.brokers_without_listener}
        known = set()
        for topic in response.topics:
            code = ErrorCode.of(topic.error)
            if code in {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
                raise TidegaugeError(code, topic.error_message)
            if code is not ErrorCode.NONE:
                continue
            known.add(topic.name)
            for partition in topic.partitions:
                leader_id = partition.leader_id if partition.HasField("leader_id") else None
                leader = PartitionLeader(leader_id, partition.leader_epoch, topic.topic_id)
                self.accept(TopicPartition(topic.name, partition.partition), leader)
        return known

    def accept(self, topic_partition: TopicPartition, leader: PartitionLeader) -> None:
        """Accept a leader over what is known, unless its epoch is older; a new topic id ends the old topic."""
        known = self.leaders.get(topic_partition)
        if known is not None and known.topic_id != leader.topic_id:
            self.leaders = {one: old for one, old in self.leaders.items() if one.topic != topic_partition.topic}
            known = None
        if known is None or leader.leader_epoch >= known.leader_epoch:
            self.leaders[topic_partition] = leader

    def leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        """Return what is known of a partition; no leader and epoch -1 where nothing is."""
        return self.leaders.get(topic_partition, PartitionLeader(None, -1, ""))

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """Return the partitions in order, grouped by the broker that leads them; None: without a known leader."""
        groups: dict[int | None, list[TopicPartition]] = {}
        for one in sorted(partitions):
            groups.setdefault(self.leader(one).leader_id, []).append(one)
        return groups

    def why_no_leader(self, leader_id: int | None) -> str:
        """Return why a partition's leader cannot be asked, as the rest of a sentence that begins with the partition."""
        return f"is led by Apache Kafka's broker {leader_id}" if leader_id in self._kafka_brokers else "has no leader"
