"""One led partition of __consumer_offsets: its state, and the groups that live there.

The states and their order are a table, from which docs/groups.md draws its diagram.
Source: ownedPartitions, loadingPartitions and groupMetadataCache of Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroupResult, OffsetDelete, OffsetDeleteResult
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import Buffer
from tidegauge.transaction_marker import Outcome
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
    to_bytes,
)
from tidegauge_broker.coordinator.gates import Gates
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.states import DEAD, EMPTY, STABLE
from tidegauge_broker.coordinator.led_partitions import LedPartition, ShardState, ShardTransition
from tidegauge_broker.coordinator.loading import Loader, Refused
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.record_codec import NO_SEQUENCE, Record, batch_of
from tidegauge_broker.coordinator.records import group_key, offset_key
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.share_group import records as share_group_records
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.share_group.image import ShareGroupImage

_MAX_EXPIRATIONS = 1_000
"""Maximum number of groups whose last expiration is remembered."""
AnyGroup = Group | ConsumerGroup
"""A group that may have offsets."""
Selection = Callable[[AnyGroup], Sequence[TopicPartition]]
"""Removes offsets from a group, and returns the partitions of those that were materialised."""


SHARD_TRANSITIONS = (
    ShardTransition(None, ShardState.LOADING, "elected, and no other partition is loading"),
    ShardTransition(ShardState.LOADING, ShardState.ACTIVE, "the log was read to its LEO"),
    ShardTransition(ShardState.LOADING, ShardState.FAILED, "the log could not be read to its LEO"),
    ShardTransition(ShardState.ACTIVE, ShardState.UNLOADED, "resigned"),
    ShardTransition(ShardState.FAILED, ShardState.UNLOADED, "resigned, or elected again"),
)


class Expiration(NamedTuple):
    """The offsets of a group that expired in one retention run, and when it was, in ms."""

    at_ms: int
    partitions: tuple[TopicPartition, ...]


class ConsumerTimers(Protocol):
    """Starts and stops the timers of consumer groups."""

    def resume(self, shard: Shard, group: ConsumerGroup) -> None:
        """Start the timers of a group that was loaded."""
        ...

    def stop(self, group: ConsumerGroup) -> None:
        """Stop the timers of a group that is served no longer."""
        ...


class ShareTimers(Protocol):
    """Starts and stops the timers of share groups."""

    def resume(self, shard: Shard, group: ShareGroup) -> None:
        """Start the timers of a group that was loaded."""
        ...

    def stop(self, group: ShareGroup) -> None:
        """Stop the timers of a group that is served no longer."""
        ...


class Shard(LedPartition):
    """A partition that this broker leads.

    Attributes:
        loader: takes the records while the shard is loading.
        groups: the classic groups, and groups that have offsets only, by id.
        consumer_groups: the groups of KIP-848, by id.
        share_groups: the groups of KIP-932, by id; a group is of one type.
        gates: where decisions about a group wait while a change of it is being written.
        open_groups: groups that may have pending offsets of a producer's transaction, by producer id.
        expirations: the last expiration of offsets, of the groups that had one most recently, by id; a group whose last
            offset expires exists no longer.
        refused: groups that are out of service until the next load, by id: a record of theirs could not be served, or a
            decision about them failed unexpectedly.
    """

    def __init__(
        self,
        runtime: GroupRuntime,
        phases: Phases,
        consumer_timers: ConsumerTimers,
        share_timers: ShareTimers,
        partition: int,
        leader_epoch: int,
        since_ms: int,
    ) -> None:
        self._runtime = runtime
        self._phases = phases
        self._consumer_timers = consumer_timers
        self._share_timers = share_timers
        self.partition = partition
        self.loader = self._new_loader()
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.gates = Gates()
        self.expirations: dict[str, Expiration] = {}
        self.refused: dict[str, Refused] = {}
        self.open_groups: dict[int, set[str]] = {}
        super().__init__(runtime, partition, leader_epoch, since_ms, SHARD_TRANSITIONS)

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log; see LedPartition."""
        self.loader.replay(batches)
        self.unknown_versions |= self.loader.unknown_versions

    def activate(self) -> None:
        """End the load: enter the groups that were read, and serve them."""
        runtime = self._runtime
        name = f"__consumer_offsets-{self.partition}"
        groups, refused, consumer_groups, share_groups = self.loader.loaded(runtime.wall_ms)
        unreadable = self.loader.unreadable_keys
        self.forget()
        if unreadable:
            runtime.log(
                f"Ignoring {len(unreadable)} records of {name} whose keys cannot be read, so that they belong to no "
                f"group; the first: {unreadable[0]}",
                "warning",
            )
        for group_id, one in refused.items():
            self.refuse(group_id, one)
        self.groups = {group.group_id: group for group in groups}
        self.consumer_groups = {group.group_id: group for group in consumer_groups}
        self.share_groups = {group.group_id: group for group in share_groups}
        loaded: list[AnyGroup] = [*groups, *consumer_groups]
        for group in loaded:
            for producer_id in group.offsets.pending_transactional:
                self.open_groups.setdefault(producer_id, set()).add(group.group_id)
        self._each(self._resume)
        for share_group in share_groups:
            self._runtime.attempt(
                self.owner(share_group.group_id), partial(self._share_timers.resume, self, share_group)
            )
        took_ms = runtime.now_ms - self.since_ms
        runtime.log(
            f"Finished loading offsets and group metadata from {name} in {took_ms} milliseconds for epoch "
            f"{self.leader_epoch}"
        )
        self.change_state(ShardState.ACTIVE, groups=self.size, load_ms=took_ms)

    def _resume(self, group: AnyGroup) -> None:
        if isinstance(group, ConsumerGroup):
            group.is_uncertain = not self.is_load_committed
            self._consumer_timers.resume(self, group)
        else:
            self._phases.resume(group)

    def forget(self) -> None:
        """Drop what the loader has read."""
        self.loader = self._new_loader()

    def _new_loader(self) -> Loader:
        settings = self._runtime.settings
        return Loader(
            self.partition,
            reads_consumer_groups=settings.serves_consumer_groups,
            reads_share_groups=settings.serves_share_groups,
        )

    @property
    def size(self) -> int:
        """Number of groups of all types."""
        return len(self.groups) + len(self.consumer_groups) + len(self.share_groups)

    def unload(self) -> None:
        """Respond to parked requests with NOT_COORDINATOR, and forget the groups."""
        self._each(self._unload)
        for share_group in self.share_groups.values():
            self._share_timers.stop(share_group)
        for waiting in self.gates.drop_all():
            if waiting.request is not None:
                self._runtime.respond(waiting.token, self._runtime.failure(waiting.request, ErrorCode.NOT_COORDINATOR))
        self._runtime.log(
            f"Finished unloading __consumer_offsets-{self.partition} for coordinator epoch {self.leader_epoch}. "
            f"Removed {self.size} cached groups."
        )
        self.groups, self.consumer_groups, self.share_groups, self.refused = {}, {}, {}, {}
        self.change_state(ShardState.UNLOADED)

    def _unload(self, group: AnyGroup) -> None:
        if isinstance(group, ConsumerGroup):
            self._consumer_timers.stop(group)
        else:
            self._phases.unload(group)

    def owner(self, group_id: str) -> Owner:
        """Return a group's name as owner of timers, outcomes and requests."""
        return Owner(self.partition, group_id)

    def take_out_of_service(self, group_id: str, cause: str) -> None:
        """Forget a group about which a decision has failed; its state, which may be half changed, is not looked at."""
        group = self.groups.pop(group_id, None)
        consumer_group = self.consumer_groups.pop(group_id, None)
        share_group = self.share_groups.pop(group_id, None)
        self.gates.drop(group_id)
        one: AnyGroup | None = consumer_group or group
        keys = (
            () if consumer_group is None else tuple(to_bytes(each).key for each in tombstones_of(consumer_group.image))
        )
        if share_group is not None:
            keys = tuple(share_group_records.to_bytes(each).key for each in tombstones_of_share(share_group.image))
        self.refuse(group_id, Refused(cause, () if one is None else tuple(one.offsets.partitions()), keys))

    def refuse(self, group_id: str, refused: Refused) -> None:
        """Serve a group no longer, until the next load or its deletion."""
        self.refused[group_id] = refused
        reason = f"out of service: {refused.cause}"
        self._runtime.note("group", group_id, new=DEAD.value, generation=-1, members=0, reason=reason)
        self._runtime.log(
            f"Group '{group_id}' (__consumer_offsets-{self.partition}) is out of service: {refused.cause}. Its "
            "requests get UNKNOWN_SERVER_ERROR; other groups are served. Delete the group, with its offsets, to use "
            "its name again; another leader of the partition, or a restart of this one, loads it again.",
            "error",
        )

    def group_for_join(self, group_id: str, member_id: str) -> Group | None:
        """Return a group, or None; a JoinGroup without member id creates it."""
        return self.groups.get(group_id) if member_id else self.group_or_new(group_id)

    def group_or_new(self, group_id: str) -> Group:
        """Return a group, which is created Empty in memory if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.partition, self._runtime.wall_ms)
        return group

    def complete_transaction(self, producer_id: int, outcome: Outcome, marker_offset: int) -> None:
        """Materialise or drop the offsets of a producer's transaction before its marker in all groups.

        A group that was deleted meanwhile loses them here; they are in the log, so the next load of a committed
        transaction brings them back, as in Kafka.
        """

        def complete(group: AnyGroup) -> None:
            if group.offsets.complete_transaction(producer_id, outcome, marker_offset):
                self.open_groups.setdefault(producer_id, set()).add(group.group_id)

        self._each(complete, sorted(self.open_groups.pop(producer_id, ())))

    # Removal

    def delete_group(self, group_id: str) -> DeleteGroupResult:
        """Delete a group without members, with its offsets. The tombstones are not waited for."""
        refused = self.refused.pop(group_id, None)
        if refused is not None:
            return self._delete_refused(group_id, refused)
        consumer_group = self.consumer_groups.get(group_id)
        group = consumer_group or self.groups.get(group_id)
        if group is None:
            return DeleteGroupResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state not in {EMPTY, ConsumerGroupState.EMPTY}:
            return DeleteGroupResult(ErrorCode.NON_EMPTY_GROUP)
        if isinstance(group, Group):
            self._phases.change_state(group, DEAD, "deleted")
        else:
            # Its removal does not wait for pending offsets, which go with it.
            group.offsets.remove([one for one in group.offsets.partitions() if one not in group.offsets.materialised])
        removed = self.clean(group, lambda group: group.offsets.remove(list(group.offsets.materialised)))
        self._runtime.log(f"The following groups were deleted: {group_id}. A total of {removed} offsets were removed.")
        return DeleteGroupResult()

    def _delete_refused(self, group_id: str, refused: Refused) -> DeleteGroupResult:
        """Delete what the log has of a group that is out of service, so that its name can be used again."""
        tombstones = [Record(offset_key(group_id, topic_partition), None) for topic_partition in refused.partitions]
        tombstones += [Record(key, None) for key in refused.keys]
        self._append_tombstones([*tombstones, Record(group_key(group_id), None)])
        self._runtime.log(f"Group {group_id}, which was out of service, was deleted.")
        return DeleteGroupResult()

    def delete_offsets(self, request: OffsetDelete) -> OffsetDeleteResult:
        """Delete offsets of a group, except for topics that its members are subscribed to (KIP-496)."""
        group_id = request.group_id or ""
        group = self.consumer_groups.get(group_id) or self.groups.get(group_id)
        if group is None:
            return OffsetDeleteResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, Group) and group.state is not EMPTY and not group.is_consumer_group:
            return OffsetDeleteResult(ErrorCode.NON_EMPTY_GROUP)
        is_subscribed_to = _subscriptions_of(group)
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic_partition in request.partitions:
            subscribed = is_subscribed_to(topic_partition.topic)
            errors[topic_partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        eligible = [topic_partition for topic_partition, error in errors.items() if error is ErrorCode.NONE]
        if eligible:
            removed = self.clean(group, lambda group: group.offsets.remove(eligible))
            self._runtime.counters.offset_deletions += removed
        return OffsetDeleteResult(partitions=errors)

    def remove_partitions(self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]) -> int:
        """Remove the offsets of deleted partitions, of topics with these ids, from all groups; return how many."""
        return self._clean_each(lambda group: group.offsets.remove(partitions, topic_ids))

    def expire_offsets(self) -> int:
        """Remove expired offsets, and groups without any left; return the number of offsets."""
        return self._clean_each(self._expire)

    def _clean_each(self, select: Selection) -> int:
        removed: list[int] = []
        self._each(lambda group: removed.append(self.clean(group, select)))
        return sum(removed)

    def _each(self, act: Callable[[AnyGroup], None], group_ids: Iterable[str] | None = None) -> None:
        """Do something to each group, or to some: a decision for each, which fails alone."""
        for group_id in [*self.groups, *self.consumer_groups] if group_ids is None else group_ids:
            group = self.consumer_groups.get(group_id) or self.groups.get(group_id)
            if group is not None:
                self._runtime.attempt(self.owner(group_id), partial(act, group))

    def _expire(self, group: AnyGroup) -> list[TopicPartition]:
        """Remove a group's expired offsets, and note which (KIP-211; GroupMetadata.removeExpiredOffsets)."""
        expired = self._take_expired(group)
        if expired:
            self._runtime.note("offsets", group.group_id, partitions=[str(one) for one in expired])
            self.expirations.pop(group.group_id, None)
            self.expirations[group.group_id] = Expiration(self._runtime.now_ms, tuple(expired))
            if len(self.expirations) > _MAX_EXPIRATIONS:
                del self.expirations[next(iter(self.expirations))]
        return expired

    def _take_expired(self, group: AnyGroup) -> list[TopicPartition]:
        """Remove a group's expired offsets.

        A group whose members left keeps its offsets from that moment on. A Stable group of consumers keeps its
        subscriptions' offsets. A group that never had members keeps each offset from its commit; any other keeps all. A
        consumer group of KIP-848 keeps its subscriptions' offsets, and others from their commits
        (OffsetMetadataManager.cleanupExpiredOffsets).
        """
        now_ms, retention_ms = self._runtime.wall_ms, self._runtime.settings.offsets_retention_ms
        offsets = group.offsets
        if isinstance(group, ConsumerGroup):
            subscribed = group.image.subscribed_topics()
            return offsets.expire(now_ms, retention_ms, lambda committed: committed.commit_timestamp_ms, subscribed)
        if group.protocol_type is None:
            return offsets.expire(now_ms, retention_ms, lambda committed: committed.commit_timestamp_ms)
        if group.state is EMPTY:
            since_ms = group.state_since_ms
            return offsets.expire(
                now_ms,
                retention_ms,
                lambda committed: committed.commit_timestamp_ms if since_ms is None else since_ms,
            )
        if group.state is STABLE and group.is_consumer_group and group.topics is not None:
            return offsets.expire(now_ms, retention_ms, lambda committed: committed.commit_timestamp_ms, group.topics)
        return []

    def clean(self, group: AnyGroup, select: Selection) -> int:
        """Remove offsets from a group, and the group if it has nothing left; append their tombstones.

        A group in generation 0 has no record, so it gets no tombstone (GroupMetadataManager.cleanupGroupMetadata).

        Returns:
            How many materialised offsets were removed.
        """
        runtime = self._runtime
        removed = select(group)
        if isinstance(group, ConsumerGroup):
            self._clean_consumer_group(group, removed)
            return len(removed)
        if group.state is EMPTY and not group.offsets.has_any:
            runtime.log(f"Group {group.group_id} transitioned to Dead in generation {group.generation}")
            self._phases.change_state(group, DEAD, "no offsets are left")
        tombstones = [Record(offset_key(group.group_id, topic_partition), None) for topic_partition in removed]
        if group.state is DEAD:
            self._phases.stop_timers(group)
            del self.groups[group.group_id]
            if group.generation > 0:
                tombstones.append(Record(group_key(group.group_id), None))
        self._append_tombstones(tombstones)
        return len(removed)

    def _clean_consumer_group(self, group: ConsumerGroup, removed: Sequence[TopicPartition]) -> None:
        """Append the tombstones of a consumer group's offsets, and of the group if it has nothing left."""
        group_id = group.group_id
        tombstones = [Record(offset_key(group_id, topic_partition), None) for topic_partition in removed]
        if not group.image.members and not group.offsets.has_any and not self.gates.is_closed(group_id):
            tombstones += map(to_bytes, group_tombstones(group_id))
            self._consumer_timers.stop(group)
            del self.consumer_groups[group_id]
            self._runtime.note(
                "group",
                group_id,
                old=ConsumerGroupState.EMPTY.value,
                new=DEAD.value,
                generation=group.image.epoch,
                members=0,
                reason="no offsets are left",
            )
        self._append_tombstones(tombstones)

    def remove_classic(self, group_id: str) -> None:
        """Forget a classic group in whose place there is a consumer group now."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            self._phases.convert(group)

    def _append_tombstones(self, tombstones: Sequence[Record]) -> None:
        runtime = self._runtime
        if tombstones:
            compression = runtime.settings.offsets_topic_compression_codec
            batch = batch_of(tombstones, runtime.wall_ms, NO_SEQUENCE, compression)
            runtime.append_unacknowledged(self.partition, batch)


def tombstones_of(image: GroupImage) -> list[ConsumerGroupRecord]:
    """Return the tombstones of all records that a consumer group has."""
    group_id = image.group_id
    return [
        *(one for member_id in image.members for one in member_tombstones(group_id, member_id)),
        *(regex_tombstone(group_id, regex) for regex in image.regexes),
        *group_tombstones(group_id),
    ]


def tombstones_of_share(image: ShareGroupImage) -> list[share_group_records.ShareGroupRecord]:
    """Return the tombstones of all records that a share group has."""
    group_id = image.group_id
    return [
        *(one for member_id in image.members for one in share_group_records.member_tombstones(group_id, member_id)),
        *share_group_records.group_tombstones(group_id),
    ]


def _subscriptions_of(group: AnyGroup) -> Callable[[str], bool]:
    """Return a predicate: whether members are subscribed to a topic."""
    if isinstance(group, ConsumerGroup):
        return group.image.subscribed_topics().__contains__
    return group.is_subscribed_to if group.state is not EMPTY else lambda _: False
