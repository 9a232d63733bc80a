"""Descriptions of groups: for clients (DescribeGroups, ListGroups) and for the lab (views)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegauge.consumer_groups import CONSUMER, ConsumerGroupState
from tidegauge.groups import DescribedMember, DescribeGroupResult, ListedGroup, ListGroups
from tidegauge.share_groups import SHARE
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.states import DEAD, EMPTY, STABLE
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.timers import Timer
from tidegauge_broker.coordinator.views import CommittedOffsetView, Gauges, GroupView, MemberView


def described(group_id: str, group: Group | None) -> DescribeGroupResult:
    """Return a group's DescribeGroups entry; an unknown group is Dead, without error."""
    if group is None:
        return DescribeGroupResult(group_id, state=DEAD.value)
    is_stable = group.state is STABLE
    protocol_name = (group.protocol_name or "") if is_stable else ""
    return DescribeGroupResult(
        group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name,
        members=tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


OUT_OF_SERVICE = "Unknown"
"""The state of a group that is not served, in a listing; Kafka's clients know the name (GroupState.UNKNOWN)."""


def listed(
    groups: Iterable[Group],
    consumer_groups: Iterable[ConsumerGroup],
    share_groups: Iterable[ShareGroup],
    refused: Iterable[str],
    request: ListGroups,
) -> list[ListedGroup]:
    """Return the groups that match the filters, ignoring case.

    Args:
        groups: the served classic groups, and groups that have offsets only.
        consumer_groups: the served groups of KIP-848.
        share_groups: the served groups of KIP-932.
        refused: the ids of those that are out of service.
        request: the filters.
    """
    states = {state.lower() for state in request.states}
    types = {name.lower() for name in request.types}
    everything = [
        *(ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in groups),
        *(ListedGroup(group.group_id, CONSUMER, group.state.value, CONSUMER) for group in consumer_groups),
        *(ListedGroup(group.group_id, SHARE, group.state.value, SHARE) for group in share_groups),
        *(ListedGroup(group_id, "", OUT_OF_SERVICE) for group_id in refused),
    ]
    return [
        one
        for one in everything
        if (not states or one.state.lower() in states) and (not types or one.group_type in types)
    ]


def viewed(group: Group) -> GroupView:
    """Return the full truth about a group."""
    protocol_name = group.protocol_name
    return GroupView(
        group_id=group.group_id,
        partition=group.partition,
        state=group.state,
        state_since_ms=-1 if group.state_since_ms is None else group.state_since_ms,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol_name,
        leader=group.leader,
        members=tuple(_viewed_member(member, protocol_name) for member in group.members.values()),
        pending_members=tuple(group.pending_members),
        phase_deadline_ms=_deadline_ms(group.sync_phase if group.phase is None else group.phase),
        reason=group.reason,
        offsets={
            topic_partition: CommittedOffsetView(
                committed.offset, committed.leader_epoch, committed.metadata, committed.commit_timestamp_ms
            )
            for topic_partition, (_, committed) in group.offsets.materialised.items()
        },
        pending_offsets=tuple(group.offsets.pending),
        in_initial_delay=group.in_initial_delay,
    )


def _viewed_member(member: Member, protocol_name: str | None) -> MemberView:
    supported = {protocol.name: protocol.metadata for protocol in member.protocols}
    parked = "JoinGroup" if member.join_token is not None else "SyncGroup" if member.sync_token is not None else ""
    return MemberView(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        supported.get(protocol_name or "", b""),
        member.assignment,
        parked,
        _deadline_ms(member.session),
    )


def _deadline_ms(timer: Timer | None) -> int | None:
    return timer.deadline_ms if timer is not None and timer.action is not None else None


def counted(groups: Iterable[Group], consumer_groups: Iterable[ConsumerGroup] | None) -> Gauges:
    """Return the number of groups by state, and of offsets.

    Args:
        groups: the classic groups, and groups that have offsets only.
        consumer_groups: None: they are not served.
    """
    by_state: Counter[str] = Counter()
    offsets = 0
    for group in groups:
        by_state[group.state.value] += 1
        offsets += len(group.offsets.materialised)
    consumer_states: Counter[ConsumerGroupState] = Counter()
    for consumer_group in consumer_groups or ():
        consumer_states[consumer_group.state] += 1
        offsets += len(consumer_group.offsets.materialised)
    return Gauges(
        {state: by_state[state.value] for state in type(EMPTY)},
        offsets,
        {} if consumer_groups is None else {state: consumer_states[state] for state in ConsumerGroupState},
    )
