"""Explain why a consumer group is as it is: facts in, sentences out, each with Kafka's rule. Pure.

Rules (as in ``explanation``): every sentence follows from the facts and names its rule. An unknown fact is called
unknown. A sentence about time names an upper bound. Source: GroupCoordinator, GroupMetadataManager and KafkaApis of
Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge.in_sync import effective_min_isr
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import GroupDescription, MemberDescription
from tidegauge_client.consumer_group_explanation import consumer_group_state
from tidegauge_client.group_sentences import at_most, because, lasting, seconds
from tidegauge_client.group_tables import OffsetRow
from tidegauge_client.sentences import Sentence
from tidegauge_client.share_group_explanation import share_group_lag, share_group_state
from tidegauge_client.share_groups import ShareOffset

_MAX_NAMED = 10
"""Maximum number of partitions that a sentence names."""

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
RULE_EXPIRED = (
    "an offset expires offsets.retention.minutes after the group became Empty, or after its commit if the group never "
    "had members; a Stable group loses offsets of topics that it is not subscribed to (KIP-211)"
)
RULE_REFUSED = (
    "a group whose record cannot be served, or about which the coordinator met a defect, is out of service until the "
    "partition is loaded again; Kafka serves it half changed, or never responds"
)
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
RULE_LAG = (
    "the lag is the high watermark minus the committed offset, so that markers of transactions count, and offsets that "
    "compaction has left empty (ConsumerGroupCommand)"
)
RULE_LEADERLESS = "consumers read from the leader, and the high watermark is the leader's"
RULE_UNREAD = "members read the partitions that are assigned to them; the lag of another one grows with its records"
RULE_DELETED = (
    "the deletion of a topic removes the offsets that groups have committed of it "
    "(GroupCoordinator.handleDeletedPartitions); members rejoin when their metadata shows it "
    "(ConsumerCoordinator.rejoinNeededOrPending)"
)
RULE_BEYOND = (
    "a log may lose records already read, by an unclean election or with its topic, and any offset can be committed; a "
    "fetch beyond the log end offset gets OFFSET_OUT_OF_RANGE, after which auto.offset.reset sets the next position"
)
RULE_DELETED_RECORDS = (
    "retention and DeleteRecords move the log start whether or not a group has read; a fetch before it gets "
    "OFFSET_OUT_OF_RANGE, after which auto.offset.reset says where a consumer reads on (UnifiedLog)"
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

    @property
    def shortage(self) -> str:
        """Say why nothing can be committed to it; empty if it can."""
        if not self.is_below_min_isr:
            return ""
        return f"the ISR of {self.at} is {_ids(self.isr)}, fewer than min.insync.replicas={self.min_isr}"

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
    """The known facts about a group.

    Attributes:
        partition: that holds it; None: there is no __consumer_offsets.
        live: registered brokers.
        group: what its coordinator says; None: it says nothing, and ``problem`` why.
        problem: the error of the coordinator, or that it does not respond.
        refusal: why the coordinator refuses the group, as a clause; empty if it does not.
        rows: the partitions that the group reads or has offsets of.
        leaderless: the ones without a leader.
        deleted: the ones that do not exist.
        starts: log start offsets, of those whose leader has reported one.
        share_offsets: start offsets and lags, of a share group.
    """

    group_id: str
    partition: OffsetsPartition | None
    live: frozenset[int] = frozenset()
    group: GroupDescription | None = None
    problem: ErrorCode = ErrorCode.NONE
    refusal: str = ""
    rows: Sequence[OffsetRow] = ()
    leaderless: frozenset[TopicPartition] = frozenset()
    deleted: frozenset[TopicPartition] = frozenset()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    share_offsets: Mapping[TopicPartition, ShareOffset] = field(default_factory=dict)


def explain_group(facts: GroupFacts) -> list[Sentence]:
    """Explain the coordinator, the state and whom it waits for, and the lag."""
    return [*_coordinator(facts), *_state(facts), *_lag(facts)]


# The coordinator


def _coordinator(facts: GroupFacts) -> Iterator[Sentence]:
    held = facts.partition
    if held is None:
        yield Sentence(
            "coordinator",
            f"There is no __consumer_offsets yet, so no broker coordinates group {facts.group_id}.",
            RULE_CREATE,
            "a consumer of a group; while fewer brokers are alive than the topic has replicas, every consumer gets "
            "COORDINATOR_NOT_AVAILABLE",
        )
        return
    if held.leader is None:
        yield Sentence(
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
        yield Sentence(
            "coordinator",
            f"{where}, and still loads the groups of that partition.",
            RULE_LOAD,
            "the end of the load; members keep their generation",
        )
    elif facts.problem is ErrorCode.LISTENER_NOT_FOUND:
        yield Sentence(
            "coordinator",
            f"{where}: it is the coordinator. It is an Apache Kafka broker without a gRPC listener, so the state of "
            "the group is not known here.",
            RULE_COORDINATOR,
            "Kafka's own tools ask it: kafka-consumer-groups.sh --describe",
        )
    elif facts.refusal:
        yield Sentence(
            "coordinator",
            f"{where}: it is the coordinator, and {facts.refusal}. Every request about the group gets "
            f"{facts.problem.name}.",
            RULE_REFUSED,
            f"another leader of {held.at}, or a restart of broker {held.leader}; `tidegauge delete-group "
            f"{facts.group_id}` deletes the group with its offsets, so that its name can be used again",
        )
    elif facts.group is None:
        yield Sentence(
            "coordinator",
            f"{where}, and does not coordinate it at the moment: {facts.problem.name}. Members look for the "
            "coordinator again and again.",
            RULE_COORDINATOR,
            f"a response of broker {held.leader}, or, if its process is dead, another leader when its "
            f"session has ended: `tidegauge explain {held.at}`",
        )
    elif facts.group.coordinator != held.leader:
        yield Sentence(
            "coordinator",
            f"{where}. The rest is from broker {facts.group.coordinator}, which takes itself for the coordinator, "
            "and may be old.",
            RULE_COORDINATOR,
            f"a response of broker {held.leader}",
        )
    else:
        yield Sentence("coordinator", f"{where}: it is the coordinator.", RULE_COORDINATOR)
    if held.shortage:
        is_share = facts.group is not None and facts.group.is_share_group
        stopped = "No member can join or leave" if is_share else "No offset can be committed, and no rebalance can end"
        yield Sentence(
            "offsets-topic",
            f"{stopped}: {held.shortage}.",
            RULE_MIN_ISR,
            f"more replicas in sync: `tidegauge explain {held.at}`",
        )


# The state


def _state(facts: GroupFacts) -> Iterator[Sentence]:
    group = facts.group
    if group is None:
        return
    if group.is_share_group:
        yield from share_group_state(group)
        return
    if group.is_consumer_group and group.state != "Empty":
        yield from consumer_group_state(group)
        yield from _expired(group)
        return
    match group.state:
        case "Dead":
            yield Sentence(
                "group",
                f"The coordinator does not know group {group.group_id}: it has neither members nor committed offsets.",
                RULE_DEAD,
                "a consumer that joins it, or a commit",
            )
        case "Empty":
            yield Sentence(
                "group",
                f"The group has no members{lasting(group)}: no consumer reads as one of them.",
                RULE_EMPTY,
                "a consumer that joins it",
            )
        case "PreparingRebalance":
            yield from _preparing(group)
        case "CompletingRebalance":
            yield from _completing(facts, group)
        case _:
            yield from _stable(group)
    yield from _expired(group)


def _expired(group: GroupDescription) -> Iterator[Sentence]:
    if group.expired_age_ms is None:
        return
    partitions = group.expired_partitions
    named = ", ".join(partitions[:_MAX_NAMED]) + (", ..." if len(partitions) > _MAX_NAMED else "")
    yield Sentence(
        "group",
        f"{counted(len(partitions), 'committed offset')} of the group expired {seconds(group.expired_age_ms)} ago: "
        f"{named}. A consumer begins there where its auto.offset.reset says.",
        RULE_EXPIRED,
    )


def _preparing(group: GroupDescription) -> Iterator[Sentence]:
    begun = f"The group rebalances{lasting(group)}{because(group)}"
    if group.in_initial_delay:
        yield Sentence(
            "group",
            f"{begun}. It was Empty before, so it waits for more members, {at_most(group.phase_left_ms)}; "
            f"{len(group.parked_members)} have joined.",
            RULE_DELAY,
            wait_ms=group.phase_left_ms,
        )
        return
    awaited = [member for member in group.members if not member.parked]
    yield Sentence(
        "group",
        f"{begun}. {len(group.parked_members)} of {len(group.members)} members have joined; generation "
        f"{group.generation + 1} begins when the others have, {at_most(group.phase_left_ms)}.",
        RULE_JOIN,
        wait_ms=group.phase_left_ms,
    )
    for member in awaited:
        yield _awaited(group, member, "JoinGroup", RULE_JOIN)
    for member_id in group.pending_members:
        yield Sentence(
            "member",
            f"Member id {member_id} was given to a consumer that has not come back with it.",
            RULE_PENDING,
            "its JoinGroup, or its session timeout",
            member_id,
        )


def _completing(facts: GroupFacts, group: GroupDescription) -> Iterator[Sentence]:
    leader = next((member for member in group.members if member.member_id == group.leader), None)
    begun = f"Generation {group.generation} has begun{lasting(group)}{because(group)}"
    if leader is not None and leader.parked:
        held = facts.partition
        where = "__consumer_offsets" if held is None else str(held.at)
        yield Sentence(
            "group",
            f"{begun}. Its leader has sent the assignment, which is written to {where} and not committed yet.",
            RULE_STORE,
            f"the followers of {where}: `tidegauge explain {where}`",
            wait_ms=group.phase_left_ms,
        )
        return
    yield Sentence(
        "group",
        f"{begun}. It waits for the assignment from its leader {group.leader}, {at_most(group.phase_left_ms)}; "
        f"{len(group.parked_members)} of {len(group.members)} members have sent SyncGroup.",
        RULE_SYNC,
        f"SyncGroup from {group.leader}",
        group.leader or None,
        group.phase_left_ms,
    )
    for member in group.members:
        if not member.parked:
            yield _awaited(group, member, "SyncGroup", RULE_SYNC)


def _awaited(group: GroupDescription, member: MemberDescription, request: str, rule: str) -> Sentence:
    """Say who is awaited, since when and until when: its session may end before the phase does."""
    limits = [left for left in (group.phase_left_ms, member.session_left_ms) if left is not None]
    wait_ms = min(limits, default=None)
    static = "" if member.group_instance_id is None else f" (static, {member.group_instance_id})"
    session = "" if member.session_left_ms is None else f", its session lasts another {seconds(member.session_left_ms)}"
    return Sentence(
        "member",
        f"Member {member.member_id}{static} of {member.host} has not sent {request}{lasting(group)}{session}.",
        rule,
        "its next poll, its end, or the time that is left",
        member.member_id,
        wait_ms,
    )


def _stable(group: GroupDescription) -> Iterator[Sentence]:
    reason = f" The last rebalance began because: {group.reason}." if group.reason else ""
    yield Sentence(
        "group",
        f"The group is Stable{lasting(group)} in generation {group.generation} with "
        f"{counted(len(group.members), 'member')}, by {group.protocol_name}.{reason}",
        RULE_STABLE,
    )
    for member in group.members:
        if not member.assignment and group.protocol_type == "consumer":
            yield Sentence(
                "member",
                f"Member {member.member_id} of {member.host} reads no partition.",
                RULE_IDLE,
                "more partitions, or fewer members",
                member.member_id,
            )


# The lag


def _lag(facts: GroupFacts) -> Iterator[Sentence]:
    if facts.group is None:
        return
    leaderless, deleted = sorted(facts.leaderless), sorted(facts.deleted)
    if leaderless:
        yield Sentence(
            "lag",
            f"{_named(leaderless)} {_have(leaderless)} no leader: nothing can be read there, and the lag is not known.",
            RULE_LEADERLESS,
            f"a leader: `tidegauge explain {leaderless[0]}`",
        )
    if deleted:
        yield Sentence(
            "lag",
            f"{_named(deleted)} {'does' if len(deleted) == 1 else 'do'} not exist, though the group has "
            f"{_them(deleted)} assigned or committed.",
            RULE_DELETED,
            "the next rebalance, or a topic of that name",
        )
    if facts.group.is_share_group:
        yield from share_group_lag(facts.group, facts.share_offsets)
        return
    known = {row.topic_partition: row for row in facts.rows if row.lag is not None and row.topic_partition is not None}
    for at, row in sorted(known.items()):
        yield from _out_of_range(at, row.current_offset or 0, facts.starts.get(at, 0), row.end_offset or 0)
    unread = [at for at, row in sorted(known.items()) if row.unread and row.member is None]
    if unread and facts.group.state == "Stable":
        each = ", ".join(f"{at} at {known[at].current_offset} of {known[at].end_offset}" for at in unread)
        yield Sentence(
            "lag",
            f"No member reads {_named(unread)}; committed is {each}.",
            RULE_UNREAD,
            "a member that is subscribed to the topic",
        )
    if known:
        unread_of = {at: row.unread or 0 for at, row in known.items()}
        total, most = sum(unread_of.values()), max(unread_of, key=lambda at: unread_of[at])
        where = f", the largest in {most} ({unread_of[most]})" if total and len(known) > 1 else ""
        yield Sentence(
            "lag", f"The lag is {counted(total, 'offset')} over {counted(len(known), 'partition')}{where}.", RULE_LAG
        )


def _out_of_range(at: TopicPartition, committed: int, start: int, end: int) -> Iterator[Sentence]:
    """Say where the log no longer has the committed offset: at neither end does the lag count what can be read."""
    if committed > end:
        yield Sentence(
            "lag",
            f"The committed offset {committed} of {at} is {committed - end} beyond its end {end}: there is nothing to "
            "read from there.",
            RULE_BEYOND,
            "a log that reaches that offset again, or a reset of the offset",
        )
    elif committed < start:
        yield Sentence(
            "lag",
            f"{at} begins at {start}, so that {start - committed} of the {end - committed} offsets from the committed "
            f"one, {committed}, to its end {end} can't be read any more.",
            RULE_DELETED_RECORDS,
            "a commit at or after the log start",
        )


# Words


def _ids(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _named(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _have(partitions: Sequence[TopicPartition]) -> str:
    return "has" if len(partitions) == 1 else "have"


def _them(partitions: Sequence[TopicPartition]) -> str:
    return "it" if len(partitions) == 1 else "them"
