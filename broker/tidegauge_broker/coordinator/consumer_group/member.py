"""A member of a consumer group, as its records say. Source: ConsumerGroupMember, MemberState of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from tidegauge.consumer_groups import STATIC_LEAVING_EPOCH, Assignment
from tidegauge.groups import Protocol
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set

Epochs = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with its assignment epoch: the member epoch at which it was assigned."""
TopicPartitionId = tuple[bytes, int]


class MemberState(IntEnum):
    """The state of a member's reconciliation, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has yet to confirm that it has given up the partitions that are pending revocation."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions of its target that other members have not given up yet."""
    UNKNOWN = 127
    """A state that a later release has written."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The additional state of a member with the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member.

    Attributes:
        topic_names: in the iteration order of Java's HashSet.
        topic_regex: empty: none.
        epoch: 0: of a static member that has just been replaced; -2: it has left for a while.
        assigned: partitions that the member may own.
        pending_revocation: partitions that the member has yet to give up.
        classic: of a member with the classic protocol; None: it uses the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict[bytes, Mapping[int, int]])
    pending_revocation: Epochs = field(default_factory=dict[bytes, Mapping[int, int]])

    @property
    def has_left_for_a_while(self) -> bool:
        """Whether it is a static member that will come back, or expire."""
        return self.epoch == STATIC_LEAVING_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member owns its target of an assignment epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


def partitions_of(epochs: Epochs) -> set[TopicPartitionId]:
    """Return the partitions, without their epochs."""
    return {(topic_id, partition) for topic_id, partitions in epochs.items() for partition in partitions}


def with_epochs(partitions: Iterable[tuple[TopicPartitionId, int]]) -> Epochs:
    """Return partitions by topic id, in the order in which Java's maps iterate."""
    found: dict[bytes, dict[int, int]] = {}
    for (topic_id, partition), epoch in partitions:
        found.setdefault(topic_id, {})[partition] = epoch
    return {
        topic_id: {partition: found[topic_id][partition] for partition in java_set(found[topic_id])}
        for topic_id in java_set(found)
    }


def flattened(epochs: Epochs) -> dict[TopicPartitionId, int]:
    """Return the assignment epoch of each partition."""
    return {(topic_id, partition): epoch for topic_id, ones in epochs.items() for partition, epoch in ones.items()}


def as_assignment(epochs: Epochs) -> Assignment:
    """Return the partitions as a response lists them."""
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in epochs.items())


def owned_partitions(owned: Assignment | None) -> set[TopicPartitionId] | None:
    """Return what a member says it owns; None: it has not said."""
    if owned is None:
        return None
    return {(topic_id, partition) for topic_id, partitions in owned for partition in partitions}
