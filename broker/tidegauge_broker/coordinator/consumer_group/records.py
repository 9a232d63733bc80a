"""The records of consumer groups: keys, values and their bytes, as Kafka 4.3 writes them into __consumer_offsets.

A broker of 3.9 skips their keys with a warning when it loads (KIP-915).
Source: GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde; the definitions of the records.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from tidegauge.kafka.coordinator.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from tidegauge.kafka.coordinator.consumer_group_current_member_assignment import (
    TopicPartitions as CurrentPartitions,
)
from tidegauge.kafka.coordinator.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from tidegauge.kafka.coordinator.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from tidegauge.kafka.coordinator.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from tidegauge.kafka.coordinator.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from tidegauge.kafka.coordinator.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from tidegauge.kafka.coordinator.consumer_group_target_assignment_member import (
    TopicPartition as TargetPartitions,
)
from tidegauge.kafka.coordinator.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember, Epochs
from tidegauge_broker.coordinator.record_codec import Record
from tidegauge_broker.coordinator.typed_records import RecordKinds

ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerGroupValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


class ConsumerGroupRecord(NamedTuple):
    """A record of a consumer group; ``value`` is None for a tombstone."""

    key: ConsumerGroupKey
    value: ConsumerGroupValue | None


KINDS: dict[int, tuple[type[Any], type[Any]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Classes of key and value by type."""
CODEC = RecordKinds(KINDS)


def to_bytes(record: ConsumerGroupRecord) -> Record:
    """Return a record as it is written."""
    return CODEC.to_bytes(record.key, record.value)


def read_key(key: bytes) -> ConsumerGroupKey:
    """Return a key of one of ``KINDS``.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no such key.
    """
    return cast("ConsumerGroupKey", CODEC.read_key(key))


def read_value(key: ConsumerGroupKey, value: bytes) -> ConsumerGroupValue:
    """Return the value that belongs to a key.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no such value.
    """
    return cast("ConsumerGroupValue", CODEC.read_value(key, value))


# Records to write. Source: GroupCoordinatorRecordHelpers.


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    """Return the record of a group's epoch (type 3)."""
    return ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def subscription_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of a member's identity and subscription (type 5)."""
    classic = None
    if member.classic is not None:
        protocols = [ClassicProtocol(one.name, one.metadata) for one in member.classic.protocols]
        classic = ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    """Return the target assignment's epoch record (type 6); ``timestamp_ms`` 0: unknown."""
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> ConsumerGroupRecord:
    """Return the record of a member's target assignment (type 7)."""
    value = ConsumerGroupTargetAssignmentMemberValue([TargetPartitions(topic_id, ones) for topic_id, ones in target])
    return ConsumerGroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of a member's epoch, state and partitions (type 8)."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.pending_revocation),
    )
    return ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def _current(epochs: Epochs) -> list[CurrentPartitions]:
    return [CurrentPartitions(topic_id, list(ones), list(ones.values())) for topic_id, ones in epochs.items()]


def regex_record(group_id: str, regex: str, topics: list[str], version: int, timestamp_ms: int) -> ConsumerGroupRecord:
    """Return the record of the topics that a regular expression matches (type 16)."""
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id, regex),
        ConsumerGroupRegularExpressionValue(topics, version, timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> ConsumerGroupRecord:
    """Return the tombstone of a regular expression's topics."""
    return ConsumerGroupRecord(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a member, in Kafka's order."""
    return [
        ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        ConsumerGroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a group without members, in Kafka's order."""
    return [
        ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
        ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id), None),
        ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id), None),
    ]
