"""A member's end in its group: it leaves, leaves for a while, or is fenced by a timer.

Source: GroupMetadataManager (consumerGroupLeave, consumerGroupFenceMembers).
"""

from __future__ import annotations

from dataclasses import replace

from tidegauge.consumer_groups import STATIC_LEAVING_EPOCH, ConsumerGroupHeartbeat
from tidegauge_broker.coordinator.consumer_group import refusals
from tidegauge_broker.coordinator.consumer_group.image import Draft
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember, Epochs
from tidegauge_broker.coordinator.consumer_group.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from tidegauge_broker.coordinator.consumer_group.topics import Topics


def leave_for_a_while(draft: Draft, member: ConsumerMember) -> None:
    """Add the record of a static member's leave for a while: its partitions stay reserved (epoch -2)."""
    away = replace(
        member,
        epoch=STATIC_LEAVING_EPOCH,
        assigned=_at_epoch_0(member.assigned),
        pending_revocation={},
    )
    draft.add(current_record(draft.image.group_id, away))


def leaving_member(draft: Draft, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """Return the member that leaves.

    Raises:
        GroupRefusal: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    image = draft.image
    if request.instance_id is not None:
        current = image.static_members.get(request.instance_id)
        if current is None:
            raise refusals.unknown_instance(image.group_id, request.instance_id)
        if current != request.member_id:
            raise refusals.fenced_instance(request.member_id, request.instance_id, current)
    member = image.members.get(request.member_id)
    if member is None:
        raise refusals.unknown_member(image.group_id, request.member_id)
    return member


def fence(draft: Draft, member_ids: list[str], topics: Topics) -> None:
    """Remove members: others get their partitions, from the group's next target on."""
    image = draft.image
    group_id = image.group_id
    dropped = sorted(
        regex
        for regex in image.regexes
        if all(one.member_id in member_ids for one in image.members.values() if one.topic_regex == regex)
    )
    metadata_hash = topics.hash_of(image.subscribed_topics(member_ids, dropped))
    epoch = image.epoch + 1
    for member_id in member_ids:
        draft.add(*member_tombstones(group_id, member_id))
    draft.add(*(regex_tombstone(group_id, regex) for regex in dropped))
    draft.add(epoch_record(group_id, epoch, metadata_hash))


def _at_epoch_0(assigned: Epochs) -> Epochs:
    """Return partitions at epoch 0: commits of the member's replacement are accepted."""
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in assigned.items()}
