"""ShareGroupDescribe: share groups as clients see them, in their committed state."""

from __future__ import annotations

from tidegauge.consumer_groups import NamedPartitions
from tidegauge.errors import ErrorCode
from tidegauge.share_groups import DescribedShareMember, DescribeShareGroupResult
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.share_group.group import ShareGroup

ASSIGNOR = "simple"


def described_share_group(
    group_id: str, group: ShareGroup | None, topics: Topics, *, is_of_another_type: bool
) -> DescribeShareGroupResult:
    """Return a group as ShareGroupDescribe shows it.

    Args:
        group_id: its name.
        group: None: there is no share group of that name.
        topics: those that exist; partitions of others are left out.
        is_of_another_type: whether there is a group of that name that is no share group.
    """
    if group is None:
        message = f"Group {group_id} is not a share group." if is_of_another_type else f"Group {group_id} not found."
        return DescribeShareGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    image = group.image
    return DescribeShareGroupResult(
        group_id,
        state=group.state.value,
        group_epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor=ASSIGNOR,
        members=tuple(
            DescribedShareMember(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                tuple(sorted(member.topic_names)),
                _named(member.assigned, topics),
            )
            for member in image.members.values()
        ),
    )


def _named(assigned: Partitions, topics: Topics) -> tuple[NamedPartitions, ...]:
    by_id = dict(assigned)
    return tuple(
        NamedPartitions(topic_id, topics.by_id[topic_id].name, by_id[topic_id])
        for topic_id in java_set(by_id)
        if topic_id in topics.by_id
    )
