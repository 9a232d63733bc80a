"""Checks that several requests share. Source: GroupCoordinator (validateCurrentMember, acceptJoiningMember)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.states import EMPTY, PREPARING


def member_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return the error of a request in a member's name, or NONE.

    The instance id is checked before the member id, and both before anything about the generation: a static member that
    was replaced must learn that it is fenced (KIP-345).
    """
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def has_room_for(group: Group, member_id: str, max_size: int) -> bool:
    """Return whether a joining member is accepted under group.max.size.

    During a join phase the parked JoinGroups count, not the members, so that a group which is too large loses the
    members that rejoin last.
    """
    if group.state is EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING:
        return (member is not None and member.join_token is not None) or group.parked_joins < max_size
    return member is not None or len(group.members) < max_size
