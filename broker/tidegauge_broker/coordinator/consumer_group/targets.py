"""The target assignment of a group: what each member shall own, computed by a server-side assignor.

Source: org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder; GroupMetadataManager.updateTargetAssignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_broker.coordinator.consumer_group.assignors import range_assignor, uniform
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import (
    Assignor,
    GroupToAssign,
    Member,
    Partitions,
)
from tidegauge_broker.coordinator.consumer_group.assignors.timeline_map import members_to_assign
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember
from tidegauge_broker.coordinator.consumer_group.records import target_epoch_record, target_record
from tidegauge_broker.coordinator.consumer_group.topics import Topics

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign, "range": range_assignor.assign}
"""The assignors by the names that clients and settings use."""


def may_compute(last_ms: int, now_ms: int, interval_ms: int) -> bool:
    """Whether a target may be computed now: not again within the assignment interval.

    Args:
        last_ms: the wall-clock time of the last one; 0: not known.
        now_ms: the wall-clock time.
        interval_ms: group.consumer.assignment.interval.ms, or group.share.assignment.interval.ms.
    """
    return last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms


def add_target(draft: Draft, member_id: str, topics: Topics, assignors: Sequence[str], now_ms: int) -> None:
    """Compute the target for the group's epoch and add its records: each member's whose target changes, and the epoch.

    Args:
        draft: the decision; its image has the group's new epoch and members.
        member_id: of the member that the decision is about.
        topics: those that exist.
        assignors: names of the assignors that the broker offers; the first is the default.
        now_ms: the wall-clock time.

    Raises:
        AssignmentError: the assignor has found no assignment.
    """
    image = draft.image
    group_id = image.group_id
    members = {
        one: _spec(image, image.members[one], topics) for one in members_to_assign(draft.before.members, image.members)
    }
    counts = {topic_id: topics.by_id[topic_id].partitions for member in members.values() for topic_id in member.topics}
    assign = ASSIGNORS[_preferred_assignor(draft, member_id) or assignors[0]]
    assigned = assign(GroupToAssign(members, counts, image.is_homogeneous))
    for one in members:
        target = assigned.get(one, ())
        former = image.targets.get(one)
        if former is None or as_sets(former) != as_sets(target):
            draft.add(target_record(group_id, one, target))
    draft.add(target_epoch_record(group_id, draft.image.epoch, now_ms))


def _preferred_assignor(draft: Draft, member_id: str) -> str | None:
    """Return the assignor that most members ask for, in a heartbeat."""
    before, now = draft.before.members, draft.image.members
    former = before.get(member_id) or next((before[one] for one in before.keys() - now.keys()), None)
    asked = now[member_id].server_assignor
    return draft.before.votes.preferred_after(None if former is None else former.server_assignor, asked)


def topic_ids_of(image: GroupImage, member: ConsumerMember, topics: Topics) -> tuple[bytes, ...]:
    """Return the ids of a member's topics, without topics that do not exist."""
    names = image.topics_of(member)
    return tuple(topics.by_name[name].topic_id for name in names if name in topics.by_name)


def with_java_order(target: Partitions) -> Partitions:
    """Return a target as an assignor is given it."""
    return tuple((topic_id, tuple(java_set(partitions))) for topic_id, partitions in _in_java_order(target))


def _spec(image: GroupImage, member: ConsumerMember, topics: Topics) -> Member:
    target = with_java_order(image.targets.get(member.member_id, ()))
    return Member(topic_ids_of(image, member, topics), target, member.instance_id)


def _in_java_order(target: Partitions) -> Partitions:
    by_id = dict(target)
    return tuple((topic_id, by_id[topic_id]) for topic_id in java_set(by_id))


def as_sets(target: Partitions) -> dict[bytes, frozenset[int]]:
    """Return a target without its order, to be compared."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in target}
