"""Serves the heartbeats of consumer groups, and resolves their regular expressions.

Source: GroupMetadataManager of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tidegauge.consumer_groups import (
    CONSUMER,
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    Permits,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from tidegauge_broker.coordinator.consumer_group import classic_members, refusals
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import AssignmentError
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.heartbeats import Circumstances, beat
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.leaving import leave_for_a_while, leaving_member
from tidegauge_broker.coordinator.consumer_group.migration import upgrade
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.regexes import add_resolved, is_resolution_due
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.consumer_group.writing import GroupWriter
from tidegauge_broker.coordinator.effects import ResolveRegexes
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.group.states import EMPTY
from tidegauge_broker.coordinator.record_codec import Record
from tidegauge_broker.coordinator.records import group_key
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import Shard


class ConsumerGroups:
    """Handles heartbeats and timers of the consumer groups of a coordinator."""

    def __init__(self, runtime: GroupRuntime, topics: Topics, writer: GroupWriter) -> None:
        self._runtime = runtime
        self._topics = topics
        self._writer = writer

    # Heartbeats

    def heartbeat(self, shard: Shard, request: ConsumerGroupHeartbeat, token: object, member_uuid: str) -> None:
        """Handle a heartbeat; its response comes when what it changes is committed."""
        try:
            if request.member_epoch < JOINING_EPOCH:
                self._leave(shard, request, token)
            else:
                self._beat(shard, request, token, member_uuid)
        except GroupRefusal as refusal:
            self._runtime.respond(token, ConsumerGroupHeartbeatResult(refusal.error, refusal.message))

    def _beat(self, shard: Shard, request: ConsumerGroupHeartbeat, token: object, member_uuid: str) -> None:
        if not request.member_id:
            request = _with_member_id(request, member_uuid)
        group, draft, prefix = self._group_for(shard, request)
        requests = group.refresh_requests
        try:
            outcome = beat(draft, request, self._circumstances(group))
        except AssignmentError as problem:
            message = f"Failed to compute a new target assignment for epoch {draft.image.epoch}: {problem}"
            self._runtime.log(f"[GroupId {group.group_id}] {message}", "error")
            raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, message) from problem

        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                group.refreshed(requests)
                self._runtime.counters.consumer_group_rebalances += outcome.has_bumped
                self._writer.restart_session(shard, group, request.member_id)
                self._maybe_resolve(shard, group, request.permits)
            self._runtime.respond(token, outcome.result if error is ErrorCode.NONE else _failure(error))

        self._writer.write(shard, group, draft, written, prefix)

    def _circumstances(self, group: ConsumerGroup) -> Circumstances:
        settings, times = self._runtime.settings, self._runtime.times_of(group.group_id)
        return Circumstances(
            topics=self._topics,
            assignors=settings.consumer_assignors,
            now_ms=self._runtime.wall_ms,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
            assignment_interval_ms=times.assignment_interval_ms,
            max_size=settings.consumer_max_size,
            is_refresh_due=group.is_refresh_due,
        )

    def _group_for(self, shard: Shard, request: ConsumerGroupHeartbeat) -> tuple[ConsumerGroup, Draft, list[Record]]:
        """Return the group of a heartbeat, which a joining member creates or upgrades.

        Returns:
            The group, the draft of the decision, and the records that come before its own.
        """
        group_id = request.group_id or ""
        group = shard.consumer_groups.get(group_id)
        if group is not None:
            return group, Draft(group.image), []
        if group_id in shard.share_groups:
            raise refusals.not_a_consumer_group(group_id)
        classic = shard.groups.get(group_id)
        if request.member_epoch != JOINING_EPOCH:
            raise refusals.not_found(group_id) if classic is None else refusals.not_a_consumer_group(group_id)
        made = ConsumerGroup(GroupImage(group_id), shard.partition, None if classic is None else classic.offsets)
        draft = Draft(made.image)
        if classic is None or (classic.state is EMPTY and classic.generation == 0):
            return made, draft, []
        if classic.state is not EMPTY:
            upgrade(draft, classic, self._topics, self._writer.migration_limits)
        return made, draft, [Record(group_key(group_id), None)]

    def _leave(self, shard: Shard, request: ConsumerGroupHeartbeat, token: object) -> None:
        group_id = request.group_id or ""
        group = shard.consumer_groups.get(group_id)
        if group is None:
            is_other = group_id in shard.groups or group_id in shard.share_groups
            raise refusals.not_a_consumer_group(group_id) if is_other else refusals.not_found(group_id)
        draft = Draft(group.image)
        member = leaving_member(draft, request)
        result = ConsumerGroupHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        self._runtime.log(
            f"[GroupId {group_id}] Member {request.member_id} left the consumer group"
            + (f" as static member {request.instance_id}." if request.instance_id is not None else ".")
        )

        def written(error: ErrorCode) -> None:
            self._runtime.respond(token, result if error is ErrorCode.NONE else _failure(error))

        if request.member_epoch == STATIC_LEAVING_EPOCH:
            leave_for_a_while(draft, member)
            self._writer.write(shard, group, draft, written)
        else:
            reason = f"Downgrade group {group_id} from consumer to classic for member leaving."
            self._writer.remove(shard, group, [member.member_id], written, reason)

    # Regular expressions

    def _maybe_resolve(self, shard: Shard, group: ConsumerGroup, permits: Permits | None) -> None:
        """Have the regular expressions of a group resolved, if that is due and not being done."""
        settings, now_ms = self._runtime.settings, self._runtime.wall_ms
        if group.is_resolving or not group.image.subscribed_regexes:
            return
        failed_ms = group.resolution_failed_ms
        if failed_ms is not None and now_ms <= failed_ms + settings.consumer_regex_refresh_interval_ms:
            return
        if not is_resolution_due(group.image, self._topics, now_ms, settings.consumer_regex_refresh_interval_ms):
            return
        group.is_resolving = True
        resolution_id = self._runtime.awaited(partial(self._resolved, shard, group))
        self._runtime.effects.append(
            ResolveRegexes(
                resolution_id,
                tuple(sorted(group.image.subscribed_regexes)),
                tuple(self._topics.by_name),
                self._topics.version,
                permits,
            )
        )

    def _resolved(
        self, shard: Shard, group: ConsumerGroup, found: Mapping[str, frozenset[str]], version: int, problem: str
    ) -> None:
        """Take up what a group's expressions match, when no write of the group is in flight."""
        group.is_resolving = False
        if problem:
            group.resolution_failed_ms = self._runtime.wall_ms
            self._runtime.log(
                f"[GroupId {group.group_id}] The regular expressions of the group could not be resolved: {problem}. "
                "Their topics stay as they are until the next refresh.",
                "warning",
            )
            return
        shard.gates.enter(group.group_id, Waiting(partial(self._store_resolved, shard, group, found, version)))

    def _store_resolved(
        self, shard: Shard, group: ConsumerGroup, found: Mapping[str, frozenset[str]], version: int
    ) -> None:
        if group.is_dead:
            return
        draft = Draft(group.image)
        has_bumped = add_resolved(draft, found, version, self._topics, self._runtime.wall_ms)

        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._runtime.counters.consumer_group_rebalances += has_bumped

        self._writer.write(shard, group, draft, written)

    # LeaveGroup

    def leave_group(self, shard: Shard, group: ConsumerGroup, request: LeaveGroup, token: object) -> None:
        """Handle a LeaveGroup: an administrator removes static members, or members with the classic protocol leave."""
        members = tuple(
            LeftMember(one.member_id, one.group_instance_id, _leave_error(group, one)) for one in request.members
        )
        left = dict.fromkeys(
            _current_id(group, one)
            for one, result in zip(request.members, members, strict=True)
            if result.error is ErrorCode.NONE
        )

        def written(error: ErrorCode) -> None:
            result = LeaveGroupResult(members=members) if error is ErrorCode.NONE else LeaveGroupResult(error)
            self._runtime.respond(token, result)

        if left:
            reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
            self._writer.remove(shard, group, list(left), written, reason)
        else:
            written(ErrorCode.NONE)

    # Members with the classic protocol

    def classic_join(
        self,
        shard: Shard,
        group: ConsumerGroup,
        request: JoinGroup,
        token: object,
        member_uuid: str,
        again: Callable[[], None],
    ) -> None:
        """Handle a classic JoinGroup of a consumer group: one without members becomes a classic group.

        Args:
            shard: of the group.
            group: the consumer group.
            request: the JoinGroup.
            token: of the request.
            member_uuid: of which a member id is made.
            again: handles the request when the group is converted.
        """
        if not group.image.members:

            def converted(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    again()
                else:
                    self._runtime.respond(token, JoinGroupResult(error, member_id=request.member_id))

            self._writer.convert_to_classic(shard, group, converted)
            return
        try:
            self._classic_join(shard, group, request, token, member_uuid)
        except GroupRefusal as refusal:
            self._runtime.respond(token, JoinGroupResult(refusal.error, member_id=request.member_id))

    def _classic_join(
        self, shard: Shard, group: ConsumerGroup, request: JoinGroup, token: object, member_uuid: str
    ) -> None:
        if self._runtime.settings.consumer_migration_policy == "disabled":
            raise GroupRefusal(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )
        member_id = request.member_id or member_uuid
        if not request.member_id and request.group_instance_id is None and request.requires_known_member_id:
            self._runtime.respond(token, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        draft = Draft(group.image)
        requests = group.refresh_requests
        try:
            step = classic_members.join(draft, request, member_id, self._circumstances(group))
        except AssignmentError as problem:
            raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._runtime.respond(token, JoinGroupResult(error, member_id=request.member_id))
                return
            group.refreshed(requests)
            self._runtime.counters.consumer_group_rebalances += step.has_bumped
            self._writer.restart_session(shard, group, member_id)
            self._writer.await_sync(shard, group, step.member)
            result = JoinGroupResult(
                generation=step.member.epoch,
                protocol_type=CONSUMER,
                protocol_name=request.protocols[0].name,
                member_id=member_id,
            )
            self._runtime.respond(token, result)

        self._writer.write(shard, group, draft, written)

    def classic_sync(self, shard: Shard, group: ConsumerGroup, request: SyncGroup, token: object) -> None:
        """Handle the SyncGroup of a member with the classic protocol."""
        result = classic_members.sync(group.image, request, self._topics)

        def written(error: ErrorCode) -> None:
            found = result if error is ErrorCode.NONE else SyncGroupResult(error)
            if found.error is ErrorCode.NONE:
                self._writer.synced(group, request.member_id)
            self._runtime.respond(token, found)

        self._writer.write(shard, group, Draft(group.image), written)

    def classic_heartbeat(self, shard: Shard, group: ConsumerGroup, request: Heartbeat, token: object) -> None:
        """Handle the Heartbeat of a member with the classic protocol."""
        error = classic_members.heartbeat_error(group.image, request)
        if error in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self._writer.restart_session(shard, group, request.member_id)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._writer.await_join(shard, group, group.image.members[request.member_id])
        self._runtime.respond(token, HeartbeatResult(error))


def _with_member_id(request: ConsumerGroupHeartbeat, member_uuid: str) -> ConsumerGroupHeartbeat:
    """Return a version 0 heartbeat with the id that the coordinator makes."""
    assert member_uuid, "a heartbeat without member id needs a UUID to make one"
    return replace(request, member_id=member_uuid)


def _failure(error: ErrorCode) -> ConsumerGroupHeartbeatResult:
    return ConsumerGroupHeartbeatResult(error)


def _current_id(group: ConsumerGroup, leaving: LeavingMember) -> str:
    """Return a leaving member's id; an administrator may give only its instance id."""
    if leaving.member_id or leaving.group_instance_id is None:
        return leaving.member_id
    return group.image.static_members.get(leaving.group_instance_id, "")


def _leave_error(group: ConsumerGroup, leaving: LeavingMember) -> ErrorCode:
    """Return the error of a member's LeaveGroup, or NONE.

    Source: ``classicGroupLeaveToConsumerGroup``.
    """
    image, instance_id = group.image, leaving.group_instance_id
    if instance_id is not None:
        current = image.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not leaving.member_id:
            return ErrorCode.NONE
        if current != leaving.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = image.members.get(leaving.member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None or member.classic is None else ErrorCode.NONE
