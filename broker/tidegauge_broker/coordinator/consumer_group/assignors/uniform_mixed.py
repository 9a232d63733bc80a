"""The assignor ``uniform``, if members have different subscriptions: greedy, then balanced topic by topic.

A member's load counts the partitions of all its topics, so one topic's partitions may be spread unevenly.
Source: UniformHeterogeneousAssignmentBuilder of org.apache.kafka.coordinator.group.assignor.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap, copied_set, java_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Partitions

MAX_ROUNDS = 16
"""Maximum number of rounds over the topics in which loads are balanced."""
_UNOWNED = -1


def assign_mixed(group: GroupToAssign) -> dict[str, Partitions]:
    """Return every member's partitions."""
    return _Mixed(group).assign()


def _signed(topic_id: bytes) -> tuple[int, int]:
    """Return the key by which Kafka's Uuid compares: two signed 64-bit numbers."""
    return int.from_bytes(topic_id[:8], "big", signed=True), int.from_bytes(topic_id[8:], "big", signed=True)


class _LeastLoaded:
    """Yields the next least loaded member: the members of the lowest load in turn, then of the next load.

    Args:
        members: subscribers of a topic, the least loaded first.
        sizes: loads of all members.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self.level = sizes[members[0]]
        self._end = 0
        self._next = 0
        self._widen()

    def _widen(self) -> None:
        while self._end < len(self._members) and self._sizes[self._members[self._end]] == self.level:
            self._end += 1

    def take(self) -> int:
        """Return the next member, which gets one more partition."""
        if self._next >= self._end:
            self.level += 1
            self._widen()
            self._next = 0
        taken = self._members[self._next]
        self._next += 1
        return taken


class _MostLoaded:
    """Yields the next most loaded member; members that have nothing to give are excluded.

    Args:
        members: subscribers of a topic, the least loaded first; reordered in place when one is excluded.
        sizes: loads of all members.
    """

    def __init__(self, members: list[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self.level = sizes[members[-1]]
        self._begin = len(members)
        self._end = len(members)
        self._next = len(members) - 1
        self._widen()

    def _widen(self) -> None:
        while self._begin > 0 and self._sizes[self._members[self._begin - 1]] == self.level:
            self._begin -= 1

    def peek(self) -> int | None:
        """Return the next member; None if none is left."""
        if self._next < self._begin:
            if self._begin == self._end:
                if self._begin == 0:
                    return None
                self.level = self._sizes[self._members[self._begin - 1]]
            else:
                self.level -= 1
            self._widen()
            self._next = self._end - 1
        return self._members[self._next]

    def exclude(self) -> None:
        """Leave out the member that ``peek`` returned: it has no partition of this topic."""
        self._end -= 1
        members = self._members
        members[self._next], members[self._end] = members[self._end], members[self._next]
        self._next -= 1

    def advance(self) -> None:
        """Move to the next member: the one that ``peek`` returned gives a partition."""
        self._next -= 1


class _Mixed:
    def __init__(self, group: GroupToAssign) -> None:
        self._ids = list(group.members)
        self._group = group
        self._topic_order, self._subscribers = self._topics()
        self._sizes = [0] * len(self._ids)
        self._owners = {topic_id: [_UNOWNED] * group.partition_counts[topic_id] for topic_id in self._topic_order}

    def _topics(self) -> tuple[list[bytes], dict[bytes, list[int]]]:
        """Return the topics by falling partitions per subscriber, and their subscribers."""
        subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(self._group.members.values()):
            for topic_id in member.topics:
                subscribers.setdefault(topic_id, []).append(index)
        counts = self._group.partition_counts
        order = sorted(
            java_set(subscribers),
            key=lambda one: (-counts[one] / len(subscribers[one]), len(subscribers[one]), _signed(one)),
        )
        return order, subscribers

    def assign(self) -> dict[str, Partitions]:
        self._keep()
        for topic_id in self._topic_order:
            self._assign_unowned(topic_id)
        self._balance()
        return self._result()

    def _keep(self) -> None:
        for index, member in enumerate(self._group.members.values()):
            subscribed = set(member.topics)
            for topic_id, partitions in member.target:
                if topic_id not in subscribed:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners):
                        owners[partition] = index
                        self._sizes[index] += 1

    def _by_load(self, topic_id: bytes) -> list[int]:
        return sorted(self._subscribers[topic_id], key=lambda index: (self._sizes[index], index))

    def _assign_unowned(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        unowned = [partition for partition, owner in enumerate(owners) if owner == _UNOWNED]
        if not unowned:
            return
        # Kafka sorts the subscribers once per topic; loads are read while the window grows.
        least = _LeastLoaded(self._by_load(topic_id), list(self._sizes))
        for partition in unowned:
            owners[partition] = taker = least.take()
            self._sizes[taker] += 1

    def _balance(self) -> None:
        """Move partitions from the most to the least loaded subscribers, topic by topic, until nothing moves."""
        topics = [topic_id for topic_id in self._topic_order if len(self._subscribers[topic_id]) > 1]
        last_moved: int | None = None
        for _ in range(MAX_ROUNDS):
            for index, topic_id in enumerate(topics):
                if last_moved == index:
                    if not self._balance_topic(topic_id):
                        return
                elif self._balance_topic(topic_id) or last_moved is None:
                    last_moved = index

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Return whether a partition of the topic has moved."""
        members = self._by_load(topic_id)
        if self._sizes[members[-1]] - self._sizes[members[0]] <= 1:
            return False
        owners = self._owners[topic_id]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)
        sizes = list(self._sizes)
        least, most = _LeastLoaded(list(members), sizes), _MostLoaded(list(members), sizes)
        moved = False
        while most.level - least.level > 1:
            giver = most.peek()
            while giver is not None and not held.get(giver):
                most.exclude()
                giver = most.peek()
            if giver is None:
                break
            most.advance()
            taker = least.take()
            if most.level - least.level <= 1:
                break
            partition = held[giver].pop()
            owners[partition] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            moved = True
        return moved

    def _result(self) -> dict[str, Partitions]:
        assigned: list[dict[bytes, list[int]]] = [{} for _ in self._ids]
        for topic_id in self._topic_order:
            for partition, owner in enumerate(self._owners[topic_id]):
                assigned[owner].setdefault(topic_id, []).append(partition)
        return {
            member_id: self._ordered(member.target, assigned[index])
            for index, (member_id, member) in enumerate(self._group.members.items())
        }

    @staticmethod
    def _ordered(target: Partitions, assigned: dict[bytes, list[int]]) -> Partitions:
        """Return a member's partitions in Java's map order: kept ones, then new."""
        kept: JavaMap[bytes, JavaMap[int, None]] = JavaMap(len(target))
        for topic_id, partitions in target:
            still = [partition for partition in partitions if partition in assigned.get(topic_id, ())]
            if still:
                kept.put(topic_id, copied_set(still))
        for topic_id, numbers in assigned.items():
            numbers_now = kept.compute_if_absent(topic_id, no_partitions)
            for partition in numbers:
                numbers_now.put(partition, None)
        return tuple((topic_id, tuple(numbers_now)) for topic_id, numbers_now in kept.items())


def no_partitions() -> JavaMap[int, None]:
    """Return an empty set of partitions."""
    return JavaMap()
