"""Explain the state of a consumer group (KIP-848): which member keeps which partition from whom, and until when. Pure.

Source: ConsumerGroup.maybeUpdateGroupState, CurrentAssignmentBuilder and GroupMetadataManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge.consumer_groups import STATIC_LEAVING_EPOCH
from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_client.group_descriptions import GroupDescription, MemberDescription, Reconciliation
from tidegauge_client.group_sentences import lasting, seconds, session_left
from tidegauge_client.sentences import Sentence

RULE_ASSIGNING = (
    "the first heartbeat after a change computes the target, but not within group.consumer.assignment.interval.ms of "
    "the last one; there is no timer (GroupMetadataManager.canComputeNextTargetAssignment)"
)
RULE_RECONCILING = (
    "the coordinator assigns, and each member comes closer to its target by its own heartbeats: it gives up partitions "
    "first, then it gets those that are free (CurrentAssignmentBuilder)"
)
RULE_REVOKING = (
    "a member gives up partitions by a heartbeat that does not name them any more; one that has not done so within its "
    "rebalance timeout, max.poll.interval.ms, is removed from the group, though it sends heartbeats "
    "(GroupMetadataManager.scheduleConsumerGroupRebalanceTimeout)"
)
RULE_AWAITED = (
    "a partition has one owner at a time: it is assigned when its former owner has given it up, and at the next "
    "heartbeat of the member that waits (CurrentAssignmentBuilder)"
)
RULE_BEHIND = (
    "a member changes by its own heartbeat alone; one that is not heard of for its session timeout is removed "
    "(GroupMetadataManager.scheduleConsumerGroupSessionTimeout)"
)
RULE_AWAY = (
    "a static member that leaves with epoch -2 keeps its partitions for whoever comes back with its instance id, until "
    "its session ends (KIP-848)"
)
RULE_STABLE = (
    "a consumer group gets a new target when a member joins, leaves, expires or changes its subscription, or when the "
    "topics change (KIP-848)"
)
RULE_IDLE = "a partition has one owner in a group, so members beyond the number of partitions own nothing"


def consumer_group_state(group: GroupDescription) -> Iterator[Sentence]:
    """Explain the state of a consumer group that has members, and each member that has not reached its target."""
    count = counted(len(group.members), "member")
    in_epoch = f"{lasting(group)} in epoch {group.generation} with {count}"
    behind = [one for one in group.members if not _has_target(group, one)]
    if group.state == "Assigning":
        yield Sentence(
            "group",
            f"The group is Assigning{in_epoch}: its target is of epoch {group.assignment_epoch}, and members keep to "
            "that one.",
            RULE_ASSIGNING,
            "the next heartbeat of any member when the interval has passed",
        )
    elif group.state == "Reconciling":
        yield Sentence(
            "group",
            f"The group is Reconciling{in_epoch}: {len(behind)} of them {'has' if len(behind) == 1 else 'have'} not "
            f"reached the target of epoch {group.assignment_epoch}, computed by {group.protocol_name}.",
            RULE_RECONCILING,
        )
    else:
        yield Sentence(
            "group", f"The group is {group.state}{in_epoch}, assigned by {group.protocol_name}.", RULE_STABLE
        )
    for member in group.members:
        yield from _member(group, member)


def _has_target(group: GroupDescription, member: MemberDescription) -> bool:
    how_far = member.reconciliation
    return (
        how_far is not None
        and how_far.state in {"", "STABLE"}
        and how_far.epoch == group.assignment_epoch
        and set(member.assignment) == set(how_far.target)
    )


def _member(group: GroupDescription, member: MemberDescription) -> Iterator[Sentence]:
    how_far = member.reconciliation
    if how_far is None:
        return
    if how_far.epoch == STATIC_LEAVING_EPOCH:
        yield _away(member)
    elif how_far.revoking:
        yield _revoking(group, member, how_far)
    elif how_far.awaited:
        yield _awaiting(group, member, how_far)
    elif not _has_target(group, member):
        yield _behind(group, member, how_far)
    elif not member.assignment:
        yield Sentence(
            "member",
            f"{_name(member)} owns no partition.",
            RULE_IDLE,
            "more partitions, or fewer members",
            member.member_id,
        )


def _away(member: MemberDescription) -> Sentence:
    kept = f"{_named(member.assignment)} stay{'s' if len(member.assignment) == 1 else ''} reserved for it"
    return Sentence(
        "member",
        f"{_name(member)} has left for a while; {kept if member.assignment else 'it had no partition'}"
        f"{session_left(member)}.",
        RULE_AWAY,
        f"a member with the instance id {member.group_instance_id}, or the end of the session",
        member.member_id,
        member.session_left_ms,
    )


def _revoking(group: GroupDescription, member: MemberDescription, how_far: Reconciliation) -> Sentence:
    since = "" if how_far.revocation_age_ms is None else f" for {seconds(how_far.revocation_age_ms)}"
    until = (
        ""
        if how_far.revocation_left_ms is None
        else f"; in another {seconds(how_far.revocation_left_ms)} it is removed from the group"
    )
    waiting = [
        one.member_id
        for one in group.members
        if one.reconciliation is not None
        and any(holder == member.member_id for _, holder in one.reconciliation.awaited)
    ]
    them = "it" if len(how_far.revoking) == 1 else "them"
    wanted = f" {' and '.join(waiting)} wait{'s' if len(waiting) == 1 else ''} for {them}." if waiting else ""
    return Sentence(
        "member",
        f"{_name(member)} has not given up {_named(how_far.revoking)}{since}{until}.{wanted}",
        RULE_REVOKING,
        "its next poll, in which it revokes them and says so, or its end",
        member.member_id,
        how_far.revocation_left_ms,
    )


def _awaiting(group: GroupDescription, member: MemberDescription, how_far: Reconciliation) -> Sentence:
    each = ", ".join(f"{at}, which {holder} has" for at, holder in how_far.awaited)
    left = [
        one.reconciliation.revocation_left_ms
        for one in group.members
        if one.reconciliation is not None
        and one.reconciliation.revocation_left_ms is not None
        and one.member_id in {holder for _, holder in how_far.awaited}
    ]
    return Sentence(
        "member",
        f"{_name(member)} is in epoch {how_far.epoch} and waits for {each}.",
        RULE_AWAITED,
        "a heartbeat by which they are given up, or the end of the member that has them",
        member.member_id,
        max(left, default=None),
    )


def _behind(group: GroupDescription, member: MemberDescription, how_far: Reconciliation) -> Sentence:
    return Sentence(
        "member",
        f"{_name(member)} is in epoch {how_far.epoch}, and has not taken up the target of epoch "
        f"{group.assignment_epoch}{session_left(member)}.",
        RULE_BEHIND,
        "its next heartbeat",
        member.member_id,
        member.session_left_ms,
    )


def _name(member: MemberDescription) -> str:
    static = "" if member.group_instance_id is None else f", static {member.group_instance_id}"
    protocol = ""
    if member.reconciliation is not None and member.reconciliation.is_classic:
        protocol = ", classic protocol"
    return f"Member {member.member_id} ({member.client_id}{static}{protocol})"


def _named(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
