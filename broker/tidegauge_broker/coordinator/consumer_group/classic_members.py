"""Members with the classic protocol in a consumer group: their JoinGroup, SyncGroup and Heartbeat.

Nothing is parked: a JoinGroup moves its member one step towards its target, as a heartbeat of the consumer protocol
does, and the Heartbeat of a member that has a step before it gets REBALANCE_IN_PROGRESS.
Source: GroupMetadataManager (classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup).
"""

from __future__ import annotations

from dataclasses import replace

from tidegauge.errors import ErrorCode
from tidegauge.groups import Heartbeat, JoinGroup, SyncGroup, SyncGroupResult
from tidegauge_broker.coordinator.consumer_group import refusals
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import copied_set
from tidegauge_broker.coordinator.consumer_group.classic_protocol import (
    MalformedProtocol,
    Subscription,
    read_subscription,
    write_assignment,
)
from tidegauge_broker.coordinator.consumer_group.heartbeats import Circumstances, Step, advance, replace_member
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    as_assignment,
    flattened,
)
from tidegauge_broker.coordinator.consumer_group.migration import named
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.group.group import CONSUMER_PROTOCOL_TYPE


def join(draft: Draft, request: JoinGroup, member_id: str, met: Circumstances) -> Step:
    """Decide about the JoinGroup of a classic member, and add its records to the draft.

    Args:
        draft: the decision.
        request: the JoinGroup.
        member_id: the request's, or a new one.
        met: what the request meets.

    Raises:
        GroupRefusal: the request is refused.
        AssignmentError: the assignor has found no assignment.
    """
    image = draft.image
    if len(image.members) >= met.max_size and member_id not in image.members:
        raise refusals.full(image.group_id)
    subscription = _subscription(image, request, member_id)
    former = _member(draft, request, member_id)
    member = replace(
        former,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=tuple(copied_set(subscription.topics)),
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )
    topics = met.topics.by_name
    owned = {(topics[topic].topic_id, partition) for topic, partition in subscription.owned if topic in topics}
    return advance(draft, former, member, owned, met)


def _subscription(image: GroupImage, request: JoinGroup, member_id: str) -> Subscription:
    """Return the subscription of a member's first protocol.

    One protocol must be common to all classic members.
    """
    others = [
        {protocol.name for protocol in member.classic.protocols}
        for one, member in image.members.items()
        if member.classic is not None and one != member_id
    ]
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names.intersection(*others):
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedProtocol as problem:
        raise GroupRefusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Malformed embedded consumer protocol in {member_id}: {problem}."
        ) from problem


def _member(draft: Draft, request: JoinGroup, member_id: str) -> ConsumerMember:
    """Return the joining member, which may be new or replace a static one."""
    image, instance_id = draft.image, request.group_instance_id
    if instance_id is None:
        return image.members.get(member_id) or ConsumerMember(member_id)
    current_id = image.static_members.get(instance_id)
    if current_id is None:
        return ConsumerMember(member_id, instance_id)
    if current_id == member_id:
        return image.members[current_id]
    if request.member_id:
        raise refusals.fenced_instance(member_id, instance_id, current_id)
    current = image.members[current_id]
    replace_member(draft, current, replace(current, member_id=member_id, epoch=0, previous_epoch=0))
    return draft.image.members[member_id]


def sync(image: GroupImage, request: SyncGroup, topics: Topics) -> SyncGroupResult:
    """Return a classic member's SyncGroup response, with the partitions it may own."""
    member, error = _classic_member(image, request.member_id, request.group_instance_id)
    if member is None or member.classic is None:
        return SyncGroupResult(error)
    protocol = member.classic.protocols[0]
    if request.generation != member.epoch:
        return SyncGroupResult(ErrorCode.ILLEGAL_GENERATION)
    if (request.protocol_type or CONSUMER_PROTOCOL_TYPE, request.protocol_name or protocol.name) != (
        CONSUMER_PROTOCOL_TYPE,
        protocol.name,
    ):
        return SyncGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < image.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS)
    version = read_subscription(protocol.metadata).version
    assignment = write_assignment(version, named(as_assignment(member.assigned), topics))
    return SyncGroupResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, assignment)


def heartbeat_error(image: GroupImage, request: Heartbeat) -> ErrorCode:
    """Return the error of a classic member's Heartbeat.

    It is REBALANCE_IN_PROGRESS if the member has a step of a rebalance to make.
    """
    member, error = _classic_member(image, request.member_id, request.group_instance_id)
    if member is None:
        return error
    if request.generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    has_step = (
        member.epoch < image.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(image, member))
    )
    return ErrorCode.REBALANCE_IN_PROGRESS if has_step else ErrorCode.NONE


def _waits(image: GroupImage, member: ConsumerMember) -> bool:
    """Return whether others still own a partition of the member's target (waitingOnUnreleasedPartition)."""
    assigned = flattened(member.assigned)
    return any(
        (topic_id, partition) in image.owners
        for topic_id, partitions in image.targets.get(member.member_id, ())
        for partition in partitions
        if (topic_id, partition) not in assigned
    )


def _classic_member(
    image: GroupImage, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember | None, ErrorCode]:
    """Return a member with the classic protocol, or why it is refused."""
    if instance_id is not None:
        current = image.static_members.get(instance_id)
        if current is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return None, ErrorCode.FENCED_INSTANCE_ID
    member = image.members.get(member_id)
    if member is None or member.classic is None:
        return None, ErrorCode.UNKNOWN_MEMBER_ID
    return member, ErrorCode.NONE
