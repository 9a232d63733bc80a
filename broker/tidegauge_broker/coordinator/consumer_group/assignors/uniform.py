"""The assignor ``uniform``, if all members have the same subscription: as many partitions to each as can be.

Quotas count the partitions of all topics together. Members keep what they have up to their quota; of the members that
have one more than the others those come first that hold it already.
Source: UniformHomogeneousAssignmentBuilder of org.apache.kafka.coordinator.group.assignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap, copied_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import (
    AssignmentError,
    GroupToAssign,
    Member,
    Partitions,
)
from tidegauge_broker.coordinator.consumer_group.assignors.uniform_mixed import assign_mixed, no_partitions

_TopicPartition = tuple[bytes, int]
_Kept = JavaMap[bytes, JavaMap[int, None]]


def assign(group: GroupToAssign) -> dict[str, Partitions]:
    """Return every member's partitions."""
    if not group.members:
        return {}
    return _Uniform(group).assign() if group.is_homogeneous else assign_mixed(group)


class _Uniform:
    def __init__(self, group: GroupToAssign) -> None:
        self._members: Mapping[str, Member] = group.members
        first = next(iter(group.members.values()))
        self._topics = list(copied_set(first.topics))
        self._total = sum(group.partition_counts[topic_id] for topic_id in self._topics)
        owned = {
            (topic_id, partition)
            for member in group.members.values()
            for topic_id, partitions in member.target
            for partition in partitions
        }
        self._unassigned: list[_TopicPartition] = [
            (topic_id, partition)
            for topic_id in self._topics
            for partition in range(group.partition_counts[topic_id])
            if (topic_id, partition) not in owned
        ]
        self._kept: dict[str, _Kept] = {}
        self._unfilled: list[tuple[str, int]] = []

    def assign(self) -> dict[str, Partitions]:
        if not self._topics:
            return dict.fromkeys(self._members, ())
        self._keep()
        self._fill()
        return {
            member_id: tuple((topic_id, tuple(partitions)) for topic_id, partitions in kept.items())
            for member_id, kept in self._kept.items()
        }

    def _keep(self) -> None:
        """Let members keep partitions up to their quotas, and note which have room."""
        quota, extra = divmod(self._total, len(self._members))
        for index, (member_id, member) in enumerate(self._members.items()):
            has_extra = extra > 0
            left = self._keep_of(member_id, member, quota + has_extra)
            if left > 0 and has_extra and len(self._members) - index > extra:
                # Members that come later may hold one more already.
                left -= 1
                has_extra = False
            if left > 0:
                self._unfilled.append((member_id, left))
            extra -= has_extra

    def _keep_of(self, member_id: str, member: Member, quota: int) -> int:
        """Let a member keep up to ``quota`` of its target; return the rest of the quota."""
        subscribed = [(topic_id, partitions) for topic_id, partitions in member.target if topic_id in self._topics]
        kept: _Kept = JavaMap(len(member.target))
        for topic_id, partitions in subscribed:
            held = partitions[:quota]
            self._unassigned += [(topic_id, partition) for partition in partitions[quota:]]
            quota -= len(held)
            if held:
                kept.put(topic_id, copied_set(held))
        self._kept[member_id] = kept
        return quota

    def _fill(self) -> None:
        """Give the unassigned partitions to the members that have room."""
        position = 0
        for member_id, quota in self._unfilled:
            taken = self._unassigned[position : position + quota]
            position += len(taken)
            for topic_id, partition in taken:
                self._kept[member_id].compute_if_absent(topic_id, no_partitions).put(partition, None)
        if position < len(self._unassigned):
            raise AssignmentError("Partitions are left that no member has room for")
