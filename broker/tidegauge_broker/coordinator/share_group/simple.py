"""The assignor ``simple`` of share groups: each partition to as many members as the group needs for all to have one.

Members keep what they have as far as it fits. With more members than partitions, partitions are shared; with fewer,
each has one member. If members have different subscriptions, each topic is assigned by itself among its subscribers.
Source: SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder of Kafka's group coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, TypeVar

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap, copied_set, java_set, sized
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Partitions

Target = TypeVar("Target", int, tuple[bytes, int])
"""A partition: by its number within one topic, or with its topic."""
_Held = JavaMap[bytes, JavaMap[int, None]]


def assign(group: GroupToAssign) -> dict[str, Partitions]:
    """Return every member's partitions."""
    if not group.members:
        return {}
    builder = _Builder(group)
    if group.is_homogeneous:
        builder.assign_together()
    else:
        builder.assign_topic_by_topic()
    return builder.result()


class _Builder:
    """The members' partitions, before and after.

    Attributes:
        former: by member index.
        now: of the members whose partitions have changed.
    """

    def __init__(self, group: GroupToAssign) -> None:
        self._group = group
        self._ids = list(group.members)
        self.former: list[_Held] = []
        for member in group.members.values():
            held: _Held = JavaMap(len(member.target))
            for topic_id, partitions in member.target:
                held.put(topic_id, java_set(partitions))
            self.former.append(held)
        self.now: dict[int, _Held] = {}

    def targets(self, topic_id: bytes) -> list[int]:
        """Return the partitions of a topic that may be assigned, in ascending order."""
        assignable = self._group.assignable
        allowed = None if assignable is None else assignable.get(topic_id, frozenset[int]())
        return [one for one in range(self._group.partition_counts[topic_id]) if allowed is None or one in allowed]

    def changed(self, member: int) -> _Held:
        """Return what a member holds now, to be changed (AssignorHelpers.deepCopyAssignment)."""
        if member not in self.now:
            former = self.former[member]
            copy: _Held = JavaMap(len(former))
            for topic_id, partitions in former.items():
                copy.put(topic_id, copied_set(partitions))
            self.now[member] = copy
        return self.now[member]

    def add(self, member: int, topic_id: bytes, partition: int) -> None:
        """Give a member a partition."""
        self.changed(member).compute_if_absent(topic_id, JavaMap).put(partition, None)

    def remove(self, member: int, topic_id: bytes, partition: int) -> None:
        """Take a partition from a member."""
        held = self.changed(member)
        if topic_id in held:
            held[topic_id].remove(partition)

    def assign_together(self) -> None:
        """Assign the partitions of all topics, to which all members are subscribed."""
        first = next(iter(self._group.members.values()))
        topics = copied_set(first.topics)
        targets = [(topic_id, partition) for topic_id in topics for partition in self.targets(topic_id)]
        if not len(topics):
            return
        sharing: _Sharing[tuple[bytes, int]] = _Sharing(targets, list(range(len(self._ids))))
        for member, held in enumerate(self.former):
            for topic_id, partitions in held.items():
                if topic_id not in topics:
                    self.changed(member).remove(topic_id)
                    continue
                for partition in partitions:
                    sharing.keep(member, (topic_id, partition))
                    if len(sharing.held[member]) >= sharing.wanted[member]:
                        self.changed(member)
        for member, (topic_id, partition) in sharing.revoke():
            self.remove(member, topic_id, partition)
        for member, (topic_id, partition) in sharing.fill():
            self.add(member, topic_id, partition)

    def assign_topic_by_topic(self) -> None:
        """Assign each topic's partitions among its subscribers."""
        members = list(self._group.members.values())
        for topic_id in java_set(topic_id for member in members for topic_id in java_set(member.topics)):
            subscribers = [index for index, member in enumerate(members) if topic_id in member.topics]
            sharing: _Sharing[int] = _Sharing(self.targets(topic_id), subscribers)
            for member, held in enumerate(self.former):
                if topic_id in held:
                    for partition in held[topic_id]:
                        sharing.keep(member, partition)
            for member, partition in sharing.revoke():
                self.remove(member, topic_id, partition)
            for member, partition in sharing.fill():
                self.add(member, topic_id, partition)

    def result(self) -> dict[str, Partitions]:
        """Return every member's partitions, in the order in which Kafka's maps have them."""
        return {
            member_id: tuple(
                (topic_id, tuple(partitions))
                for topic_id, partitions in self.now.get(index, self.former[index]).items()
            )
            for index, member_id in enumerate(self._ids)
        }


class _Sharing(Generic[Target]):
    """Shares partitions among members.

    Args:
        targets: the partitions, in the order in which they are given out.
        members: indices of the members, in ascending order.

    Attributes:
        held: what each member has.
        wanted: how many partitions each member shall have.
    """

    def __init__(self, targets: Sequence[Target], members: Sequence[int]) -> None:
        self._targets: Sequence[Target] = targets
        self._members = members
        self._sharing = -(-len(members) // len(targets)) if targets else 0
        """The maximum number of members of a partition."""
        exact = self._sharing * len(targets) / len(members)
        self.wanted = {
            member: math.ceil(exact * (position + 1)) - math.ceil(exact * position)
            for position, member in enumerate(members)
        }
        self.held: dict[int, JavaMap[Target, None]] = {member: JavaMap() for member in members}
        self._members_of: JavaMap[Target, JavaMap[int, None]] = JavaMap(sized(len(targets)))

    def keep(self, member: int, target: Target) -> None:
        """Let a member keep a partition for now."""
        if member not in self.held:
            self.held[member], self.wanted[member] = JavaMap(), 0
        self.held[member].put(target, None)
        self._members_of.compute_if_absent(target, JavaMap).put(member, None)

    def revoke(self) -> list[tuple[int, Target]]:
        """Take partitions from members that have too many, and from partitions that have too many members."""
        revoked: list[tuple[int, Target]] = []
        for member in sorted(self.held):
            surplus = len(self.held[member]) - self.wanted[member]
            revoked += [(member, target) for target in list(self.held[member])[: max(surplus, 0)]]
        for member, target in revoked:
            self._take(member, target)
        for target, members in list(self._members_of.items()):
            surplus = len(members) - self._sharing
            overshared = [(member, target) for member in list(members)[: max(surplus, 0)]]
            for member, _ in overshared:
                self._take(member, target)
            revoked += overshared
        return revoked

    def _take(self, member: int, target: Target) -> None:
        self.held[member].remove(target)
        self._members_of[target].remove(member)

    def fill(self) -> list[tuple[int, Target]]:
        """Give partitions to members that have too few, in one walk around them."""
        for target in self._targets:
            self._members_of.compute_if_absent(target, JavaMap)
        unfilled = [member for member in self._members if len(self.held[member]) < self.wanted[member]]
        given: list[tuple[int, Target]] = []
        position, has_given = 0, False
        for target, members in self._members_of.items():
            missing = self._sharing - len(members)
            while unfilled and missing > 0:
                if position >= len(unfilled):
                    if not has_given:
                        break
                    position, has_given = 0, False
                member = unfilled[position]
                position += 1
                if member in members:
                    continue
                given.append((member, target))
                self.held[member].put(target, None)
                missing -= 1
                has_given = True
                if len(self.held[member]) >= self.wanted[member]:
                    position -= 1
                    del unfilled[position]
            if not unfilled:
                break
        return given
