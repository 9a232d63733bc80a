"""The image of a share group: the group is the fold of its records, live and after a load.

Source: ShareGroup, ModernGroup and the replay methods of GroupMetadataManager of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tidegauge.kafka.coordinator.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from tidegauge.kafka.coordinator.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from tidegauge.kafka.coordinator.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from tidegauge.kafka.coordinator.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from tidegauge.kafka.coordinator.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from tidegauge.kafka.coordinator.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidegauge.share_groups import ShareGroupState
from tidegauge_broker.coordinator import drafts
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.consumer_group.assignors.timeline_map import TimelineMap
from tidegauge_broker.coordinator.share_group.member import ShareMember
from tidegauge_broker.coordinator.share_group.records import ShareGroupRecord, states_of
from tidegauge_broker.coordinator.share_group.states import NO_STATES, StatesOfPartitions
from tidegauge_broker.coordinator.typed_records import MAX_EPOCH

FIRST_EPOCH = 1
"""Epoch of a group that has no record yet."""


@dataclass(slots=True)
class ShareGroupImage:
    """A group.

    Attributes:
        epoch: of the group; rises when its target assignment must be computed again.
        assignment_epoch: of the target assignment.
        assignment_timestamp_ms: when that was computed; 0: not known.
        targets: by member id.
        states: which share partitions are initialized; None: no record says so.
        has_epoch: whether a record of the group's epoch was read.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: TimelineMap[ShareMember] = field(default_factory=TimelineMap[ShareMember])
    targets: dict[str, Partitions] = field(default_factory=dict[str, Partitions])
    states: StatesOfPartitions | None = None
    has_epoch: bool = False

    def copied(self) -> ShareGroupImage:
        """Return a copy that can be changed by records without changing this image."""
        return replace(self, members=TimelineMap(self.members), targets=dict(self.targets))

    @property
    def items(self) -> int:
        """Number of topics that members have named, and of partitions in their targets."""
        named = sum(len(member.topic_names) for member in self.members.values())
        return named + sum(len(partitions) for target in self.targets.values() for _, partitions in target)

    @property
    def state(self) -> ShareGroupState:
        """State of the group, which follows from its members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def known_states(self) -> StatesOfPartitions:
        """The share partitions that are initialized."""
        return self.states or NO_STATES

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members have the same subscription (SubscriptionType)."""
        return len({frozenset(member.topic_names) for member in self.members.values()}) <= 1

    def subscribed_topics(self, without: Iterable[str] = ()) -> set[str]:
        """Return all topics that members are subscribed to, except for some members."""
        left_out = set(without)
        return {
            name for member_id, one in self.members.items() if member_id not in left_out for name in one.topic_names
        }

    # Replay

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a record; records of unknown members, which compaction may leave, are applied too."""
        _REPLAYS[type(record.key)](self, record.key, record.value)

    def replay_epoch(self, _key: Any, value: ShareGroupMetadataValue | None) -> None:
        """Take the group's epoch (type 11)."""
        self.has_epoch = value is not None
        if value is None:
            self.epoch, self.metadata_hash = FIRST_EPOCH, 0
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def replay_subscription(
        self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None
    ) -> None:
        """Take what a member is and is subscribed to (type 10)."""
        if value is None:
            self.members.pop(key.member_id, None)
            return
        self.members[key.member_id] = replace(
            self.members.get(key.member_id) or ShareMember(key.member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(dict.fromkeys(value.subscribed_topic_names)),
        )

    def replay_target_epoch(self, _key: Any, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        """Take the epoch of the target assignment (type 12)."""
        if value is None:
            self.assignment_epoch, self.assignment_timestamp_ms = FIRST_EPOCH, 0
        else:
            self.assignment_epoch, self.assignment_timestamp_ms = value.assignment_epoch, value.assignment_timestamp

    def replay_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Take a member's target assignment (type 13)."""
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = tuple(
                (bytes(one.topic_id), tuple(one.partitions)) for one in value.topic_partitions
            )

    def replay_current(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Take a member's epoch and partitions (type 14)."""
        former = self.members.get(key.member_id)
        if value is None:
            if former is not None:
                self.members[key.member_id] = replace(former, epoch=0, previous_epoch=0, assigned=())
            return
        self.members[key.member_id] = replace(
            former or ShareMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=tuple((bytes(one.topic_id), tuple(one.partitions)) for one in value.assigned_partitions),
        )

    def replay_states(self, _key: Any, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        """Take which share partitions are initialized (type 15)."""
        self.states = None if value is None else states_of(value)


ShareDraft = drafts.Draft[ShareGroupImage, ShareGroupRecord]
"""A decision about a share group."""
_REPLAYS: dict[type, Callable[[ShareGroupImage, Any, Any], None]] = {
    ShareGroupMetadataKey: ShareGroupImage.replay_epoch,
    ShareGroupMemberMetadataKey: ShareGroupImage.replay_subscription,
    ShareGroupTargetAssignmentMetadataKey: ShareGroupImage.replay_target_epoch,
    ShareGroupTargetAssignmentMemberKey: ShareGroupImage.replay_target,
    ShareGroupCurrentMemberAssignmentKey: ShareGroupImage.replay_current,
    ShareGroupStatePartitionMetadataKey: ShareGroupImage.replay_states,
}


def exists(image: ShareGroupImage) -> bool:
    """Whether the group has records; after its tombstones it has none."""
    return image.has_epoch or image.states is not None or bool(image.members)


def incoherence(image: ShareGroupImage) -> str | None:
    """Return why a group's records are incoherent, as a clause, or None.

    No coordinator can have written such records.
    """
    if not FIRST_EPOCH <= image.epoch <= MAX_EPOCH:
        return f"its epoch is {image.epoch}"
    if not 0 <= image.assignment_epoch <= image.epoch:
        return f"its assignment epoch is {image.assignment_epoch}, and its epoch {image.epoch}"
    for member in image.members.values():
        if not member.member_id:
            return "a member has an empty id"
        if not 0 <= member.epoch <= image.epoch:
            return f"member '{member.member_id}' has epoch {member.epoch}, and the group {image.epoch}"
    return None


def settle(image: ShareGroupImage) -> None:
    """Forget targets of members that are not there, which compaction may have left behind."""
    image.targets = {member_id: target for member_id, target in image.targets.items() if member_id in image.members}
