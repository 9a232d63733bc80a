"""The records of share groups as Kafka 4.3 writes them into __consumer_offsets, types 10 to 15.

Source: GroupCoordinatorRecordHelpers; the definitions of the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidegauge.kafka.coordinator.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from tidegauge.kafka.coordinator.share_group_current_member_assignment import TopicPartitions as CurrentPartitions
from tidegauge.kafka.coordinator.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from tidegauge.kafka.coordinator.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from tidegauge.kafka.coordinator.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from tidegauge.kafka.coordinator.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from tidegauge.kafka.coordinator.share_group_target_assignment_member import TopicPartition as TargetPartitions
from tidegauge.kafka.coordinator.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.record_codec import Record
from tidegauge_broker.coordinator.share_group.member import ShareMember
from tidegauge_broker.coordinator.share_group.states import InitializedTopics, StatesOfPartitions, TopicStates
from tidegauge_broker.coordinator.typed_records import RecordKinds

KINDS = RecordKinds(
    {
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    }
)
_STABLE = 0
"""The only state of a member: a share group takes partitions away without asking (MemberState.STABLE)."""


class ShareGroupRecord(NamedTuple):
    """A record of a share group; ``value`` is None for a tombstone."""

    key: Any
    value: Any


def to_bytes(record: ShareGroupRecord) -> Record:
    """Return a record as it is written."""
    return KINDS.to_bytes(record.key, record.value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    """Return the record of a group's epoch (type 11)."""
    return ShareGroupRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def subscription_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    """Return the record of a member's identity and subscription (type 10)."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return ShareGroupRecord(ShareGroupMemberMetadataKey(group_id, member.member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ShareGroupRecord:
    """Return the record of the epoch of the target assignment (type 12)."""
    value = ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
    return ShareGroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Partitions) -> ShareGroupRecord:
    """Return the record of a member's target assignment (type 13)."""
    value = ShareGroupTargetAssignmentMemberValue([TargetPartitions(topic_id, ones) for topic_id, ones in target])
    return ShareGroupRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    """Return the record of a member's epoch and partitions (type 14)."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[CurrentPartitions(topic_id, ones) for topic_id, ones in member.assigned],
    )
    return ShareGroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def states_record(group_id: str, states: StatesOfPartitions) -> ShareGroupRecord:
    """Return the record of initialized share partitions (type 15), in Java's order."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(states.initializing),
        initialized_topics=_topics(states.initialized),
        deleting_topics=[TopicInfo(topic_id, states.deleting[topic_id]) for topic_id in java_set(states.deleting)],
    )
    return ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id), value)


def _topics(topics: InitializedTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id, topics[topic_id].name, list(java_set(sorted(topics[topic_id].partitions))))
        for topic_id in java_set(topics)
    ]


def states_of(value: ShareGroupStatePartitionMetadataValue) -> StatesOfPartitions:
    """Return what a record of type 15 says."""

    def topics(found: Iterable[TopicPartitionsInfo]) -> InitializedTopics:
        return {bytes(one.topic_id): TopicStates(one.topic_name, frozenset(one.partitions)) for one in found}

    return StatesOfPartitions(
        topics(value.initializing_topics),
        topics(value.initialized_topics),
        {bytes(one.topic_id): one.topic_name for one in value.deleting_topics},
    )


def member_tombstones(group_id: str, member_id: str) -> list[ShareGroupRecord]:
    """Return the tombstones of a member, in Kafka's order."""
    return [
        ShareGroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        ShareGroupRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        ShareGroupRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str) -> list[ShareGroupRecord]:
    """Return the tombstones of a group without members, in Kafka's order."""
    return [
        ShareGroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id), None),
        ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id), None),
        ShareGroupRecord(ShareGroupMetadataKey(group_id), None),
    ]
