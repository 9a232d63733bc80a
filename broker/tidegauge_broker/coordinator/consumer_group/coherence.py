"""Whether the records of a consumer group, each well formed, make sense together.

A client may write to ``__consumer_offsets``, and compaction may leave parts of a group; a group that contradicts itself
would fail, or never come to rest, at a later heartbeat. It is refused when it is loaded, alone.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.consumer_groups import STATIC_LEAVING_EPOCH
from tidegauge_broker.coordinator.consumer_group.image import FIRST_EPOCH, GroupImage
from tidegauge_broker.coordinator.consumer_group.member import TopicPartitionId, partitions_of
from tidegauge_broker.coordinator.typed_records import MAX_EPOCH


def exists(image: GroupImage) -> bool:
    """Whether the group has records; after its tombstones it has none."""
    return image != GroupImage(image.group_id)


def incoherence(image: GroupImage) -> str | None:
    """Return why a group's records are incoherent, as a clause, or None.

    No coordinator can have written such records.
    """
    if not FIRST_EPOCH <= image.epoch <= MAX_EPOCH:
        return f"its epoch is {image.epoch}"
    if not 0 <= image.assignment_epoch <= image.epoch:
        return f"its assignment epoch is {image.assignment_epoch}, and its epoch {image.epoch}"
    for member in image.members.values():
        if not member.member_id:
            return "a member has an empty id"
        if not (0 <= member.epoch <= image.epoch or member.epoch == STATIC_LEAVING_EPOCH):
            return f"member '{member.member_id}' has epoch {member.epoch}, and the group {image.epoch}"
        if member.epoch == STATIC_LEAVING_EPOCH and member.instance_id is None:
            return f"member '{member.member_id}' has left for a while, and is not static"
        if member.classic is not None and not member.classic.protocols:
            return f"member '{member.member_id}' uses the classic protocol, and has no assignor"
    instances = Counter(one.instance_id for one in image.members.values() if one.instance_id is not None)
    for instance_id, members in instances.items():
        if members > 1:
            return f"two members have the group instance id '{instance_id}'"
    return _twice_owned(image)


def _twice_owned(image: GroupImage) -> str | None:
    owners: dict[TopicPartitionId, str] = {}
    for member in image.members.values():
        for one in partitions_of(member.assigned) | partitions_of(member.pending_revocation):
            other = owners.setdefault(one, member.member_id)
            if other != member.member_id:
                return f"members '{other}' and '{member.member_id}' own the same partition"
    return None


def settle(image: GroupImage) -> None:
    """Derive what follows from the members again, and forget targets of members that are not there.

    Records may have been read in an order in which no coordinator has written them, after compaction.
    """
    image.targets = {member_id: target for member_id, target in image.targets.items() if member_id in image.members}
    image.owners = {
        one: member.epoch
        for member in image.members.values()
        for one in partitions_of(member.assigned) | partitions_of(member.pending_revocation)
    }
    image.look_at_members()
