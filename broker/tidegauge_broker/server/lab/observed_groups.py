"""The consumer groups of a coordinator as the Lab service shows them."""

from __future__ import annotations

from tidegauge.consumer_groups import CONSUMER
from tidegauge.groups import CLASSIC, GroupState, partition_of
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge.v1 import lab_pb2
from tidegauge_broker.coordinator.consumer_group.classic_protocol import write_assignment
from tidegauge_broker.coordinator.views import (
    CommittedOffsetView,
    ConsumerGroupView,
    ConsumerMemberView,
    GroupView,
    MemberView,
)
from tidegauge_broker.server.coordinators.group_runner import GroupRunner


def to_observed_group(runner: GroupRunner, group_id: str) -> lab_pb2.ObservedGroup:
    """Return a group in full: unlike DescribeGroups, with assignments in every state.

    Args:
        runner: of the coordinator.
        group_id: the group; one that the coordinator does not have is Dead.
    """
    coordinator = runner.coordinator
    consumer_view = coordinator.consumer_group_view(group_id)
    view = coordinator.group_view(group_id) if consumer_view is None else consumer_view
    found = lab_pb2.ObservedGroup(
        group_id=group_id,
        description=_to_description(coordinator.group_view(group_id), runner.time_ms, runner.wall_ms)
        if consumer_view is None
        else _to_consumer_description(consumer_view, runner.time_ms, runner.wall_ms),
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
        return lab_pb2.GroupDescription(state=GroupState.DEAD.value, generation=-1, assignment_epoch=-1)
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
        group_type=CLASSIC,
        assignment_epoch=-1,
    )
    if view.state_since_ms >= 0:
        description.state_age_ms = max(0, wall_ms - view.state_since_ms)
    if view.phase_deadline_ms is not None:
        description.phase_left_ms = max(0, view.phase_deadline_ms - now_ms)
    return description


def _to_consumer_description(view: ConsumerGroupView, now_ms: int, wall_ms: int) -> lab_pb2.GroupDescription:
    description = lab_pb2.GroupDescription(
        state=view.state.value,
        protocol_type=CONSUMER,
        protocol_name=view.assignor,
        members=[_to_consumer(member, now_ms) for member in view.members],
        generation=view.epoch,
        group_type=CONSUMER,
        assignment_epoch=view.assignment_epoch,
    )
    if view.state_since_ms >= 0:
        description.state_age_ms = max(0, wall_ms - view.state_since_ms)
    return description


def _to_consumer(member: ConsumerMemberView, now_ms: int) -> lab_pb2.GroupMember:
    """Return a member, its assignment in the bytes of the classic protocol."""
    held = partitions_by_topic(sorted({*member.assigned, *member.revoking}))
    found = lab_pb2.GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id or "",
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=write_assignment(0, held.items()),
        reconciliation=lab_pb2.Reconciliation(
            epoch=member.epoch,
            state=member.state,
            is_classic=member.is_classic,
            revoking=map(_to_partition, member.revoking),
            awaited=[
                lab_pb2.AwaitedPartition(partition=_to_partition(at), member_id=holder) for at, holder in member.awaited
            ],
            target=map(_to_partition, member.target),
        ),
    )
    if member.session_deadline_ms is not None:
        found.session_left_ms = max(0, member.session_deadline_ms - now_ms)
    if member.revocation_deadline_ms is not None:
        left_ms = max(0, member.revocation_deadline_ms - now_ms)
        found.reconciliation.revocation_left_ms = left_ms
        found.reconciliation.revocation_age_ms = max(0, member.rebalance_timeout_ms - left_ms)
    return found


def _to_partition(at: TopicPartition) -> lab_pb2.LabPartition:
    return lab_pb2.LabPartition(topic=at.topic, partition=at.partition)


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
