"""Serves share groups: heartbeats, sessions, and the states of their partitions at the share coordinator.

Source: GroupMetadataManager; GroupCoordinatorService (persisterInitialize, deleteShareGroups).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tidegauge.consumer_groups import JOINING_EPOCH
from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroupResult
from tidegauge.share_groups import (
    NO_START_OFFSET,
    DeleteShareState,
    InitializeShareState,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    SharePartitionKey,
)
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.effects import ChangeShareStates
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.group_writes import Written, append
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes
from tidegauge_broker.coordinator.shard import Shard
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.share_group.heartbeats import ShareCircumstances, beat, leave
from tidegauge_broker.coordinator.share_group.image import ShareDraft, ShareGroupImage
from tidegauge_broker.coordinator.share_group.records import group_tombstones, states_record, to_bytes
from tidegauge_broker.coordinator.share_group.states import InitializedTopics, PartitionsById, StatesOfPartitions

RETRY_MS = 500
"""After a failed write of a timer's decision it is tried again (CoordinatorTimerImpl.schedule)."""


class ShareGroups:
    """Handles heartbeats, timers and states of the share groups of a coordinator."""

    def __init__(self, runtime: GroupRuntime, topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics
        self._own_times: dict[str, ConsumerGroupTimes] = {}

    def set_times(self, group_id: str, times: ConsumerGroupTimes | None) -> None:
        """Give a group times of its own, or (None) take them from it."""
        if times is None:
            self._own_times.pop(group_id, None)
        else:
            self._own_times[group_id] = times

    def _times_of(self, group_id: str) -> ConsumerGroupTimes:
        """Return the times of a group: its own, else the broker's."""
        return self._own_times.get(group_id, self._runtime.settings.share_times)

    # Heartbeats

    def heartbeat(self, shard: Shard, request: ShareGroupHeartbeat, token: object, _uuid: str) -> None:
        """Handle a heartbeat; its response comes when what it changes is committed."""
        try:
            if request.member_epoch < JOINING_EPOCH:
                self._leave(shard, request, token)
            else:
                self._beat(shard, request, token)
        except GroupRefusal as refusal:
            self._runtime.respond(token, ShareGroupHeartbeatResult(refusal.error, refusal.message))

    def _beat(self, shard: Shard, request: ShareGroupHeartbeat, token: object) -> None:
        group = self._group_for(shard, request)
        requests, draft = group.refresh_requests, ShareDraft(group.image)
        outcome = beat(draft, request, self._circumstances(group))

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._runtime.respond(token, ShareGroupHeartbeatResult(error))
                return
            group.refreshed(requests)
            self._runtime.counters.share_group_rebalances += outcome.has_bumped
            self._restart_session(shard, group, request.member_id)
            self._runtime.respond(token, outcome.result)
            self._initialize(shard, group, outcome.to_initialize)

        self._write(shard, group, draft, written)

    def _group_for(self, shard: Shard, request: ShareGroupHeartbeat) -> ShareGroup:
        """Return the group of a heartbeat, which a joining member creates."""
        group_id = request.group_id or ""
        group = shard.share_groups.get(group_id)
        if group is not None:
            return group
        if group_id in shard.groups or group_id in shard.consumer_groups:
            raise _not_a_share_group(group_id)
        if request.member_epoch != JOINING_EPOCH:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(ShareGroupImage(group_id), shard.partition, self._runtime.wall_ms)

    def _circumstances(self, group: ShareGroup) -> ShareCircumstances:
        settings, now_ms = self._runtime.settings, self._runtime.wall_ms
        times = self._times_of(group.group_id)
        return ShareCircumstances(
            topics=self._topics,
            now_ms=now_ms,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
            assignment_interval_ms=times.assignment_interval_ms,
            max_size=settings.share_max_size,
            is_refresh_due=group.is_refresh_due,
            retries_initialization=now_ms - group.states_since_ms >= settings.share_initialize_retry_interval_ms,
        )

    def _leave(self, shard: Shard, request: ShareGroupHeartbeat, token: object) -> None:
        group_id = request.group_id or ""
        group = shard.share_groups.get(group_id)
        if group is None:
            if group_id in shard.groups or group_id in shard.consumer_groups:
                raise _not_a_share_group(group_id)
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        draft = ShareDraft(group.image)
        leave(draft, request.member_id, self._topics)
        result = ShareGroupHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        self._runtime.log(f"[GroupId {group_id}] Member {request.member_id} left the share group.")

        def written(error: ErrorCode) -> None:
            self._runtime.respond(token, result if error is ErrorCode.NONE else ShareGroupHeartbeatResult(error))

        self._write(shard, group, draft, written)

    # Writing

    def _write(self, shard: Shard, group: ShareGroup, draft: ShareDraft, written: Written) -> None:
        """Write a decision's records, and put its state in force when they are committed; without any, at once."""
        records = [to_bytes(one) for one in draft.records]
        append(self._runtime, shard, group.group_id, records, lambda: self._install(shard, group, draft), written)

    def _install(self, shard: Shard, group: ShareGroup, draft: ShareDraft) -> None:
        """Put a decision's state in force, with the timers that follow from it."""
        former = group.image
        is_new = shard.share_groups.get(group.group_id) is not group
        group.image = draft.image
        if draft.image.states is not former.states:
            group.states_since_ms = self._runtime.wall_ms
        for member_id in former.members.keys() - draft.image.members.keys():
            self._runtime.timers.cancel(group.sessions.pop(member_id, None))
        if is_new:
            shard.share_groups[group.group_id] = group
        if is_new or former.state is not draft.image.state:
            self._note_state(group, None if is_new else former)

    def _note_state(self, group: ShareGroup, former: ShareGroupImage | None) -> None:
        self._runtime.note(
            "group",
            group.group_id,
            old=None if former is None else former.state.value,
            new=group.state.value,
            generation=group.image.epoch,
            members=len(group.image.members),
            reason="",
        )

    def write_states(self, shard: Shard, group: ShareGroup, states: StatesOfPartitions, written: Written) -> None:
        """Write which share partitions of a group are initialized; no write of the group is in flight."""
        draft = ShareDraft(group.image)
        draft.add(states_record(group.group_id, states))
        self._write(shard, group, draft, written)

    # States of partitions

    def _initialize(self, shard: Shard, group: ShareGroup, topics: InitializedTopics) -> None:
        """Have the share coordinator begin the states of partitions; the heartbeat does not wait for it."""
        if not topics:
            return
        partitions = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        requests = tuple(
            InitializeShareState(key, group.image.epoch, NO_START_OFFSET) for key in keys_of(group.group_id, partitions)
        )
        go_on = partial(self.initialized, shard, group, partitions)
        self._runtime.effects.append(ChangeShareStates(self._runtime.awaited(go_on), requests))

    def initialized(
        self, shard: Shard, group: ShareGroup, partitions: PartitionsById, errors: Mapping[SharePartitionKey, ErrorCode]
    ) -> None:
        """Take note of the share coordinator's responses: one that fails has all of them tried again later."""
        failed = {key: error for key, error in errors.items() if error is not ErrorCode.NONE}
        if failed or not errors:
            key, error = next(iter(failed.items()), ("its partitions", ErrorCode.COORDINATOR_NOT_AVAILABLE))
            self._runtime.log(
                f"[GroupId {group.group_id}] The share coordinator has not initialized {key}: {error.name}. A later "
                "heartbeat of the group tries again.",
                "warning",
            )

        def change(states: StatesOfPartitions) -> StatesOfPartitions:
            return states.failed(partitions) if failed or not errors else states.completed(partitions, self._topics)

        self.change_states(shard, group, change)

    def change_states(
        self, shard: Shard, group: ShareGroup, change: Callable[[StatesOfPartitions], StatesOfPartitions]
    ) -> None:
        """Change which share partitions of a group are initialized, when no write of the group is in flight."""

        def act() -> None:
            states = group.image.known_states
            changed = change(states)
            if not group.is_dead and changed != states:
                self.write_states(shard, group, changed, lambda _: None)

        shard.gates.enter(group.group_id, Waiting(act))

    def topics_changed(self, shard: Shard, group: ShareGroup, names: set[str], deleted: list[bytes]) -> None:
        """Have the next heartbeat look at topics that have changed, and forget the partitions of deleted ones.

        The share coordinator forgets their states by itself.

        Args:
            shard: of the group.
            group: the group.
            names: of the topics that were created, altered or deleted.
            deleted: ids of those that exist no longer.
        """
        if not names.isdisjoint(group.image.subscribed_topics()):
            group.request_refresh()
        if group.image.known_states.names(deleted):
            self.change_states(shard, group, lambda states: states.without_topics(deleted))

    # Deletion

    def delete(self, shard: Shard, group: ShareGroup, token: object) -> None:
        """Delete a group without members: first its states at the share coordinator, then its records."""
        if group.image.members:
            self._runtime.respond(token, DeleteGroupResult(ErrorCode.NON_EMPTY_GROUP))
            return
        topics = group.image.known_states.to_delete(self._topics)
        partitions = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        requests = tuple(DeleteShareState(key) for key in keys_of(group.group_id, partitions))

        def deleted(errors: Mapping[SharePartitionKey, ErrorCode]) -> None:
            error = next((one for one in errors.values() if one is not ErrorCode.NONE), ErrorCode.NONE)
            if error is ErrorCode.NONE:
                shard.gates.enter(group.group_id, Waiting(partial(self._forget, shard, group, token)))
            else:
                self._runtime.respond(token, DeleteGroupResult(error))

        def begun(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._runtime.respond(token, DeleteGroupResult(error))
            elif requests:
                self._runtime.effects.append(ChangeShareStates(self._runtime.awaited(deleted), requests))
            else:
                self._forget(shard, group, token)

        if group.image.states is None:
            self._forget(shard, group, token)
        else:
            self.write_states(shard, group, group.image.known_states.all_deleting(self._topics), begun)

    def _forget(self, shard: Shard, group: ShareGroup, token: object) -> None:
        """Write a group's tombstones, and forget it when they are committed."""
        if group.is_dead or group.image.members:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group.is_dead else ErrorCode.NON_EMPTY_GROUP
            self._runtime.respond(token, DeleteGroupResult(error))
            return

        def install() -> None:
            former = group.image
            self.stop(group)
            del shard.share_groups[group.group_id]
            self._note_state(group, former)

        def written(error: ErrorCode) -> None:
            self._runtime.respond(token, DeleteGroupResult(error))

        records = [to_bytes(one) for one in group_tombstones(group.group_id)]
        append(self._runtime, shard, group.group_id, records, install, written)

    # Sessions

    def resume(self, shard: Shard, group: ShareGroup) -> None:
        """Start the sessions of a group that was loaded, each in full."""
        for member_id in group.image.members:
            self._restart_session(shard, group, member_id)

    def stop(self, group: ShareGroup) -> None:
        """Stop all timers of a group that is served no longer."""
        group.is_dead = True
        for timer in group.sessions.values():
            self._runtime.timers.cancel(timer)

    def _restart_session(self, shard: Shard, group: ShareGroup, member_id: str) -> None:
        """Start a member's session timer again: it was heard of."""
        if member_id not in group.image.members:
            return
        deadline_ms = self._runtime.now_ms + self._times_of(group.group_id).session_timeout_ms
        timer = group.sessions.get(member_id)
        if timer is not None and timer.action is not None:
            self._runtime.timers.postpone(timer, deadline_ms)
        else:
            expire = partial(self._expire, shard, group, member_id)
            group.sessions[member_id] = self._runtime.start_timer(deadline_ms, "SessionExpiration", expire)

    def _expire(self, shard: Shard, group: ShareGroup, member_id: str) -> None:
        """Remove a member that was not heard of, when no write of the group is in flight."""
        shard.gates.enter(group.group_id, Waiting(partial(self._fence, shard, group, member_id)))

    def _fence(self, shard: Shard, group: ShareGroup, member_id: str) -> None:
        timer = group.sessions.get(member_id)
        was_heard_of = timer is not None and timer.action is not None
        if group.is_dead or member_id not in group.image.members or was_heard_of:
            return
        self._runtime.log(f"[GroupId {group.group_id}] Member {member_id} fenced from the group: its session expired.")
        draft = ShareDraft(group.image)
        leave(draft, member_id, self._topics)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE and not group.is_dead and member_id in group.image.members:
                retry = partial(self._expire, shard, group, member_id)
                due_ms = self._runtime.now_ms + RETRY_MS
                group.sessions[member_id] = self._runtime.start_timer(due_ms, "Retry", retry)

        self._write(shard, group, draft, written)


def keys_of(group_id: str, partitions: PartitionsById) -> list[SharePartitionKey]:
    """Return the share partitions of a group, in ascending order."""
    return [
        SharePartitionKey(group_id, topic_id, partition)
        for topic_id in sorted(partitions)
        for partition in sorted(partitions[topic_id])
    ]


def _not_a_share_group(group_id: str) -> GroupRefusal:
    return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
