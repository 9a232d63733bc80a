"""LeaderAndIsr (4): sent as version 7, read as 0 to 7; the package describes ``type``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, Endpoint, LeaderAndIsrPartition, LeaderAndIsrRequest, PartitionsResponse
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages import leader_and_isr as kafka
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge_controller.kafka_wire import INCREMENTAL, OF_KAFKA, by_topic, states_of

VERSION = 7
"""The version of ``inter.broker.protocol.version`` 3.4 and later."""
_FIRST_WITH_TOPIC_IDS = 5
RECOVERING = 1
"""``LeaderRecoveryState.RECOVERING``."""


def to_request(request: LeaderAndIsrRequest) -> kafka.LeaderAndIsrRequest:
    """Return Kafka's message, with the partitions of a topic together."""
    header = request.header
    return kafka.LeaderAndIsrRequest(
        controller_id=header.controller_id,
        controller_epoch=header.controller_epoch,
        broker_epoch=header.broker_epoch,
        type=INCREMENTAL if request.understands_ineligible else OF_KAFKA,
        topic_states=[
            kafka.LeaderAndIsrTopicState(topic, topic_id_bytes(topic_id), [_to_state(entry) for entry in entries])
            for (topic, topic_id), entries in by_topic(request.partitions).items()
        ],
        live_leaders=[kafka.LeaderAndIsrLiveLeader(one.broker_id, one.host, one.port) for one in request.live_leaders],
    )


def _to_state(entry: LeaderAndIsrPartition) -> kafka.LeaderAndIsrPartitionState:
    state = entry.state
    return kafka.LeaderAndIsrPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        replicas=state.replicas,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        is_new=entry.is_new,
        leader_recovery_state=RECOVERING if state.recovering else 0,
    )


def from_request(message: kafka.LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """Read Kafka's message."""
    return LeaderAndIsrRequest(
        ControlHeader(message.controller_id, message.controller_epoch, message.broker_epoch),
        [_from_state(*one) for one in states_of(message)],
        [Endpoint(one.broker_id, one.host_name, one.port) for one in message.live_leaders],
        understands_ineligible=message.type != OF_KAFKA,
    )


def _from_state(topic: str, topic_id: str, state: kafka.LeaderAndIsrPartitionState) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        PartitionState(
            TopicPartition(topic, state.partition_index),
            topic_id,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            tuple(state.replicas),
            tuple(state.adding_replicas),
            tuple(state.removing_replicas),
            state.leader_recovery_state == RECOVERING,
        ),
        state.is_new,
    )


def to_response(request: LeaderAndIsrRequest, response: PartitionsResponse, version: int) -> kafka.LeaderAndIsrResponse:
    """Return Kafka's response to a request; by topic id from version 5.

    An error of the whole request is set at each partition too (``LeaderAndIsrRequest.getErrorResponse``).
    """
    errors = response.partitions
    if response.error is not ErrorCode.NONE:
        errors = {entry.state.topic_partition: response.error for entry in request.partitions}
    found = [kafka.LeaderAndIsrPartitionError(at.topic, at.partition, error) for at, error in errors.items()]
    if version < _FIRST_WITH_TOPIC_IDS:
        return kafka.LeaderAndIsrResponse(response.error, partition_errors=found)
    ids = {entry.state.topic_partition.topic: entry.state.topic_id for entry in request.partitions}
    return kafka.LeaderAndIsrResponse(response.error, topics=list(_by_topic_id(found, ids)))


def _by_topic_id(
    found: Sequence[kafka.LeaderAndIsrPartitionError], ids: dict[str, str]
) -> Iterator[kafka.LeaderAndIsrTopicError]:
    def topic_of(one: kafka.LeaderAndIsrPartitionError) -> str:
        return one.topic_name

    for topic, errors in groupby(sorted(found, key=topic_of), key=topic_of):
        yield kafka.LeaderAndIsrTopicError(topic_id_bytes(ids.get(topic, "")), list(errors))


def from_response(request: LeaderAndIsrRequest, message: kafka.LeaderAndIsrResponse) -> PartitionsResponse:
    """Read Kafka's response to a request; what names none of its topics is left out.

    A request that failed as a whole says nothing of its partitions.
    """
    if message.error_code:
        return PartitionsResponse(ErrorCode.of(message.error_code))
    names = {topic_id_bytes(entry.state.topic_id): entry.state.topic_partition.topic for entry in request.partitions}
    errors = {TopicPartition(one.topic_name, one.partition_index): one.error_code for one in message.partition_errors}
    for topic in message.topics:
        if topic.topic_id in names:
            name = names[topic.topic_id]
            errors |= {TopicPartition(name, one.partition_index): one.error_code for one in topic.partition_errors}
    return PartitionsResponse(partitions={at: ErrorCode.of(error) for at, error in errors.items()})
