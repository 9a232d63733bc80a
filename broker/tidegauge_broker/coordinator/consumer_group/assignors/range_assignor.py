"""The assignor ``range``: for each topic, ranges of its partitions to its subscribers, in the order of the members.

The former target is ignored. Topics with as many partitions and the same subscribers are co-partitioned.
Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Partitions


class _Topic:
    """The distribution of a topic's partitions.

    Attributes:
        quota: of every subscriber.
        extra: how many subscribers get one more, the first ones.
        next: the partition with which the next range begins.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.subscribers = 0
        self.quota = 0
        self.extra = 0
        self.next = 0

    def settle(self) -> None:
        """Compute the quotas when all subscribers are counted."""
        self.quota, self.extra = divmod(self.partitions, self.subscribers)

    def take(self) -> tuple[int, ...]:
        """Return the next subscriber's range."""
        quota = self.quota
        if self.extra > 0:
            self.extra -= 1
            quota += 1
        begin, self.next = self.next, min(self.next + quota, self.partitions)
        return tuple(range(begin, self.next))


def assign(group: GroupToAssign) -> dict[str, Partitions]:
    """Return members' partitions: static members first, by instance id, others by id."""
    members = group.members
    order = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or one))
    topics: dict[bytes, _Topic] = {}
    for member in members.values():
        for topic_id in member.topics:
            topics.setdefault(topic_id, _Topic(group.partition_counts[topic_id])).subscribers += 1
    for topic in topics.values():
        topic.settle()
    assigned: dict[str, Partitions] = {}
    for member_id in order:
        taken: JavaMap[bytes, tuple[int, ...]] = JavaMap()
        for topic_id in members[member_id].topics:
            partitions = topics[topic_id].take()
            if partitions:
                taken.put(topic_id, partitions)
        assigned[member_id] = tuple(taken.items())
    return assigned
