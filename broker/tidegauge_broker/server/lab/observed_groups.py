"""The consumer groups of a coordinator as the Lab service shows them."""

from __future__ import annotations

from tidegauge.groups import GroupState, partition_of
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_broker.coordinator.views import CommittedOffsetView, GroupView, MemberView
from tidegauge_broker.server.coordinators.group_runner import GroupRunner


def to_observed_group(runner: GroupRunner, group_id: str) -> lab_pb2.ObservedGroup:
    """Return a group in full: unlike in DescribeGroups, assignments are there in every state.

    Args:
        runner: of the coordinator.
        group_id: the group; one that the coordinator does not have is Dead.
    """
    coordinator = runner.coordinator
    view = coordinator.group_view(group_id)
    found = lab_pb2.ObservedGroup(
        group_id=group_id,
        description=_to_description(view, runner.time_ms, runner.wall_ms),
        partition=partition_of(group_id, runner.partitions),
        out_of_service=coordinator.refusal_of(group_id),
    )
    if view is not None:
        found.offsets.extend(_to_offset(at, one) for at, one in sorted(view.offsets.items()))
    expiration = coordinator.expiration_of(group_id)
    if expiration is not None:
        found.description.expired_age_ms = max(0, runner.time_ms - expiration.at_ms)
        found.description.expired_partitions.extend(map(str, expiration.partitions))
    return found


def _to_description(view: GroupView | None, now_ms: int, wall_ms: int) -> lab_pb2.GroupDescription:
    if view is None:
        return lab_pb2.GroupDescription(state=GroupState.DEAD.value, generation=-1)
    description = lab_pb2.GroupDescription(
        state=view.state.value,
        protocol_type=view.protocol_type or "",
        protocol_name=view.protocol_name or "",
        members=[_to_member(member, now_ms) for member in view.members],
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
    return description


def _to_member(member: MemberView, now_ms: int) -> lab_pb2.GroupMember:
    found = lab_pb2.GroupMember(
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


def _to_offset(at: TopicPartition, one: CommittedOffsetView) -> lab_pb2.CommittedOffset:
    return lab_pb2.CommittedOffset(
        topic=at.topic, partition=at.partition, offset=one.offset, leader_epoch=one.leader_epoch, metadata=one.metadata
    )
