"""AlterPartition (56): sent as version 3, read as 0 to 3.

Version 2 and later name topics by id alone. Version 3 has a broker epoch with each member of the ISR (KIP-903): a
Tidegauge leader sets the joining replica's, and -1 for the others; Kafka's leader in ZooKeeper mode sets -1
for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages import alter_partition as kafka
from tidegauge.kafka.topic_ids import known_topic_id, topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge_controller.kafka_wire.leader_and_isr import RECOVERING

VERSION = 3
"""The version of ``inter.broker.protocol.version`` 3.5 and later."""
_FIRST_WITH_TOPIC_IDS = 2
_FIRST_WITH_BROKER_EPOCHS = 3
_FIRST_WITH_INELIGIBLE = 2
UNKNOWN_EPOCH = -1
"""A broker epoch that the leader does not know."""


def to_request(request: AlterPartitionRequest) -> kafka.AlterPartitionRequest:
    """Return Kafka's message, with the partitions of a topic together."""
    by_topic: dict[str, list[kafka.PartitionData]] = {}
    for proposal in request.partitions:
        by_topic.setdefault(proposal.topic_id, []).append(_to_partition(proposal))
    topics = [kafka.TopicData(topic_id=topic_id_bytes(one), partitions=found) for one, found in by_topic.items()]
    return kafka.AlterPartitionRequest(request.broker_id, request.broker_epoch, topics)


def _to_partition(proposal: IsrProposal) -> kafka.PartitionData:
    """Return Kafka's form of a proposal; a joining replica is last."""
    *others, last = proposal.new_isr or (UNKNOWN_EPOCH,)
    members = [kafka.BrokerState(broker_id) for broker_id in others]
    if proposal.new_isr:
        members.append(kafka.BrokerState(last, proposal.joiner_epoch))
    return kafka.PartitionData(
        partition_index=proposal.topic_partition.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=members,
        leader_recovery_state=RECOVERING if proposal.recovering else 0,
        partition_epoch=proposal.partition_epoch,
    )


def topic_ids_of(message: kafka.AlterPartitionRequest) -> set[str]:
    """Return the ids of the topics that a request names by id."""
    return {known_topic_id(topic.topic_id) for topic in message.topics} - {""}


def from_request(
    message: kafka.AlterPartitionRequest, version: int, name_of: Callable[[str], str | None]
) -> tuple[AlterPartitionRequest, list[kafka.ResponseTopicData]]:
    """Read Kafka's message.

    Args:
        message: of this version.
        version: of it.
        name_of: the name of the topic with an id, as the controller knows it, or None.

    Returns:
        The request, and the response's part for topics with an unknown id: UNKNOWN_TOPIC_ID.
    """
    proposals: list[IsrProposal] = []
    unknown: list[kafka.ResponseTopicData] = []
    for topic in message.topics:
        topic_id = known_topic_id(topic.topic_id)
        name = topic.topic_name if version < _FIRST_WITH_TOPIC_IDS else name_of(topic_id)
        if name is None:
            error = int(ErrorCode.UNKNOWN_TOPIC_ID)
            refused = [kafka.ResponsePartitionData(one.partition_index, error) for one in topic.partitions]
            unknown.append(kafka.ResponseTopicData(topic_id=topic.topic_id, partitions=refused))
            continue
        proposals += _from_topic(name, topic_id, topic.partitions, version)
    return AlterPartitionRequest(message.broker_id, message.broker_epoch, proposals), unknown


def _from_topic(
    name: str, topic_id: str, partitions: Sequence[kafka.PartitionData], version: int
) -> Iterator[IsrProposal]:
    for one in partitions:
        members = one.new_isr_with_epochs
        epochs = {member.broker_epoch for member in members} - {UNKNOWN_EPOCH}
        has_epochs = version >= _FIRST_WITH_BROKER_EPOCHS
        yield IsrProposal(
            TopicPartition(name, one.partition_index),
            topic_id,
            one.leader_epoch,
            tuple(member.broker_id for member in members) if has_epochs else tuple(one.new_isr),
            one.partition_epoch,
            one.leader_recovery_state == RECOVERING,
            epochs.pop() if len(epochs) == 1 else UNKNOWN_EPOCH,
        )


def to_response(
    request: AlterPartitionRequest,
    response: AlterPartitionResponse,
    version: int,
    unknown: Sequence[kafka.ResponseTopicData] = (),
) -> kafka.AlterPartitionResponse:
    """Return Kafka's response to a request of this version.

    Before version 2, a member that may not be in the ISR gives OPERATION_NOT_ATTEMPTED.

    Args:
        request: as ``from_request`` read it.
        response: to it.
        version: of the request.
        unknown: what ``from_request`` returned beside the request.
    """
    if response.error is not ErrorCode.NONE:
        return kafka.AlterPartitionResponse(error_code=response.error)
    ids = {proposal.topic_partition.topic: proposal.topic_id for proposal in request.partitions}
    by_topic: dict[str, list[kafka.ResponsePartitionData]] = {}
    for verdict in response.partitions:
        by_topic.setdefault(verdict.topic_partition.topic, []).append(_to_verdict(verdict, version))
    topics = [
        kafka.ResponseTopicData(topic, topic_id_bytes(ids.get(topic, "")), found) for topic, found in by_topic.items()
    ]
    return kafka.AlterPartitionResponse(topics=[*unknown, *topics])


def _to_verdict(verdict: IsrVerdict, version: int) -> kafka.ResponsePartitionData:
    error = verdict.error
    if error is ErrorCode.INELIGIBLE_REPLICA and version < _FIRST_WITH_INELIGIBLE:
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
    at = verdict.topic_partition.partition
    if error is not ErrorCode.NONE:
        return kafka.ResponsePartitionData(at, error)
    return kafka.ResponsePartitionData(
        at,
        error,
        verdict.leader,
        verdict.leader_epoch,
        verdict.isr,
        RECOVERING if verdict.recovering else 0,
        verdict.partition_epoch,
    )


def from_response(request: AlterPartitionRequest, message: kafka.AlterPartitionResponse) -> AlterPartitionResponse:
    """Read Kafka's response to a request; what names none of its topics is left out."""
    names = {topic_id_bytes(one.topic_id): one.topic_partition.topic for one in request.partitions}
    return AlterPartitionResponse(
        ErrorCode.of(message.error_code),
        [
            _from_verdict(TopicPartition(names[topic.topic_id], one.partition_index), one)
            for topic in message.topics
            if topic.topic_id in names
            for one in topic.partitions
        ],
    )


def _from_verdict(at: TopicPartition, one: kafka.ResponsePartitionData) -> IsrVerdict:
    error = ErrorCode.of(one.error_code)
    if error is not ErrorCode.NONE:
        return IsrVerdict(at, error)
    recovering = one.leader_recovery_state == RECOVERING
    return IsrVerdict(at, error, one.leader_id, one.leader_epoch, tuple(one.isr), one.partition_epoch, recovering)
