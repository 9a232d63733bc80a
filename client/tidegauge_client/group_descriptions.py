"""Groups as a client has them, in plain values: by Kafka's protocol, or in full by a coordinator's Lab service."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.consumer_groups import CONSUMER
from tidegauge.errors import TidegaugeError
from tidegauge.groups import CLASSIC
from tidegauge.kafka.messages import consumer_group_describe
from tidegauge.kafka.messages.describe_groups import DescribedGroup
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SHARE
from tidegauge.v1 import lab_pb2
from tidegauge_client.group.consumer_protocol import decode_assignment


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How far a member of a consumer group (KIP-848) has come towards its target.

    Attributes:
        epoch: the member's; -2: it is static, and has left for a while.
        state: STABLE, UNREVOKED_PARTITIONS or UNRELEASED_PARTITIONS; empty: the coordinator does not show it.
        is_classic: whether the member uses the classic protocol.
        revoking: partitions that it has yet to give up.
        awaited: partitions of its target that other members have, each with the id of the member that has it.
        target: partitions of its target assignment.
        revocation_age_ms: how long it has had something to give up; None: it has not, or that is not known.
        revocation_left_ms: time until it is removed unless it gives that up; None: as above.
    """

    epoch: int
    state: str = ""
    is_classic: bool = False
    revoking: tuple[TopicPartition, ...] = ()
    awaited: tuple[tuple[TopicPartition, str], ...] = ()
    target: tuple[TopicPartition, ...] = ()
    revocation_age_ms: int | None = None
    revocation_left_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        assignment: of a consumer; of a classic group empty unless the group is Stable.
        parked: API of its parked request, JoinGroup or SyncGroup; empty: none is parked.
        session_left_ms: time until it is removed unless it is heard of; None: it cannot expire now.
        reconciliation: of a member of a consumer group; None: the group is a classic one.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    parked: str = ""
    session_left_ms: int | None = None
    reconciliation: Reconciliation | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator has it; an unknown group has the state Dead.

    Attributes:
        coordinator: id of the broker that coordinates it.
        reason: why the last rebalance began; empty if none has since the coordinator loaded the group.
        parked_members: those whose JoinGroup or SyncGroup waits for its response.
        leader: member id of the leader; empty without one.
        state_age_ms: how long the group has been in its state; None: unknown.
        phase_left_ms: time until the join or sync phase ends at the latest; None: the group is in neither.
        in_initial_delay: whether that is the initial delay, which nothing ends early.
        pending_members: ids that were given with MEMBER_ID_REQUIRED and have not joined yet.
        expired_age_ms: how long ago committed offsets of the group expired for the last time; None: not since the
            coordinator loaded it.
        expired_partitions: the partitions whose offsets expired then, as topic-partition.
        group_type: classic, consumer (KIP-848) or share (KIP-932); of the last two the generation is the group's epoch.
        assignment_epoch: of the target assignment of a consumer or share group; of others -1.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
    coordinator: int
    generation: int
    reason: str
    parked_members: tuple[str, ...]
    leader: str = ""
    state_age_ms: int | None = None
    phase_left_ms: int | None = None
    in_initial_delay: bool = False
    pending_members: tuple[str, ...] = ()
    expired_age_ms: int | None = None
    expired_partitions: tuple[str, ...] = ()
    group_type: str = CLASSIC
    assignment_epoch: int = -1

    @property
    def is_consumer_group(self) -> bool:
        """Whether it is a group of the consumer protocol."""
        return self.group_type == CONSUMER

    @property
    def is_share_group(self) -> bool:
        """Whether it is a group of the share protocol."""
        return self.group_type == SHARE


def classic_group(group: DescribedGroup, coordinator: int) -> GroupDescription:
    """Return a group as Kafka's response has it: without generation and reasons."""
    is_consumer = group.protocol_type == "consumer"
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(
            MemberDescription(
                one.member_id,
                one.group_instance_id or None,
                one.client_id,
                one.client_host,
                assigned_partitions(bytes(one.member_assignment)) if is_consumer else (),
            )
            for one in group.members
        ),
        coordinator,
        -1,
        "",
        (),
    )


def seen_group(view: lab_pb2.ObservedGroup, coordinator: int) -> GroupDescription:
    """Return a group by the Lab service; a classic group's assignments if Stable."""
    found = view.description
    is_consumer_group = found.group_type == CONSUMER
    shows_assignments = found.protocol_type == "consumer" and (found.state == "Stable" or is_consumer_group)
    return GroupDescription(
        view.group_id,
        found.state,
        found.protocol_type,
        found.protocol_name if found.state == "Stable" or is_consumer_group else "",
        tuple(
            MemberDescription(
                one.member_id,
                one.group_instance_id or None,
                one.client_id,
                one.client_host,
                assigned_partitions(one.assignment) if shows_assignments else (),
                one.parked,
                one.session_left_ms if one.HasField("session_left_ms") else None,
                _reconciliation(one.reconciliation) if one.HasField("reconciliation") else None,
            )
            for one in found.members
        ),
        coordinator,
        found.generation,
        found.reason,
        tuple(found.parked_members),
        found.leader,
        found.state_age_ms if found.HasField("state_age_ms") else None,
        found.phase_left_ms if found.HasField("phase_left_ms") else None,
        found.in_initial_delay,
        tuple(found.pending_members),
        found.expired_age_ms if found.HasField("expired_age_ms") else None,
        tuple(found.expired_partitions),
        found.group_type or CLASSIC,
        found.assignment_epoch,
    )


def _reconciliation(seen: lab_pb2.Reconciliation) -> Reconciliation:
    return Reconciliation(
        seen.epoch,
        seen.state,
        seen.is_classic,
        _partitions(seen.revoking),
        tuple((TopicPartition(one.partition.topic, one.partition.partition), one.member_id) for one in seen.awaited),
        _partitions(seen.target),
        seen.revocation_age_ms if seen.HasField("revocation_age_ms") else None,
        seen.revocation_left_ms if seen.HasField("revocation_left_ms") else None,
    )


def _partitions(seen: Iterable[lab_pb2.LabPartition]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, one.partition) for one in seen)


_CLASSIC_MEMBER = 0
"""Of ConsumerGroupDescribe's member types."""


def consumer_group_of(group: consumer_group_describe.DescribedGroup, coordinator: int) -> GroupDescription:
    """Return a consumer group by Kafka's response, without members' times and states."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        CONSUMER,
        group.assignor_name,
        tuple(
            MemberDescription(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                _named(one.assignment),
                reconciliation=Reconciliation(
                    one.member_epoch,
                    is_classic=one.member_type == _CLASSIC_MEMBER,
                    target=_named(one.target_assignment),
                ),
            )
            for one in group.members
        ),
        coordinator,
        group.group_epoch,
        "",
        (),
        group_type=CONSUMER,
        assignment_epoch=group.assignment_epoch,
    )


def _named(assignment: consumer_group_describe.Assignment | None) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in ([] if assignment is None else assignment.topic_partitions)
            for partition in topic.partitions
        )
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment; none if it cannot be read."""
    try:
        return tuple(sorted(decode_assignment(assignment)))
    except TidegaugeError:
        return ()
