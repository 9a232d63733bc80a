"""The consumer groups of a coordinator as the Lab service shows them."""

from __future__ import annotations

from tidegauge.v1 import groups_pb2, lab_pb2
from tidegauge_broker.coordinator.views import GroupView, MemberView
from tidegauge_broker.server.wire.grpc.groups import to_committed_offset


def to_observed_group(view: GroupView, broker_id: int, now_ms: int, wall_ms: int) -> lab_pb2.ObservedGroup:
    """Return a group in full: unlike DescribeGroup, assignments are there in every state."""
    description = groups_pb2.DescribeGroupResponse(
        state=view.state.value,
        protocol_type=view.protocol_type or "",
        protocol_name=view.protocol_name or "",
        members=[_to_member(member, now_ms) for member in view.members],
        coordinator=broker_id,
        generation=view.generation,
        reason=view.reason,
        parked_members=[one.member_id for one in view.members if one.parked],
        leader=view.leader or "",
        in_initial_delay=view.in_initial_delay,
        pending_members=view.pending_members,
    )
    if view.state_since_ms >= 0:
        description.state_age_ms = max(0, wall_ms - view.state_since_ms)
    if view.phase_deadline_ms is not None:
        description.phase_left_ms = max(0, view.phase_deadline_ms - now_ms)
    return lab_pb2.ObservedGroup(
        group_id=view.group_id,
        description=description,
        partition=view.partition,
        offsets=[to_committed_offset(at, one) for at, one in sorted(view.offsets.items())],
    )


def _to_member(member: MemberView, now_ms: int) -> groups_pb2.GroupMember:
    found = groups_pb2.GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id or "",
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata,
        assignment=member.assignment,
        parked=member.parked,
    )
    if member.session_deadline_ms is not None:
        found.session_left_ms = max(0, member.session_deadline_ms - now_ms)
    return found
