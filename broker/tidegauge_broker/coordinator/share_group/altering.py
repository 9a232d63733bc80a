"""An administrator begins partitions of a share group at other offsets, or has their states forgotten.

Both need a group without members. An offset is not looked at: one below the log start is corrected by the partition's
leader at the first fetch, one beyond the end of the log has members wait. A partition that a topic does not have is
unknown; a negative one fails the request, as no state can be asked for (DefaultStatePersister.validate).
An alteration is written before the share coordinator is asked, also one that names no partition of a topic that exists.
One that fails is not taken back: the group exists, and its partitions are initializing until a heartbeat begins them,
after group.share.initialize.retry.interval.ms (GroupCoordinatorService.persisterInitialize, which uninitializes
partitions after a heartbeat alone).
Source: GroupMetadataManager (alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion,
completeDeleteShareGroupOffsets); GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    AlteredOffset,
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DeleteShareState,
    InitializeShareState,
    SharePartitionKey,
)
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription, Topics
from tidegauge_broker.coordinator.effects import ChangeShareStates
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import Shard
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.share_group.image import ShareGroupImage
from tidegauge_broker.coordinator.share_group.serving import ShareGroups, keys_of
from tidegauge_broker.coordinator.share_group.states import StatesOfPartitions, TopicStates

_UNKNOWN = AlteredOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
_NOT_EMPTY = "The group is not empty."


class ShareOffsets:
    """Alters and deletes the offsets of share groups."""

    def __init__(self, runtime: GroupRuntime, topics: Topics, groups: ShareGroups) -> None:
        self._runtime = runtime
        self._topics = topics
        self._groups = groups

    # Alter

    def alter(self, shard: Shard, request: AlterShareOffsets, token: object, _uuid: str) -> None:
        """Begin partitions at other offsets; the response comes when the share coordinator has begun them."""
        group_id = request.group_id or ""
        group = shard.share_groups.get(group_id)
        if not request.offsets:
            self._runtime.respond(token, AlterShareOffsetsResult())
            return
        if group is None and (group_id in shard.groups or group_id in shard.consumer_groups):
            message = f"Group {group_id} is not a share group."
            self._runtime.respond(token, AlterShareOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND, message))
            return
        if group is not None and group.image.members:
            self._runtime.respond(token, AlterShareOffsetsResult(ErrorCode.NON_EMPTY_GROUP, _NOT_EMPTY))
            return
        has_negative = self._has_negative_partitions(request)
        altered = group or ShareGroup(ShareGroupImage(group_id), shard.partition, self._runtime.wall_ms)
        starts = self._starts(group_id, request)
        named = self._named(request)
        if not named:
            self._runtime.respond(token, self._result(request, {}))
            return

        def begun(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._runtime.respond(token, AlterShareOffsetsResult(error))
                return
            if has_negative:
                message = "Partition numbers begin with 0; the request has a negative one."
                self._runtime.respond(token, AlterShareOffsetsResult(ErrorCode.UNKNOWN_SERVER_ERROR, message))
                return
            if not starts:
                self._runtime.respond(token, self._result(request, {}))
                return
            requests = tuple(
                InitializeShareState(key, altered.image.epoch, start) for key, start in sorted(starts.items())
            )
            self._runtime.effects.append(ChangeShareStates(self._runtime.awaited(initialized), requests))

        def initialized(errors: Mapping[SharePartitionKey, ErrorCode]) -> None:
            found = errors or dict.fromkeys(starts, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if all(error is ErrorCode.NONE for error in found.values()):
                self._groups.initialized(shard, altered, _by_topic(starts), found)
            self._runtime.respond(token, self._result(request, found))

        self._groups.write_states(shard, altered, altered.image.known_states.begun(named), begun)

    def _has_negative_partitions(self, request: AlterShareOffsets) -> bool:
        return any(
            partition < 0
            for name, offsets in request.offsets.items()
            if name in self._topics.by_name
            for partition in offsets
        )

    def _starts(self, group_id: str, request: AlterShareOffsets) -> dict[SharePartitionKey, int]:
        """Return the start offsets of the partitions that exist."""
        return {
            SharePartitionKey(group_id, topic.topic_id, partition): offset
            for name, offsets in request.offsets.items()
            if (topic := self._topics.by_name.get(name)) is not None
            for partition, offset in offsets.items()
            if 0 <= partition < topic.partitions
        }

    def _named(self, request: AlterShareOffsets) -> dict[bytes, TopicStates]:
        """Return the topics that exist, with the partitions that they have."""
        return {
            topic.topic_id: TopicStates(name, frozenset(one for one in offsets if 0 <= one < topic.partitions))
            for name, offsets in request.offsets.items()
            if (topic := self._topics.by_name.get(name)) is not None
        }

    def _result(
        self, request: AlterShareOffsets, errors: Mapping[SharePartitionKey, ErrorCode]
    ) -> AlterShareOffsetsResult:
        def altered(topic: TopicDescription | None, partition: int) -> AlteredOffset:
            if topic is None or not 0 <= partition < topic.partitions:
                return _UNKNOWN
            key = SharePartitionKey(request.group_id or "", topic.topic_id, partition)
            return AlteredOffset(errors.get(key, ErrorCode.NONE))

        return AlterShareOffsetsResult(
            partitions={
                name: {partition: altered(self._topics.by_name.get(name), partition) for partition in offsets}
                for name, offsets in request.offsets.items()
            }
        )

    # Delete

    def delete(self, shard: Shard, request: DeleteShareOffsets, token: object, _uuid: str) -> None:
        """Have the states of topics forgotten; the response comes when the share coordinator has forgotten them."""
        group_id = request.group_id or ""
        group = shard.share_groups.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            self._runtime.respond(token, DeleteShareOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND, message))
            return
        if group.image.members:
            self._runtime.respond(token, DeleteShareOffsetsResult(ErrorCode.NON_EMPTY_GROUP, _NOT_EMPTY))
            return
        states = group.image.known_states
        results, deleted = self._deletable(states, request)
        if not deleted:
            self._runtime.respond(token, DeleteShareOffsetsResult(topics=results))
            return
        names = {topic_id: topic.name for topic_id, topic in deleted.items()}
        keys = keys_of(group_id, {topic_id: topic.partitions for topic_id, topic in deleted.items()})

        def begun(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._runtime.respond(token, DeleteShareOffsetsResult(error))
                return
            requests = tuple(DeleteShareState(key) for key in keys)
            self._runtime.effects.append(ChangeShareStates(self._runtime.awaited(forgotten), requests))

        def forgotten(errors: Mapping[SharePartitionKey, ErrorCode]) -> None:
            found = errors or dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            failed = {key.topic_id: error for key, error in found.items() if error is not ErrorCode.NONE}
            done = [topic_id for topic_id in names if topic_id not in failed]
            self._groups.change_states(shard, group, lambda states: states.forgotten(done))
            topics = {name: AlteredOffset(failed.get(topic_id, ErrorCode.NONE)) for topic_id, name in names.items()}
            self._runtime.respond(token, DeleteShareOffsetsResult(topics=results | topics))

        self._groups.write_states(shard, group, states.deleted(names), begun)

    def _deletable(
        self, states: StatesOfPartitions, request: DeleteShareOffsets
    ) -> tuple[dict[str, AlteredOffset], dict[bytes, TopicStates]]:
        """Return the undeletable topics' errors, and the others' partitions."""
        results: dict[str, AlteredOffset] = {}
        deleted: dict[bytes, TopicStates] = {}
        for name in request.topics:
            topic = self._topics.by_name.get(name)
            if topic is None:
                results[name] = _UNKNOWN
            elif topic.topic_id in states.initialized:
                deleted[topic.topic_id] = states.initialized[topic.topic_id]
            elif topic.topic_id in states.deleting:
                deleted[topic.topic_id] = TopicStates(name, frozenset(range(topic.partitions)))
            else:
                message = "There is no offset information to delete."
                results[name] = AlteredOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return results, deleted


def _by_topic(starts: Mapping[SharePartitionKey, int]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for key in starts:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
