"""Which member of a group reads which partition: Kafka's range, roundrobin and cooperative-sticky assignors. Pure.

The first two compute the same assignment as Kafka's consumer and librdkafka from the same subscriptions, whoever leads
the group; the third one keeps Kafka's rules (``sticky``). Racks are not taken into account: this client has none
(``client.rack``, KIP-881). Source: RangeAssignor, RoundRobinAssignor, CooperativeStickyAssignor,
AbstractPartitionAssignor.MemberInfo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.group.consumer_protocol import MemberSubscription
from tidegauge_client.group.sticky import assign_sticky

Subscriptions = Mapping[str, MemberSubscription]
Assignments = dict[str, list[TopicPartition]]
COOPERATIVE_STICKY = "cooperative-sticky"


def assign(protocol: str, partitions: Mapping[str, int], members: Subscriptions) -> Assignments:
    """Return the partitions of each member.

    Args:
        protocol: name of the assignor that the coordinator chose.
        partitions: number of partitions of each topic; topics that do not exist are missing.
        members: subscriptions by member id.

    Raises:
        TidegaugeError: INCONSISTENT_GROUP_PROTOCOL, this client does not have the assignor.
    """
    if protocol not in _ASSIGNORS:
        raise TidegaugeError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The coordinator chose the assignor {protocol!r}; this client has {', '.join(ASSIGNORS)}",
        )
    return _ASSIGNORS[protocol](partitions, members)


def _range(partitions: Mapping[str, int], members: Subscriptions) -> Assignments:
    """Give each member a contiguous range of each topic; the first ones get one more if it does not divide evenly."""
    assignments: Assignments = {member: [] for member in members}
    for topic in sorted(partitions, key=_java_order):
        readers = [member for member in _in_order(members) if topic in members[member].topics]
        if not readers:
            continue
        each, extra = divmod(partitions[topic], len(readers))
        for place, member in enumerate(readers):
            first = each * place + min(place, extra)
            last = first + each + (place < extra)
            assignments[member] += (TopicPartition(topic, partition) for partition in range(first, last))
    return assignments


def _round_robin(partitions: Mapping[str, int], members: Subscriptions) -> Assignments:
    """Deal all partitions, in order, to the members in turn, skipping those that are not subscribed to the topic."""
    assignments: Assignments = {member: [] for member in members}
    order = _in_order(members)
    turn = 0
    for topic in sorted(partitions, key=_java_order):
        if not any(topic in one.topics for one in members.values()):
            continue
        for partition in range(partitions[topic]):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            assignments[order[turn % len(order)]].append(TopicPartition(topic, partition))
            turn += 1
    return assignments


def _cooperative_sticky(partitions: Mapping[str, int], members: Subscriptions) -> Assignments:
    """Let members keep what they have; what moves has no reader until it is given up (KIP-429)."""
    everything = [
        TopicPartition(topic, partition)
        for topic in sorted(partitions, key=_java_order)
        for partition in range(partitions[topic])
    ]
    return assign_sticky(everything, {member: members[member] for member in _in_order(members)})


def _in_order(members: Subscriptions) -> Sequence[str]:
    """Return the members in assignment order: by instance id, then by member id."""

    def place(member: str) -> tuple[bool, bytes]:
        instance = members[member].group_instance_id
        return instance is None, _java_order(member if instance is None else instance)

    return sorted(members, key=place)


def _java_order(text: str) -> bytes:
    """Return a key that sorts as Java's String.compareTo does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


_ASSIGNORS: Mapping[str, Callable[[Mapping[str, int], Subscriptions], Assignments]] = {
    "range": _range,
    "roundrobin": _round_robin,
    COOPERATIVE_STICKY: _cooperative_sticky,
}
ASSIGNORS = tuple(_ASSIGNORS)
"""Names of the assignors, as JoinGroup carries them."""


def is_cooperative(names: Collection[str]) -> bool:
    """Return whether all assignors let members keep partitions in a rebalance (KIP-429).

    With an eager one beside it, all partitions are given up before each rebalance: so a group changes over from one to
    the other, one restarted member at a time.
    """
    return set(names) == {COOPERATIVE_STICKY}
