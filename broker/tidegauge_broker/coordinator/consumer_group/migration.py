"""Online migration: a classic group becomes a consumer group and back, with members of both protocols in between.

Source: GroupMetadataManager (validateOnlineUpgrade, convertToConsumerGroup, validateOnlineDowngradeWithFencedMembers,
convertToClassicGroup), ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import copied_set, java_set
from tidegauge_broker.coordinator.consumer_group.classic_protocol import (
    MalformedProtocol,
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.member import (
    ClassicMetadata,
    ConsumerMember,
    Epochs,
    as_assignment,
    with_epochs,
)
from tidegauge_broker.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
    subscription_record,
    target_epoch_record,
    target_record,
)
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, Group
from tidegauge_broker.coordinator.group.member import Member

UPGRADES, DOWNGRADES = frozenset({"upgrade", "bidirectional"}), frozenset({"downgrade", "bidirectional"})
"""The values of group.consumer.migration.policy that allow each direction."""


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """A broker's settings for migrations.

    Attributes:
        policy: group.consumer.migration.policy.
        max_consumers: group.consumer.max.size.
        max_classic: group.max.size.
    """

    policy: str
    max_consumers: int
    max_classic: int


def upgrade(draft: Draft, group: Group, topics: Topics, limits: MigrationLimits) -> None:
    """Add the records that make a consumer group of a classic one with members: epochs are its generation.

    Raises:
        GroupRefusal: GROUP_ID_NOT_FOUND, the group cannot be upgraded.
    """
    _check_upgrade(group, limits)
    try:
        members = [_upgraded(member, group, topics) for member in group.members.values()]
    except MalformedProtocol as problem:
        raise _refusal(group.group_id, "the embedded consumer protocol is malformed.") from problem
    group_id, generation = group.group_id, group.generation
    draft.add(*(subscription_record(group_id, member) for member in members))
    metadata_hash = topics.hash_of(draft.image.subscribed_topics())
    draft.add(epoch_record(group_id, generation, metadata_hash))
    draft.add(*(target_record(group_id, member.member_id, as_assignment(member.assigned)) for member in members))
    draft.add(target_epoch_record(group_id, generation, 0))
    draft.add(*(current_record(group_id, member) for member in members))


def _check_upgrade(group: Group, limits: MigrationLimits) -> None:
    if limits.policy not in UPGRADES:
        raise _refusal(group.group_id, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group.group_id, "the group does not use the consumer embedded protocol.")
    if len(group.members) > limits.max_consumers:
        raise _refusal(group.group_id, "the group size exceeds the consumer group maximum size.")


def _refusal(group_id: str, why: str) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}"
    )


def _upgraded(member: Member, group: Group, topics: Topics) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol_name or member.protocols[0].name))
    assigned = read_assignment(member.assignment)
    if assigned.user_data:
        raise _refusal(
            group.group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(copied_set(subscription.topics)),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=_known(assigned.partitions, group.generation, topics),
    )


def _known(partitions: Iterable[tuple[str, int]], epoch: int, topics: Topics) -> Epochs:
    """Return partitions by topic id, without topics that do not exist."""
    return with_epochs(
        ((topics.by_name[topic].topic_id, partition), epoch)
        for topic, partition in partitions
        if topic in topics.by_name
    )


# Downgrade


def may_downgrade(image: GroupImage, leaving: Sequence[str], limits: MigrationLimits) -> bool:
    """Whether a group becomes a classic one when these members leave: only classic members remain."""
    left = [member for member_id, member in image.members.items() if member_id not in leaving]
    return (
        bool(left)
        and all(member.classic is not None for member in left)
        and limits.policy in DOWNGRADES
        and len(left) <= limits.max_classic
    )


def downgrade_tombstones(image: GroupImage) -> list[ConsumerGroupRecord]:
    """Return a downgraded group's tombstones, in Kafka's order."""
    group_id = image.group_id
    by_member = [member_tombstones(group_id, member_id) for member_id in image.members]
    target_epoch, *rest = group_tombstones(group_id)
    return [
        *(current for current, _, _ in by_member),
        *(target for _, target, _ in by_member),
        target_epoch,
        *(subscription for _, _, subscription in by_member),
        *(regex_tombstone(group_id, regex) for regex in image.regexes),
        *rest,
    ]


def downgraded(image: GroupImage, leaving: Sequence[str], partition: int, topics: Topics, now_ms: int) -> Group:
    """Return the classic group of the remaining members.

        Its generation is the consumer group's epoch.

    Args:
        image: the consumer group.
        leaving: members that leave.
        partition: of __consumer_offsets.
        topics: those that exist.
        now_ms: the wall-clock time.

    Raises:
        MalformedProtocol: the subscription of a member cannot be read.
    """
    group = Group(image.group_id, partition, now_ms)
    group.generation = image.epoch
    for member_id, member in image.members.items():
        if member_id in leaving:
            continue
        assert member.classic is not None, "may_downgrade has seen it"
        version = read_subscription(member.classic.protocols[0].metadata).version
        group.add(
            Member(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                member.classic.protocols,
                write_assignment(version, named(image.targets.get(member_id, ()), topics)),
            )
        )
    return group


def named(assignment: Iterable[tuple[bytes, Sequence[int]]], topics: Topics) -> list[tuple[str, Sequence[int]]]:
    """Return partitions by topic name, in Java's order, without unknown topics."""
    by_id = dict(assignment)
    return [(topics.by_id[topic_id].name, by_id[topic_id]) for topic_id in java_set(by_id) if topic_id in topics.by_id]
