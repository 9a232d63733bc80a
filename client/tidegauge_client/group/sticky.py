"""The assignor ``cooperative-sticky``: members keep their partitions, and one that moves is revoked first. Pure.

Rules (KIP-429; CooperativeStickyAssignor, AbstractStickyAssignor of Kafka 3.9):
    1. A partition stays with the member that owns it and is subscribed to its topic. Of two that claim it the one of
       the higher generation owns it, of the same generation neither.
    2. Partitions without an owner go to the member that has the fewest. Then partitions move, one at a time, from a
       member to one that has at least two fewer, so that equally subscribed members differ by one at most.
    3. A partition that another member still claims gets no reader in this rebalance: who claims it learns from its
       assignment that it has lost it, gives it up, and joins again. Only then it gets its new reader.

The rules are Kafka's, the choice among equally good assignments is not: members of one group may follow either leader.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tidegauge.partition import TopicPartition
from tidegauge_client.group.consumer_protocol import NO_GENERATION, MemberSubscription

_GENERATION = struct.Struct(">i")


def user_data(generation: int) -> bytes:
    """Return the user data of a subscription: the last assignment's generation.

    For leaders that read no more than version 1 of the subscription.
    """
    return _GENERATION.pack(generation)


def assign_sticky(
    partitions: Sequence[TopicPartition], members: Mapping[str, MemberSubscription]
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions, without ones to be given up first (rule 3).

    Args:
        partitions: all partitions of the topics of the group, in order.
        members: subscriptions by member id, in the order of assignment.
    """
    readers = {
        topic: [member for member, one in members.items() if topic in one.topics]
        for topic in dict.fromkeys(at.topic for at in partitions)
    }
    owners = _owners(partitions, members)
    reader_of = dict(owners)
    counts = dict.fromkeys(members, 0)
    for member in owners.values():
        counts[member] += 1
    for at in partitions:
        if at not in reader_of and readers[at.topic]:
            member = min(readers[at.topic], key=counts.__getitem__)
            reader_of[at] = member
            counts[member] += 1
    _balance(reader_of, readers, counts)
    claims = _claims(members)
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for at in partitions:
        reader = reader_of.get(at)
        if reader is not None and (owners.get(at) == reader or claims.get(at, ()) in ((), (reader,))):
            assignments[reader].append(at)
    return assignments


def _claims(members: Mapping[str, MemberSubscription]) -> dict[TopicPartition, tuple[str, ...]]:
    """Return who says of each partition to have it."""
    claims: dict[TopicPartition, tuple[str, ...]] = {}
    for member, one in members.items():
        for at in dict.fromkeys(one.owned):
            claims[at] = (*claims.get(at, ()), member)
    return claims


def _owners(
    partitions: Sequence[TopicPartition], members: Mapping[str, MemberSubscription]
) -> dict[TopicPartition, str]:
    """Return who keeps each partition for the time being (rule 1)."""
    claims = _claims(members)
    owners: dict[TopicPartition, str] = {}
    for at in partitions:
        claimants = [member for member in claims.get(at, ()) if at.topic in members[member].topics]
        newest = max((_generation(members[member]) for member in claimants), default=NO_GENERATION)
        of_newest = [member for member in claimants if _generation(members[member]) == newest]
        if len(of_newest) == 1:
            owners[at] = of_newest[0]
    return owners


def _generation(member: MemberSubscription) -> int:
    """Return the generation in which a member got its partitions."""
    data = member.user_data
    if member.generation != NO_GENERATION or data is None or len(data) < _GENERATION.size:
        return member.generation
    found: int = _GENERATION.unpack_from(data)[0]
    return found


def _balance(
    reader_of: dict[TopicPartition, str], readers: Mapping[str, Sequence[str]], counts: dict[str, int]
) -> None:
    """Move partitions, of the member with the most first, until no move makes two members more equal (rule 2).

    Each move lowers the sum of the squares of the counts, so it ends.
    """
    held: dict[str, dict[str, list[TopicPartition]]] = {member: {} for member in counts}
    for at, reader in sorted(reader_of.items()):
        held[reader].setdefault(at.topic, []).append(at)
    while (move := _next_move(held, readers, counts)) is not None:
        reader, topic, other = move
        at = held[reader][topic].pop()
        held[other].setdefault(topic, []).append(at)
        reader_of[at] = other
        counts[reader] -= 1
        counts[other] += 1


def _next_move(
    held: Mapping[str, Mapping[str, Sequence[TopicPartition]]],
    readers: Mapping[str, Sequence[str]],
    counts: Mapping[str, int],
) -> tuple[str, str, str] | None:
    """Return source, topic and target of the next move; None: all is balanced."""
    for reader in sorted(counts, key=counts.__getitem__, reverse=True):
        for topic in (topic for topic, partitions in held[reader].items() if partitions):
            other = min(readers[topic], key=counts.__getitem__)
            if counts[other] + 1 < counts[reader]:
                return reader, topic, other
    return None
