"""ConsumerGroupDescribe: consumer groups as clients see them, in their committed state."""

from __future__ import annotations

from tidegauge.consumer_groups import (
    Assignment,
    DescribeConsumerGroupResult,
    DescribedConsumer,
    NamedPartitions,
)
from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.member import (
    ConsumerMember,
    as_assignment,
    flattened,
    with_epochs,
)
from tidegauge_broker.coordinator.consumer_group.topics import Topics


def described_consumer_group(
    group_id: str, group: ConsumerGroup | None, topics: Topics, default_assignor: str, *, is_of_another_type: bool
) -> DescribeConsumerGroupResult:
    """Return a group as ConsumerGroupDescribe shows it.

    Args:
        group_id: its name.
        group: None: there is no consumer group of that name.
        topics: those that exist; partitions of others are left out.
        default_assignor: of a group whose members ask for none.
        is_of_another_type: whether there is a group of that name that is no consumer group.
    """
    if group is None:
        message = f"Group {group_id} is not a consumer group." if is_of_another_type else f"Group {group_id} not found."
        return DescribeConsumerGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    image = group.image
    return DescribeConsumerGroupResult(
        group_id,
        state=group.state.value,
        group_epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor=image.preferred_assignor(default_assignor),
        members=tuple(
            DescribedConsumer(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=tuple(sorted(member.topic_names)),
                topic_regex=member.topic_regex,
                assignment=_named(_owned(member), topics),
                target=_named(image.targets.get(member.member_id, ()), topics),
                is_classic=member.classic is not None,
            )
            for member in image.members.values()
        ),
    )


def _owned(member: ConsumerMember) -> Assignment:
    """Return a member's partitions, including those it must still revoke."""
    return as_assignment(with_epochs((flattened(member.assigned) | flattened(member.pending_revocation)).items()))


def _named(assignment: Assignment, topics: Topics) -> tuple[NamedPartitions, ...]:
    by_id = dict(assignment)
    return tuple(
        NamedPartitions(topic_id, topics.by_id[topic_id].name, by_id[topic_id])
        for topic_id in java_set(by_id)
        if topic_id in topics.by_id
    )
