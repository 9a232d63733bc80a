"""Why a request of a consumer group is refused: the error and Kafka's sentence for it.

Source: GroupMetadataManager and GroupCoordinatorService of Kafka.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember

_REJOIN = "The member must abandon all its partitions and rejoin."


class GroupRefusal(Exception):
    """Ends a decision without any change; the response has this error and sentence."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def not_found(group_id: str) -> GroupRefusal:
    """Return the refusal of a group that does not exist."""
    return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def not_a_consumer_group(group_id: str) -> GroupRefusal:
    """Return the refusal of a group of another type."""
    return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def full(group_id: str) -> GroupRefusal:
    """Return the refusal of a member because the group is full."""
    return GroupRefusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group {group_id} has reached its maximum capacity."
    )


def unknown_member(group_id: str, member_id: str) -> GroupRefusal:
    """Return the refusal of a member that is not in the group."""
    return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def unknown_instance(group_id: str, instance_id: str) -> GroupRefusal:
    """Return the refusal of a static member that is not in the group."""
    return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is not a member of group {group_id}.")


def fenced_instance(member_id: str, instance_id: str, owner: str) -> GroupRefusal:
    """Return the refusal of a static member that another has replaced."""
    return GroupRefusal(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}.",
    )


def unreleased_instance(member_id: str, instance_id: str, owner: str) -> GroupRefusal:
    """Return the refusal of a static member whose instance id another still holds."""
    return GroupRefusal(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
        f"owned by {owner} member.",
    )


def wrong_epoch(epoch: int, member: ConsumerMember) -> GroupRefusal:
    """Return the refusal of a heartbeat whose epoch the member does not have."""
    size = "greater" if epoch > member.epoch else "smaller"
    return GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). {_REJOIN}",
    )


def unreadable_state(member: ConsumerMember) -> GroupRefusal:
    """Return the refusal of a member whose state a later release has written."""
    return GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member {member.member_id} is in a state that this broker does not know. {_REJOIN}",
    )
