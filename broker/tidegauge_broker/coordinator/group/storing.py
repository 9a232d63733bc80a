"""A group's record, and the meaning of an append error for the members.

Source: GroupMetadataManager (storeGroup, groupMetadataValue).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.record_codec import NO_SEQUENCE, Record, batch_of
from tidegauge_broker.coordinator.records import group_key, group_value
from tidegauge_broker.coordinator.runtime import GroupRuntime

UNAVAILABLE_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
MOVED_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
TOO_LARGE_ERRORS = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def metadata_batch(runtime: GroupRuntime, group: Group, assignments: Mapping[str, bytes]) -> bytes:
    """Return a batch with the group's current record and these assignments."""
    compression = runtime.settings.offsets_topic_compression_codec
    return batch_of([metadata_record(group, assignments)], runtime.wall_ms, NO_SEQUENCE, compression)


def metadata_record(group: Group, assignments: Mapping[str, bytes]) -> Record:
    """Return the group's record as of now, with these assignments by member id."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name or ""),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    return Record(group_key(group.group_id), group_value(value))


def stored_error(error: ErrorCode) -> ErrorCode:
    """Return the members' error after an error of their record's append."""
    if error in UNAVAILABLE_ERRORS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in MOVED_ERRORS:
        return ErrorCode.NOT_COORDINATOR
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if error in TOO_LARGE_ERRORS:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
