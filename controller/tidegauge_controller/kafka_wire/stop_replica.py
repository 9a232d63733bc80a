"""StopReplica (5): sent as version 4, read as 0 to 4."""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.control import ControlHeader, PartitionsResponse, StopReplicaPartition, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages import stop_replica as kafka
from tidegauge.partition import TopicPartition

VERSION = 4
"""The version of ``inter.broker.protocol.version`` 3.4 and later."""
_EPOCH_DURING_DELETE = -2
"""``LeaderAndIsr.EpochDuringDelete``: the topic is being deleted, and the epoch is not checked."""


def to_request(request: StopReplicaRequest) -> kafka.StopReplicaRequest:
    """Return Kafka's message, with the partitions of a topic together."""
    header = request.header
    by_topic: dict[str, list[kafka.StopReplicaPartitionState]] = {}
    for entry in request.partitions:
        epoch = _EPOCH_DURING_DELETE if entry.leader_epoch is None else entry.leader_epoch
        state = kafka.StopReplicaPartitionState(entry.topic_partition.partition, epoch, entry.delete)
        by_topic.setdefault(entry.topic_partition.topic, []).append(state)
    return kafka.StopReplicaRequest(
        controller_id=header.controller_id,
        controller_epoch=header.controller_epoch,
        broker_epoch=header.broker_epoch,
        topic_states=[kafka.StopReplicaTopicState(topic, states) for topic, states in by_topic.items()],
    )


def from_request(message: kafka.StopReplicaRequest) -> StopReplicaRequest:
    """Read Kafka's message. A negative leader epoch is not checked (``NoEpoch``, ``EpochDuringDelete``)."""
    header = ControlHeader(message.controller_id, message.controller_epoch, message.broker_epoch)
    return StopReplicaRequest(header, list(_partitions(message)))


def _partitions(message: kafka.StopReplicaRequest) -> Iterator[StopReplicaPartition]:
    for one in message.ungrouped_partitions:
        yield StopReplicaPartition(TopicPartition(one.topic_name, one.partition_index), None, message.delete_partitions)
    for named in message.topics:
        for index in named.partition_indexes:
            yield StopReplicaPartition(TopicPartition(named.name, index), None, message.delete_partitions)
    for topic in message.topic_states:
        for state in topic.partition_states:
            epoch = state.leader_epoch if state.leader_epoch >= 0 else None
            at = TopicPartition(topic.topic_name, state.partition_index)
            yield StopReplicaPartition(at, epoch, state.delete_partition)


def to_response(request: StopReplicaRequest, response: PartitionsResponse) -> kafka.StopReplicaResponse:
    """Return Kafka's response, with a stale broker epoch at each partition too."""
    errors = response.partitions
    if response.error is ErrorCode.STALE_BROKER_EPOCH:
        errors = {one.topic_partition: response.error for one in request.partitions}
    return kafka.StopReplicaResponse(
        response.error,
        [kafka.StopReplicaPartitionError(at.topic, at.partition, error) for at, error in errors.items()],
    )


def from_response(message: kafka.StopReplicaResponse) -> PartitionsResponse:
    """Read Kafka's response."""
    return PartitionsResponse(
        ErrorCode.of(message.error_code),
        {
            TopicPartition(one.topic_name, one.partition_index): ErrorCode.of(one.error_code)
            for one in message.partition_errors
        },
    )
