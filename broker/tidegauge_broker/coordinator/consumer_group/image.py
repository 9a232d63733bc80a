"""The image of a consumer group: the group is the fold of its records, live and after a load.

A decision works on a ``Draft`` of the image (docs/adr/0027-one-write-of-a-consumer-group.md).
Source: ConsumerGroup, ModernGroup and the replay methods of GroupMetadataManager of Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge.groups import Protocol
from tidegauge.kafka.coordinator.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from tidegauge.kafka.coordinator.consumer_group_current_member_assignment import TopicPartitions as CurrentPartitions
from tidegauge.kafka.coordinator.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from tidegauge.kafka.coordinator.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from tidegauge.kafka.coordinator.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from tidegauge.kafka.coordinator.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from tidegauge.kafka.coordinator.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from tidegauge.kafka.coordinator.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidegauge_broker.coordinator import drafts
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import copied_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.consumer_group.assignors.timeline_map import TimelineMap
from tidegauge_broker.coordinator.consumer_group.assignors.votes import AssignorVotes
from tidegauge_broker.coordinator.consumer_group.member import (
    ClassicMetadata,
    ConsumerMember,
    Epochs,
    MemberState,
    TopicPartitionId,
    partitions_of,
)
from tidegauge_broker.coordinator.consumer_group.records import ConsumerGroupRecord

FIRST_EPOCH = 1
"""Epoch of a group that has no record yet."""


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched.

    Attributes:
        version: of the topics that it was resolved against.
    """

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class GroupImage:
    """A group.

    Attributes:
        epoch: of the group; rises when the subscriptions or the metadata of their topics change.
        assignment_epoch: of the target assignment.
        assignment_timestamp_ms: when that was computed; 0: unknown.
        votes: what members ask for as the assignor.
        static_members: member id by instance id.
        targets: by member id.
        owners: epoch of the member that has a partition assigned or pending revocation.
        regexes: the topics of regular expressions that are resolved.
        behind: members that do not own their target of ``assignment_epoch``. It follows from the members, and is kept
            so that the state of a large group costs no look at each of them at each heartbeat.
        regex_members: number of members by regular expression, likewise.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: TimelineMap[ConsumerMember] = field(default_factory=TimelineMap[ConsumerMember])
    votes: AssignorVotes = field(default_factory=AssignorVotes)
    static_members: dict[str, str] = field(default_factory=dict[str, str])
    targets: dict[str, Partitions] = field(default_factory=dict[str, Partitions])
    owners: dict[TopicPartitionId, int] = field(default_factory=dict[TopicPartitionId, int])
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict[str, ResolvedRegex])
    behind: set[str] = field(default_factory=set[str], compare=False)
    regex_members: Counter[str] = field(default_factory=Counter[str], compare=False)

    def copied(self) -> GroupImage:
        """Return a copy that can be changed by records without changing this image."""
        return replace(
            self,
            members=TimelineMap(self.members),
            votes=AssignorVotes(self.votes),
            static_members=dict(self.static_members),
            targets=dict(self.targets),
            owners=dict(self.owners),
            regexes=dict(self.regexes),
            behind=set(self.behind),
            regex_members=Counter(self.regex_members),
        )

    # Queries

    @property
    def items(self) -> int:
        """Number of topics that members have named, and of partitions in their targets."""
        named = sum(len(member.topic_names) for member in self.members.values())
        return named + sum(len(partitions) for target in self.targets.values() for _, partitions in target)

    @property
    def state(self) -> ConsumerGroupState:
        """State of the group, which follows from its members (ConsumerGroup.maybeUpdateGroupState)."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self.behind else ConsumerGroupState.STABLE

    def topics_of(self, member: ConsumerMember) -> tuple[str, ...]:
        """Return the topics a member is subscribed to, by name and expression."""
        resolved = self.regexes.get(member.topic_regex)
        if resolved is None or not resolved.topics:
            return member.topic_names
        return tuple(copied_set((*member.topic_names, *resolved.topics)))

    def subscribed_topics(self, without: Iterable[str] = (), without_regexes: Iterable[str] = ()) -> set[str]:
        """Return all topics that members, except some, are subscribed to."""
        left_out, dropped = set(without), set(without_regexes)
        found: set[str] = set()
        regexes: set[str] = set()
        for member_id, member in self.members.items():
            if member_id not in left_out:
                found.update(member.topic_names)
                regexes.add(member.topic_regex)
        for regex in regexes - dropped:
            if regex in self.regexes:
                found.update(self.regexes[regex].topics)
        return found

    def subscribers_of_regex(self, regex: str) -> int:
        """Return how many members have a regular expression."""
        return self.regex_members[regex]

    @property
    def subscribed_regexes(self) -> set[str]:
        """The regular expressions of the members."""
        return set(self.regex_members)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members have the same subscription, by names or by one expression (SubscriptionType)."""
        members = self.members.values()
        regexes = {member.topic_regex for member in members}
        if regexes == {""}:
            return len({frozenset(member.topic_names) for member in members}) <= 1
        return len(regexes) == 1 and not any(member.topic_names for member in members)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members ask for."""
        return self.votes.preferred() or default

    @property
    def consumers(self) -> int:
        """Number of members that use the consumer protocol."""
        return sum(member.classic is None for member in self.members.values())

    # Replay

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a record; records of unknown members, which compaction may leave, are applied too."""
        _REPLAYS[type(record.key)](self, record.key, record.value)

    def replay_epoch(self, _key: Any, value: ConsumerGroupMetadataValue | None) -> None:
        """Take the group's epoch (type 3)."""
        if value is None:
            self.epoch, self.metadata_hash = FIRST_EPOCH, 0
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def replay_nothing(self, _key: Any, _value: Any) -> None:
        """Leave the metadata of partitions, which releases before 4.1 wrote, aside: the hash has taken its place."""

    def replay_subscription(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        """Take what a member is and is subscribed to (type 5)."""
        member_id = key.member_id
        former = self.members.get(member_id)
        if value is None:
            if former is not None:
                self._release(former)
                del self.members[member_id]
                self.behind.discard(member_id)
                self._count_regex(former.topic_regex, -1)
                self.votes.change(former.server_assignor, None)
                if former.instance_id is not None and self.static_members.get(former.instance_id) == member_id:
                    del self.static_members[former.instance_id]
            return
        classic = None
        if value.classic_member_metadata is not None:
            protocols = tuple(
                Protocol(one.name, bytes(one.metadata)) for one in value.classic_member_metadata.supported_protocols
            )
            classic = ClassicMetadata(value.classic_member_metadata.session_timeout_ms, protocols)
        self.members[member_id] = now = replace(
            former or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(copied_set(value.subscribed_topic_names)),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=classic,
        )
        self._compare_with_target(now)
        self._count_regex("" if former is None else former.topic_regex, -1)
        self._count_regex(now.topic_regex, 1)
        self.votes.change(None if former is None else former.server_assignor, value.server_assignor)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def replay_target_epoch(self, _key: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        """Take the epoch of the target assignment (type 6)."""
        if value is None:
            self.assignment_epoch, self.assignment_timestamp_ms = FIRST_EPOCH, 0
        else:
            self.assignment_epoch, self.assignment_timestamp_ms = value.assignment_epoch, value.assignment_timestamp
        self.look_at_members()

    def replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Take a member's target assignment (type 7)."""
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = tuple((one.topic_id, tuple(one.partitions)) for one in value.topic_partitions)

    def replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Take a member's epoch, state and partitions (type 8)."""
        former = self.members.get(key.member_id)
        if value is None:
            if former is not None:
                self._release(former)
                self.members[key.member_id] = left = replace(
                    former, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, pending_revocation={}
                )
                self._compare_with_target(left)
                self.votes.change(former.server_assignor, former.server_assignor)
            return
        member = former or ConsumerMember(key.member_id)
        self._release(member)
        self.members[key.member_id] = now = replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            pending_revocation=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
        self._compare_with_target(now)
        self.votes.change(now.server_assignor, now.server_assignor)
        for one in partitions_of(now.assigned) | partitions_of(now.pending_revocation):
            self.owners[one] = now.epoch

    def look_at_members(self) -> None:
        """Find out again what follows from all members."""
        members = self.members.values()
        self.behind = {one.member_id for one in members if not one.is_reconciled_to(self.assignment_epoch)}
        self.regex_members = Counter(one.topic_regex for one in members if one.topic_regex)

    def _compare_with_target(self, member: ConsumerMember) -> None:
        if member.is_reconciled_to(self.assignment_epoch):
            self.behind.discard(member.member_id)
        else:
            self.behind.add(member.member_id)

    def _count_regex(self, regex: str, difference: int) -> None:
        """Count a member more or less that has a regular expression; empty: it has none."""
        if regex:
            self.regex_members[regex] += difference
            if not self.regex_members[regex]:
                del self.regex_members[regex]

    def _release(self, member: ConsumerMember) -> None:
        """Free the partitions of a member, except for those that another has taken over since."""
        for one in partitions_of(member.assigned) | partitions_of(member.pending_revocation):
            if self.owners.get(one) == member.epoch:
                del self.owners[one]

    def replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        """Take the topics of a regular expression (type 16)."""
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(tuple(value.topics), value.version, value.timestamp)


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _epochs(topics: Iterable[CurrentPartitions], member_epoch: int) -> Epochs:
    """Return partitions with their assignment epochs.

    A record of an earlier release has none; the member's epoch counts for all.
    """
    found: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=False))
    return found


Draft = drafts.Draft[GroupImage, ConsumerGroupRecord]
"""A decision about a consumer group."""


_REPLAYS: dict[type, Callable[[GroupImage, Any, Any], None]] = {
    ConsumerGroupMetadataKey: GroupImage.replay_epoch,
    ConsumerGroupPartitionMetadataKey: GroupImage.replay_nothing,
    ConsumerGroupMemberMetadataKey: GroupImage.replay_subscription,
    ConsumerGroupTargetAssignmentMetadataKey: GroupImage.replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: GroupImage.replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: GroupImage.replay_current,
    ConsumerGroupRegularExpressionKey: GroupImage.replay_regex,
}
