"""The view of a consumer group (KIP-848): ConsumerGroupDescribe, and the waits between its members for ``explain``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.member import (
    ConsumerMember,
    MemberState,
    TopicPartitionId,
    partitions_of,
)
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.timers import Timer
from tidegauge_broker.coordinator.views import CommittedOffsetView, ConsumerGroupView, ConsumerMemberView


def viewed_consumer_group(group: ConsumerGroup, topics: Topics, default_assignor: str) -> ConsumerGroupView:
    """Return the full truth about a consumer group, as it is committed.

    Args:
        group: which is served.
        topics: those that exist; partitions of others have no name, and are left out.
        default_assignor: of a group whose members ask for none.
    """
    image = group.image
    holders = {
        one: member.member_id
        for member in image.members.values()
        for one in partitions_of(member.assigned) | partitions_of(member.pending_revocation)
    }
    return ConsumerGroupView(
        group_id=group.group_id,
        partition=group.partition,
        state=group.state,
        state_since_ms=-1 if group.state_since_ms is None else group.state_since_ms,
        epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor=image.preferred_assignor(default_assignor),
        members=tuple(_viewed_member(group, member, holders, topics) for member in image.members.values()),
        offsets={
            at: CommittedOffsetView(one.offset, one.leader_epoch, one.metadata, one.commit_timestamp_ms)
            for at, (_, one) in group.offsets.materialised.items()
        },
    )


def _viewed_member(
    group: ConsumerGroup, member: ConsumerMember, holders: Mapping[TopicPartitionId, str], topics: Topics
) -> ConsumerMemberView:
    member_id = member.member_id
    target = {
        (topic_id, partition)
        for topic_id, partitions in group.image.targets.get(member_id, ())
        for partition in partitions
    }
    awaited = [one for one in target if holders.get(one, member_id) != member_id]
    names = {one: at for one in awaited for at in _named([one], topics)}
    return ConsumerMemberView(
        member_id=member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=member.epoch,
        state=member.state.name,
        is_classic=member.classic is not None,
        assigned=_named(partitions_of(member.assigned), topics),
        revoking=_named(partitions_of(member.pending_revocation), topics),
        awaited=tuple(sorted((at, holders[one]) for one, at in names.items())),
        target=_named(target, topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_deadline_ms=_deadline_ms(group.sessions.get(member_id)),
        revocation_deadline_ms=_deadline_ms(group.rebalances.get(member_id))
        if member.state is MemberState.UNREVOKED_PARTITIONS
        else None,
    )


def _named(partitions: Iterable[TopicPartitionId], topics: Topics) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topics.by_id[topic_id].name, partition)
            for topic_id, partition in partitions
            if topic_id in topics.by_id
        )
    )


def _deadline_ms(timer: Timer | None) -> int | None:
    return timer.deadline_ms if timer is not None and timer.action is not None else None
