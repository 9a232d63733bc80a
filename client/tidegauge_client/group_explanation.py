"""Explain why a consumer group is as it is: facts in, sentences out, each with Kafka's rule. Pure.

Rules: those of ``explanation``: every sentence follows from the facts and names its rule; what is not known is called
unknown; a sentence about time names an upper bound. Source: GroupCoordinator, GroupMetadataManager and KafkaApis of
Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge.in_sync import effective_min_isr
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import GroupDescription, MemberDescription
from tidegauge_client.group_tables import OffsetRow

About = Literal["coordinator", "offsets-topic", "group", "member", "lag"]

RULE_COORDINATOR = (
    "the coordinator of a group is the leader of the partition of __consumer_offsets to which the group id hashes "
    "(GroupMetadataManager.partitionFor)"
)
RULE_CREATE = "the first FindCoordinator creates __consumer_offsets, with offsets.topic.replication.factor replicas"
RULE_LOAD = (
    "a new leader reads the whole partition before it serves its groups: COORDINATOR_LOAD_IN_PROGRESS "
    "(GroupMetadataManager.loadGroupsAndOffsets)"
)
RULE_MIN_ISR = (
    "commits and assignments are appended with acks=all, and below min.insync.replicas members get "
    "COORDINATOR_NOT_AVAILABLE (GroupMetadataManager.storeOffsets, storeGroup)"
)
RULE_DEAD = "a group that no coordinator knows is described as Dead (GroupCoordinator.handleDescribeGroup)"
RULE_EMPTY = "a group without members keeps its offsets for offsets.retention.minutes (KIP-211)"
RULE_DELAY = (
    "a group that was Empty waits group.initial.rebalance.delay.ms for more members, and nothing ends that early "
    "(InitialDelayedJoin)"
)
RULE_JOIN = (
    "the join phase ends when every member has sent JoinGroup and no member id is pending, or after the longest "
    "rebalance timeout (max.poll.interval.ms) of the members; members learn of it from their next heartbeat "
    "(DelayedJoin)"
)
RULE_PENDING = "a member id that was given with MEMBER_ID_REQUIRED is awaited for its session timeout (KIP-394)"
RULE_SYNC = (
    "the group is Stable when the assignment that its leader sends with SyncGroup is committed; members that have sent "
    "none after the longest rebalance timeout are removed (DelayedSync)"
)
RULE_STORE = "SyncGroup gets its response when the assignment is committed (GroupMetadataManager.storeGroup)"
RULE_STABLE = (
    "a Stable group rebalances when a member joins, leaves, is not heard of for its session.timeout.ms, or changes its "
    "subscription (GroupCoordinator.prepareRebalance)"
)
RULE_IDLE = "a partition has one reader in a group, so members beyond the number of partitions read nothing"
RULE_LAG = "consumers read from the leader, below the high watermark"
RULE_UNREAD = (
    "the lag of a partition that no member reads grows with every record; only a commit from outside the members, as "
    "of a consumer that assigns its partitions itself, lowers it"
)


@dataclass(frozen=True, slots=True)
class OffsetsPartition:
    """The partition of __consumer_offsets that holds a group.

    Attributes:
        leader: None: it has none, or the leader is not alive.
        min_isr: min.insync.replicas of the topic.
    """

    at: TopicPartition
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int = 1

    @property
    def is_below_min_isr(self) -> bool:
        """Return whether nothing can be committed to it."""
        return len(self.isr) < effective_min_isr(self.min_isr, len(self.replicas))

    def living(self, live: Collection[int]) -> str:
        """Say which of its replicas are on brokers that are registered."""
        living = [broker for broker in self.replicas if broker in live]
        if len(self.replicas) == 1:
            return f"its only replica is on broker {self.replicas[0]}, which is {'' if living else 'not '}registered"
        if len(living) == len(self.replicas):
            return f"all brokers of its replicas, {_ids(self.replicas)}, are registered"
        of_them = f"of its replicas on brokers {_ids(self.replicas)}"
        if not living:
            return f"{of_them} none is registered"
        return f"{of_them} only {_ids(living)} {'is' if len(living) == 1 else 'are'} registered"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known of a group.

    Attributes:
        partition: that holds it; None: there is no __consumer_offsets.
        live: registered brokers.
        group: what its coordinator says; None: it says nothing, and ``problem`` why.
        problem: the error of the coordinator, or that it does not respond.
        rows: the partitions that the group reads or has offsets of.
        leaderless: those of them that have no leader.
    """

    group_id: str
    partition: OffsetsPartition | None
    live: frozenset[int] = frozenset()
    group: GroupDescription | None = None
    problem: ErrorCode = ErrorCode.NONE
    rows: Sequence[OffsetRow] = ()
    leaderless: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupSentence:
    """One statement about the group.

    Attributes:
        about: what it explains.
        text: the state, and its cause.
        rule: Kafka's rule.
        change: what would change it; empty where nothing needs to.
        member: the member concerned.
        wait_ms: upper bound in ms after which it changes by itself; None: it does not, or that is not known.
    """

    about: About
    text: str
    rule: str
    change: str = ""
    member: str | None = None
    wait_ms: int | None = None


def explain_group(facts: GroupFacts) -> list[GroupSentence]:
    """Explain the coordinator, the state and whom it waits for, and the lag."""
    return [*_coordinator(facts), *_state(facts), *_lag(facts)]


# The coordinator


def _coordinator(facts: GroupFacts) -> Iterator[GroupSentence]:
    held = facts.partition
    if held is None:
        yield GroupSentence(
            "coordinator",
            f"There is no __consumer_offsets yet, so no broker coordinates group {facts.group_id}.",
            RULE_CREATE,
            "a consumer of a group; while fewer brokers are alive than the topic has replicas, every consumer gets "
            "COORDINATOR_NOT_AVAILABLE",
        )
        return
    if held.leader is None:
        yield GroupSentence(
            "coordinator",
            f"{held.at}, to which the id of group {facts.group_id} hashes, has no leader: "
            f"{held.living(facts.live)}. Members and commits get COORDINATOR_NOT_AVAILABLE, and the group does not "
            "rebalance.",
            RULE_COORDINATOR,
            f"a leader of {held.at}: `tidegauge explain {held.at}`",
        )
        return
    where = (
        f"Broker {held.leader} leads {held.at}, to which the id of group {facts.group_id} hashes, in epoch "
        f"{held.leader_epoch}"
    )
    if facts.problem is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        yield GroupSentence(
            "coordinator",
            f"{where}, and still loads the groups of that partition.",
            RULE_LOAD,
            "the end of the load; members keep their generation",
        )
    elif facts.problem is ErrorCode.LISTENER_NOT_FOUND:
        yield GroupSentence(
            "coordinator",
            f"{where}: it is the coordinator. It is an Apache Kafka broker without a gRPC listener, so the state of "
            "the group is not known here.",
            RULE_COORDINATOR,
            "Kafka's own tools ask it: kafka-consumer-groups.sh --describe",
        )
    elif facts.group is None:
        yield GroupSentence(
            "coordinator",
            f"{where}, and does not coordinate it at the moment: {facts.problem.name}. Members look for the "
            "coordinator again and again.",
            RULE_COORDINATOR,
            f"a response of broker {held.leader}, or, if its process is dead, another leader when its ZooKeeper "
            f"session has ended: `tidegauge explain {held.at}`",
        )
    else:
        yield GroupSentence("coordinator", f"{where}: it is the coordinator.", RULE_COORDINATOR)
    if held.is_below_min_isr:
        yield GroupSentence(
            "offsets-topic",
            f"The ISR of {held.at} is {_ids(held.isr)}, fewer than min.insync.replicas={held.min_isr}: no offset can "
            "be committed, and no rebalance can end.",
            RULE_MIN_ISR,
            f"more replicas in sync: `tidegauge explain {held.at}`",
        )


# The state


def _state(facts: GroupFacts) -> Iterator[GroupSentence]:
    group = facts.group
    if group is None:
        return
    match group.state:
        case "Dead":
            yield GroupSentence(
                "group",
                f"The coordinator does not know group {group.group_id}: it has neither members nor committed offsets.",
                RULE_DEAD,
                "a consumer that joins it, or a commit",
            )
        case "Empty":
            yield GroupSentence(
                "group",
                f"The group has no members{_for(group)}: no consumer reads as one of them.",
                RULE_EMPTY,
                "a consumer that joins it",
            )
        case "PreparingRebalance":
            yield from _preparing(group)
        case "CompletingRebalance":
            yield from _completing(facts, group)
        case _:
            yield from _stable(group)


def _preparing(group: GroupDescription) -> Iterator[GroupSentence]:
    begun = f"The group rebalances{_for(group)}{_because(group)}"
    if group.in_initial_delay:
        yield GroupSentence(
            "group",
            f"{begun}. It was Empty before, so it waits for more members, {_at_most(group.phase_left_ms)}; "
            f"{len(group.parked_members)} have joined.",
            RULE_DELAY,
            wait_ms=group.phase_left_ms,
        )
        return
    awaited = [member for member in group.members if not member.parked]
    yield GroupSentence(
        "group",
        f"{begun}. {len(group.parked_members)} of {len(group.members)} members have joined; generation "
        f"{group.generation + 1} begins when the others have, {_at_most(group.phase_left_ms)}.",
        RULE_JOIN,
        wait_ms=group.phase_left_ms,
    )
    for member in awaited:
        yield _awaited(group, member, "JoinGroup", RULE_JOIN)
    for member_id in group.pending_members:
        yield GroupSentence(
            "member",
            f"Member id {member_id} was given to a consumer that has not come back with it.",
            RULE_PENDING,
            "its JoinGroup, or its session timeout",
            member_id,
        )


def _completing(facts: GroupFacts, group: GroupDescription) -> Iterator[GroupSentence]:
    leader = next((member for member in group.members if member.member_id == group.leader), None)
    begun = f"Generation {group.generation} has begun{_for(group)}{_because(group)}"
    if leader is not None and leader.parked:
        held = facts.partition
        where = "__consumer_offsets" if held is None else str(held.at)
        yield GroupSentence(
            "group",
            f"{begun}. Its leader has sent the assignment, which is written to {where} and not committed yet.",
            RULE_STORE,
            f"the followers of {where}: `tidegauge explain {where}`",
            wait_ms=group.phase_left_ms,
        )
        return
    yield GroupSentence(
        "group",
        f"{begun}. It waits for the assignment from its leader {group.leader}, {_at_most(group.phase_left_ms)}; "
        f"{len(group.parked_members)} of {len(group.members)} members have sent SyncGroup.",
        RULE_SYNC,
        f"SyncGroup from {group.leader}",
        group.leader or None,
        group.phase_left_ms,
    )
    for member in group.members:
        if not member.parked:
            yield _awaited(group, member, "SyncGroup", RULE_SYNC)


def _awaited(group: GroupDescription, member: MemberDescription, request: str, rule: str) -> GroupSentence:
    """Say who is awaited, since when and until when: its session may end before the phase does."""
    limits = [left for left in (group.phase_left_ms, member.session_left_ms) if left is not None]
    wait_ms = min(limits, default=None)
    static = "" if member.group_instance_id is None else f" (static, {member.group_instance_id})"
    session = (
        "" if member.session_left_ms is None else f", its session lasts another {_seconds(member.session_left_ms)}"
    )
    return GroupSentence(
        "member",
        f"Member {member.member_id}{static} of {member.host} has not sent {request}{_for(group)}{session}.",
        rule,
        "its next poll, its end, or the time that is left",
        member.member_id,
        wait_ms,
    )


def _stable(group: GroupDescription) -> Iterator[GroupSentence]:
    reason = f" The last rebalance began because: {group.reason}." if group.reason else ""
    yield GroupSentence(
        "group",
        f"The group is Stable{_for(group)} in generation {group.generation} with "
        f"{counted(len(group.members), 'member')}, by {group.protocol_name}.{reason}",
        RULE_STABLE,
    )
    for member in group.members:
        if not member.assignment and group.protocol_type == "consumer":
            yield GroupSentence(
                "member",
                f"Member {member.member_id} of {member.host} reads no partition.",
                RULE_IDLE,
                "more partitions, or fewer members",
                member.member_id,
            )


# The lag


def _lag(facts: GroupFacts) -> Iterator[GroupSentence]:
    if facts.group is None:
        return
    leaderless = sorted(facts.leaderless)
    if leaderless:
        yield GroupSentence(
            "lag",
            f"{_named(leaderless)} {_have(leaderless)} no leader: nothing can be read there, and the lag cannot "
            "shrink.",
            RULE_LAG,
            f"a leader: `tidegauge explain {leaderless[0]}`",
        )
    known = [row for row in facts.rows if row.lag is not None]
    unread = sorted(
        at
        for row in known
        if row.lag and row.member is None and (at := row.topic_partition) is not None and at not in facts.leaderless
    )
    if unread and facts.group.state == "Stable":
        yield GroupSentence(
            "lag",
            f"{_named(unread)} {_have(unread)} records to read, and no member reads {_them(unread)}.",
            RULE_UNREAD,
            "a member that is subscribed to the topic",
        )
    if known:
        most = max(known, key=lambda row: row.lag or 0)
        total = sum(row.lag or 0 for row in known)
        where = f", most of it in {most.topic_partition} ({most.lag})" if total and len(known) > 1 else ""
        yield GroupSentence(
            "lag", f"The lag is {counted(total, 'record')} over {counted(len(known), 'partition')}{where}.", RULE_LAG
        )


# Words


def _for(group: GroupDescription) -> str:
    return "" if group.state_age_ms is None else f" for {_seconds(group.state_age_ms)}"


def _because(group: GroupDescription) -> str:
    return f", because: {group.reason}" if group.reason else ""


def _at_most(left_ms: int | None) -> str:
    return "for an unknown time" if left_ms is None else f"for another {_seconds(left_ms)} at most"


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s" if duration_ms < 10_000 else f"{round(duration_ms / 1000)} s"


def _ids(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _named(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _have(partitions: Sequence[TopicPartition]) -> str:
    return "has" if len(partitions) == 1 else "have"


def _them(partitions: Sequence[TopicPartition]) -> str:
    return "it" if len(partitions) == 1 else "them"
