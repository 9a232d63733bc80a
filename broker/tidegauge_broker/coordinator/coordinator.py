"""The group coordinator of one broker: events in, effects out.

Finds the shard of a request, runs loads and unloads one after the other, and the timers. Reads no clock, no log and no
network: time, records and random member ids are arguments. A group that is Dead has left its shard within the same
event, so no request ever meets one.
Source: GroupCoordinator and GroupMetadataManager of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidegauge.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    OFFSETS_TOPIC,
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    GroupRequest,
    GroupResult,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    ListGroups,
    ListGroupsResult,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
    TxnOffsetCommit,
    partition_of,
)
from tidegauge.share_groups import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribeShareGroup,
    DescribeShareGroupResult,
    ListSharePartitions,
    ListSharePartitionsResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupState,
)
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.committing import Committing, failed_commit, fetch_offsets
from tidegauge_broker.coordinator.consumer_group import checks
from tidegauge_broker.coordinator.consumer_group.commits import commit_error, fetch_error
from tidegauge_broker.coordinator.consumer_group.describing import described_consumer_group
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.serving import ConsumerGroups
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.consumer_group.viewing import viewed_consumer_group
from tidegauge_broker.coordinator.consumer_group.writing import GroupWriter
from tidegauge_broker.coordinator.describing import counted, described, listed, viewed
from tidegauge_broker.coordinator.driven import Driven
from tidegauge_broker.coordinator.events import (
    Event,
    GroupDefaultsChanged,
    GroupSettingsChanged,
    PartitionsDeleted,
    RegexesResolved,
    RequestArrived,
    ShareStatesChanged,
    TopicsChanged,
    TransactionCompleted,
    TransactionVerified,
)
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.joining import Joining
from tidegauge_broker.coordinator.group.membership import Membership
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.led_partitions import LedPartitions, ShardState
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.reading import only_reads
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.coordinator.shard import Expiration, Shard
from tidegauge_broker.coordinator.share_group import checks as share_checks
from tidegauge_broker.coordinator.share_group.altering import ShareOffsets
from tidegauge_broker.coordinator.share_group.describing import described_share_group
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.share_group.serving import ShareGroups
from tidegauge_broker.coordinator.sizes import LARGE_FROM_ITEMS
from tidegauge_broker.coordinator.text_limits import is_too_long, joins_with_long_text
from tidegauge_broker.coordinator.transactional_commits import TransactionalCommits, failed_transactional_commit
from tidegauge_broker.coordinator.views import ConsumerGroupView, Counters, Gauges, GroupView

_MAY_HAVE_EMPTY_ID = (OffsetCommit, OffsetFetch, DescribeGroup, DeleteGroup, ListSharePartitions)
"""Requests that an empty group id does not make invalid: offsets were once kept for it (isValidGroupId)."""


class GroupCoordinator(Driven[GroupRuntime, Event]):
    """Coordinates the groups of the partitions of __consumer_offsets that this broker leads."""

    def __init__(self, settings: GroupSettings, now_ms: int, wall: WallTime | None = None) -> None:
        runtime = GroupRuntime(settings, now_ms, wall)
        self._phases = Phases(runtime)
        self._topics = Topics()
        writer = GroupWriter(runtime, self._topics, self._phases)
        self._share_groups = ShareGroups(runtime, self._topics)
        share_offsets = ShareOffsets(runtime, self._topics, self._share_groups)
        self._led = LedPartitions(
            runtime,
            OFFSETS_TOPIC,
            "offsets and group metadata",
            partial(Shard, runtime, self._phases, writer, self._share_groups),
            takes_effect_at_once=False,
        )
        super().__init__(runtime, self._led)
        self._joining = Joining(runtime, self._phases)
        self._membership = Membership(runtime, self._phases)
        self._committing = Committing(runtime, self._phases)
        self._shards = self._led.shards
        self._transactional = TransactionalCommits(self._runtime, self._led, self._topics)
        self._consumer_groups = ConsumerGroups(runtime, self._topics, writer)
        runtime.abandon, runtime.fail, runtime.failure = self._abandon, _failed_unexpectedly, _failed
        self._events |= {
            RequestArrived: self._on_request,
            PartitionsDeleted: self._on_partitions_deleted,
            TopicsChanged: self._on_topics_changed,
            GroupSettingsChanged: self._on_group_settings_changed,
            GroupDefaultsChanged: self._on_group_defaults_changed,
            RegexesResolved: self._on_regexes_resolved,
            ShareStatesChanged: self._on_share_states_changed,
            TransactionVerified: self._transactional.verified,
            TransactionCompleted: self._transactional.completed,
        }
        self._requests: dict[type, Callable[[Shard, Any, object, str], None]] = {
            Heartbeat: self._heartbeat,
            OffsetCommit: self._commit,
            TxnOffsetCommit: self._commit_transactional,
            OffsetFetch: self._fetch,
            JoinGroup: self._join,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
            OffsetDelete: self._delete_offsets,
            ConsumerGroupHeartbeat: self._consumer_groups.heartbeat,
            DescribeConsumerGroup: self._describe_consumer_group,
            ShareGroupHeartbeat: self._share_groups.heartbeat,
            DescribeShareGroup: self._describe_share_group,
            ListSharePartitions: self._list_share_partitions,
            AlterShareOffsets: share_offsets.alter,
            DeleteShareOffsets: share_offsets.delete,
        }
        interval_ms = settings.offsets_retention_check_interval_ms
        self._schedule(now_ms, interval_ms, "OffsetsRetention", self._expire_offsets)

    # Methods for the shell

    @property
    def counters(self) -> Counters:
        """Totals since the start, for the metrics."""
        return self._runtime.counters

    def gauges(self) -> Gauges:
        """Return the current gauges, for the metrics."""
        serves = self._runtime.settings.serves_consumer_groups
        return counted(self._groups(), self._all_consumer_groups() if serves else None)

    def share_group_states(self) -> Mapping[ShareGroupState, int]:
        """Return the number of share groups by state; empty: not served."""
        if not self._runtime.settings.serves_share_groups:
            return {}
        found = Counter(group.state for group in self._all_share_groups())
        return {state: found[state] for state in ShareGroupState}

    def group_view(self, group_id: str) -> GroupView | None:
        """Return a group's full state; None if it is not on this broker."""
        shard = self._shard_of(group_id)
        group = None if shard is None else shard.groups.get(group_id)
        return None if group is None else viewed(group)

    def group_views(self) -> list[GroupView]:
        """Return the full truth about all groups of this broker."""
        return [viewed(group) for group in self._groups()]

    def consumer_group_view(self, group_id: str) -> ConsumerGroupView | None:
        """Return a consumer group's full state; None if not on this broker."""
        shard = self._shard_of(group_id)
        group = None if shard is None else shard.consumer_groups.get(group_id)
        default = self._runtime.settings.consumer_assignors[0]
        return None if group is None else viewed_consumer_group(group, self._topics, default)

    def share_group_view(self, group_id: str) -> DescribeShareGroupResult | None:
        """Return a share group's description; None if not on this broker."""
        shard = self._shard_of(group_id)
        group = None if shard is None else shard.share_groups.get(group_id)
        return None if group is None else described_share_group(group_id, group, self._topics, is_of_another_type=False)

    def group_ids(self) -> list[str]:
        """Return the sorted ids of this broker's groups of either protocol."""
        classic = [group.group_id for group in self._groups()]
        return sorted([*classic, *(group.group_id for group in self._all_consumer_groups())])

    def expiration_of(self, group_id: str) -> Expiration | None:
        """Return the last expiration of a group's offsets, or None.

        It is known even if the group no longer exists.
        """
        shard = self._shard_of(group_id)
        return None if shard is None else shard.expirations.get(group_id)

    def refusal_of(self, group_id: str) -> str:
        """Return why a group is out of service, as a clause; else empty."""
        shard = self._shard_of(group_id)
        refused = None if shard is None else shard.refused.get(group_id)
        return "" if refused is None else refused.cause

    def _shard_of(self, group_id: str) -> Shard | None:
        return self._shards.get(partition_of(group_id, self._runtime.settings.partitions))

    def shard_states(self) -> dict[int, ShardState]:
        """Return the state of every partition that this broker loads or serves."""
        return self._led.states()

    def _all_consumer_groups(self) -> Iterator[ConsumerGroup]:
        for shard in self._shards.values():
            yield from shard.consumer_groups.values()

    def _all_share_groups(self) -> Iterator[ShareGroup]:
        for shard in self._shards.values():
            yield from shard.share_groups.values()

    def _groups(self) -> Iterator[Group]:
        for shard in self._shards.values():
            yield from shard.groups.values()

    # How much a decision goes through

    def _is_about_much(self, request: GroupRequest) -> bool:
        group_id = getattr(request, "group_id", None)
        return isinstance(group_id, str) and self._is_large_group(group_id)

    def _is_large_owner(self, owner: Owner | None) -> bool:
        return owner is not None and self._is_large_group(owner.key)

    def _is_large_group(self, group_id: str) -> bool:
        """Whether the members of a group of KIP-848 or KIP-932 have very many topics or partitions."""
        shard = self._shard_of(group_id)
        group = None if shard is None else shard.consumer_groups.get(group_id) or shard.share_groups.get(group_id)
        return group is not None and group.image.items >= LARGE_FROM_ITEMS

    # Outcomes and timers

    def _on_partitions_deleted(self, event: PartitionsDeleted) -> None:
        removed = sum(shard.remove_partitions(event.partitions, event.topic_ids) for shard in self._led.active())
        names = ", ".join(map(str, event.partitions))
        self._runtime.log(f"Removed {removed} offsets associated with deleted partitions: {names}.")

    def _on_topics_changed(self, event: TopicsChanged) -> None:
        """Take over changed topics, and have the next heartbeat of each consumer group that they concern look."""
        former = {name: self._topics.by_name[name].topic_id for name in event.changes if name in self._topics.by_name}
        changed = self._topics.change(event.changes)
        deleted = [topic_id for topic_id in former.values() if topic_id not in self._topics.by_id]
        for shard in self._led.active() if changed else ():
            for group in shard.consumer_groups.values():
                if not changed.isdisjoint(group.image.subscribed_topics()):
                    group.request_refresh()
            for share_group in list(shard.share_groups.values()):
                change = partial(self._share_groups.topics_changed, shard, share_group, changed, deleted)
                self._runtime.attempt(shard.owner(share_group.group_id), change)

    def _on_share_states_changed(self, event: ShareStatesChanged) -> None:
        self._runtime.arrived(event.change_id, "ShareStates", event.errors)

    def _on_group_settings_changed(self, event: GroupSettingsChanged) -> None:
        self._runtime.set_times(event.group_id, event.times)
        self._share_groups.set_times(event.group_id, event.share_times)

    def _on_group_defaults_changed(self, event: GroupDefaultsChanged) -> None:
        settings = self._runtime.settings
        self._runtime.settings = replace(settings, consumer_times=event.times, share_times=event.share_times)

    def _on_regexes_resolved(self, event: RegexesResolved) -> None:
        self._runtime.arrived(event.resolution_id, "RegularExpressions", event.found, event.version, event.problem)

    def _expire_offsets(self) -> None:
        removed = sum(shard.expire_offsets() for shard in self._led.active())
        self._runtime.counters.offset_expirations += removed
        if removed:
            self._runtime.log(f"Removed {removed} expired offsets.")

    # Requests

    def _on_request(self, event: RequestArrived) -> None:
        request = event.request
        self._runtime.cause = type(request).__name__
        if isinstance(request, ListGroups):
            self._runtime.read(event.token, request, partial(self._list, request, event.token))
            return
        shard = self._shard_of(request.group_id or "")
        refusal = self._refusal(request)
        if refusal is not None:
            self._runtime.respond(event.token, refusal)
            return
        error = self._error_before(request, shard)
        if error is not ErrorCode.NONE or shard is None:
            self._runtime.respond(event.token, _failed(request, error))
            return
        decide = partial(self._requests[type(request)], shard, request, event.token, event.member_uuid)
        if only_reads(request):
            self._runtime.read(event.token, request, decide)
            return
        owner = shard.owner(request.group_id or "")
        self._runtime.open(event.token, owner, request)
        waiting = Waiting(decide, event.token, request)
        self._runtime.attempt(owner, lambda: shard.gates.enter(request.group_id or "", waiting))

    def _refusal(self, request: GroupRequest) -> GroupResult | None:
        """Return the refusal of a heartbeat by itself; None: it is not refused."""
        if isinstance(request, ConsumerGroupHeartbeat):
            return self._refusal_of_consumer(request)
        if isinstance(request, ShareGroupHeartbeat):
            return self._refusal_of_share(request)
        return None

    def _refusal_of_share(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult | None:
        if not self._runtime.settings.serves_share_groups:
            return ShareGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
        if not self._is_active:
            return ShareGroupHeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            share_checks.check(request)
        except GroupRefusal as refusal:
            return ShareGroupHeartbeatResult(refusal.error, refusal.message)
        return None

    def _refusal_of_consumer(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResult | None:
        settings = self._runtime.settings
        if not settings.serves_consumer_groups:
            return ConsumerGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
        if not self._is_active:
            return ConsumerGroupHeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            checks.check(request, settings.consumer_assignors)
        except GroupRefusal as refusal:
            return ConsumerGroupHeartbeatResult(refusal.error, refusal.message)
        return None

    def _abandon(self, owner: Owner, cause: str) -> None:
        shard = self._shards.get(owner.partition)
        if shard is not None:
            shard.take_out_of_service(owner.key, cause)

    def _error_before(self, request: GroupRequest, shard: Shard | None) -> ErrorCode:
        """Return why a request is not for this coordinator now (GroupCoordinator.validateGroupStatus)."""
        assert not isinstance(request, ListGroups)
        group_id = request.group_id
        if group_id is None or (not group_id and not isinstance(request, _MAY_HAVE_EMPTY_ID)):
            return ErrorCode.INVALID_GROUP_ID
        if is_too_long(group_id):
            return ErrorCode.INVALID_GROUP_ID
        if isinstance(request, JoinGroup) and joins_with_long_text(request):
            return ErrorCode.INVALID_REQUEST
        if isinstance(request, TxnOffsetCommit) and is_too_long(request.transactional_id):
            return ErrorCode.INVALID_REQUEST
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if shard is None or shard.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if shard.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_refused = group_id in shard.refused and not isinstance(request, DeleteGroup)
        return ErrorCode.UNKNOWN_SERVER_ERROR if is_refused else ErrorCode.NONE

    def _join(self, shard: Shard, request: JoinGroup, token: object, member_uuid: str) -> None:
        settings = self._runtime.settings
        group_id = request.group_id or ""
        consumer_group = shard.consumer_groups.get(group_id)
        if not (
            settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms
        ):
            self._runtime.respond(token, _failed(request, ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        if group_id in shard.share_groups:
            self._runtime.respond(token, _failed(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        if consumer_group is not None:
            again = partial(self._join, shard, request, token, member_uuid)
            self._consumer_groups.classic_join(shard, consumer_group, request, token, member_uuid, again)
            return
        group = shard.group_for_join(group_id, request.member_id)
        if group is None:
            self._runtime.respond(token, _failed(request, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            assert member_uuid or request.member_id, "a JoinGroup without member id needs a UUID to make one"
            self._joining.join(group, request, token, member_uuid)

    def _sync(self, shard: Shard, request: SyncGroup, token: object, _uuid: str) -> None:
        consumer_group = shard.consumer_groups.get(request.group_id or "")
        if consumer_group is not None:
            self._consumer_groups.classic_sync(shard, consumer_group, request, token)
            return
        group = shard.groups.get(request.group_id or "")
        if group is None:
            self._runtime.respond(token, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._membership.sync(group, request, token)

    def _heartbeat(self, shard: Shard, request: Heartbeat, token: object, _uuid: str) -> None:
        consumer_group = shard.consumer_groups.get(request.group_id or "")
        if consumer_group is not None:
            self._consumer_groups.classic_heartbeat(shard, consumer_group, request, token)
            return
        group = shard.groups.get(request.group_id or "")
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._membership.heartbeat(group, request)
        self._runtime.respond(token, HeartbeatResult(error))

    def _leave(self, shard: Shard, request: LeaveGroup, token: object, _uuid: str) -> None:
        consumer_group = shard.consumer_groups.get(request.group_id or "")
        if consumer_group is not None:
            self._consumer_groups.leave_group(shard, consumer_group, request, token)
            return
        group = shard.groups.get(request.group_id or "")
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            result = LeaveGroupResult(
                members=tuple(
                    LeftMember(member.member_id, member.group_instance_id, unknown) for member in request.members
                )
            )
        else:
            result = self._membership.leave(group, request)
        self._runtime.respond(token, result)

    def _commit(self, shard: Shard, request: OffsetCommit, token: object, _uuid: str) -> None:
        if request.group_id in shard.share_groups:
            self._runtime.respond(token, failed_commit(request, ErrorCode.GROUP_ID_NOT_FOUND))
            return
        consumer_group = shard.consumer_groups.get(request.group_id or "")
        if consumer_group is not None:
            self._commit_of_consumer(consumer_group, request, token)
            return
        group = shard.groups.get(request.group_id or "")
        if group is None and request.generation >= 0:
            knows_epochs = request.knows_member_epochs and self._runtime.settings.serves_consumer_groups
            error = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
            self._runtime.respond(token, failed_commit(request, error))
        else:
            self._committing.commit(group or shard.group_or_new(request.group_id or ""), request, token)

    def _commit_of_consumer(self, group: ConsumerGroup, request: OffsetCommit, token: object) -> None:
        error = commit_error(
            group.image,
            self._topics,
            request.member_id,
            request.generation,
            [one.topic_partition for one in request.offsets],
            knows_epochs=request.knows_member_epochs,
        )
        if error is ErrorCode.NONE:
            self._committing.store(group, request, token)
        else:
            self._runtime.respond(token, failed_commit(request, error))

    def _commit_transactional(self, shard: Shard, request: TxnOffsetCommit, token: object, _uuid: str) -> None:
        if request.group_id in shard.share_groups:
            self._runtime.respond(token, failed_transactional_commit(request, ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            self._transactional.commit(shard, request, token)

    def _fetch(self, shard: Shard, request: OffsetFetch, token: object, _uuid: str) -> None:
        group_id = request.group_id or ""
        consumer_group = shard.consumer_groups.get(group_id)
        error = ErrorCode.NONE if consumer_group is None else fetch_error(consumer_group.image, request)
        if error is ErrorCode.NONE:
            result = fetch_offsets(consumer_group or shard.groups.get(group_id), request)
        else:
            result = OffsetFetchResult(error)
        self._runtime.respond(token, result)

    def _describe_consumer_group(self, shard: Shard, request: DescribeConsumerGroup, token: object, _uuid: str) -> None:
        group_id = request.group_id or ""
        default = self._runtime.settings.consumer_assignors[0]
        group = shard.consumer_groups.get(group_id)
        is_other = group_id in shard.groups or group_id in shard.share_groups
        self._runtime.respond(
            token, described_consumer_group(group_id, group, self._topics, default, is_of_another_type=is_other)
        )

    def _describe_share_group(self, shard: Shard, request: DescribeShareGroup, token: object, _uuid: str) -> None:
        group_id = request.group_id or ""
        is_other = group_id in shard.groups or group_id in shard.consumer_groups
        group = shard.share_groups.get(group_id)
        self._runtime.respond(token, described_share_group(group_id, group, self._topics, is_of_another_type=is_other))

    def _list_share_partitions(self, shard: Shard, request: ListSharePartitions, token: object, _uuid: str) -> None:
        group = shard.share_groups.get(request.group_id or "")
        found = {} if group is None else group.image.known_states.assignable
        self._runtime.respond(token, ListSharePartitionsResult(partitions=found))

    def _describe(self, shard: Shard, request: DescribeGroup, token: object, _uuid: str) -> None:
        group_id = request.group_id or ""
        is_other = group_id in shard.consumer_groups or group_id in shard.share_groups
        found = described(group_id, shard.groups.get(group_id))
        self._runtime.respond(token, replace(found, is_of_another_type=True) if is_other else found)

    def _delete(self, shard: Shard, request: DeleteGroup, token: object, _uuid: str) -> None:
        share_group = shard.share_groups.get(request.group_id or "")
        if share_group is not None:
            self._share_groups.delete(shard, share_group, token)
        else:
            self._runtime.respond(token, shard.delete_group(request.group_id or ""))

    def _delete_offsets(self, shard: Shard, request: OffsetDelete, token: object, _uuid: str) -> None:
        self._runtime.respond(token, shard.delete_offsets(request))

    def _list(self, request: ListGroups, token: object) -> None:
        if self._is_active:
            error = ErrorCode.NONE if self._led.loading is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            result = ListGroupsResult(
                error,
                listed(self._groups(), self._all_consumer_groups(), self._all_share_groups(), self._refused(), request),
            )
        else:
            result = ListGroupsResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._runtime.respond(token, result)

    def _refused(self) -> Iterator[str]:
        for shard in self._shards.values():
            yield from shard.refused


_FAILURES: dict[type, Callable[[Any, ErrorCode], GroupResult]] = {
    JoinGroup: lambda request, error: JoinGroupResult(error, member_id=request.member_id),
    SyncGroup: lambda _, error: SyncGroupResult(error),
    Heartbeat: lambda _, error: HeartbeatResult(error),
    LeaveGroup: lambda _, error: LeaveGroupResult(error),
    OffsetCommit: failed_commit,
    TxnOffsetCommit: failed_transactional_commit,
    OffsetFetch: lambda _, error: OffsetFetchResult(error),
    OffsetDelete: lambda _, error: OffsetDeleteResult(error),
    DescribeGroup: lambda request, error: DescribeGroupResult(request.group_id or "", error),
    DeleteGroup: lambda _, error: DeleteGroupResult(error),
    ListGroups: lambda _, error: ListGroupsResult(error),
    ConsumerGroupHeartbeat: lambda _, error: ConsumerGroupHeartbeatResult(error),
    ShareGroupHeartbeat: lambda _, error: ShareGroupHeartbeatResult(error),
    AlterShareOffsets: lambda _, error: AlterShareOffsetsResult(error),
    DeleteShareOffsets: lambda _, error: DeleteShareOffsetsResult(error),
    ListSharePartitions: lambda _, error: ListSharePartitionsResult(error),
    DescribeShareGroup: lambda request, error: DescribeShareGroupResult(request.group_id or "", error),
    DescribeConsumerGroup: lambda request, error: DescribeConsumerGroupResult(request.group_id or "", error),
}
_WHILE_LOADING: dict[type, ErrorCode] = {
    # The member is most likely alive, and rejoins nothing before it must.
    Heartbeat: ErrorCode.NONE,
    # The rebalance in progress is lost with the former coordinator, so the member has to join again.
    SyncGroup: ErrorCode.REBALANCE_IN_PROGRESS,
}


def _failed(request: GroupRequest, error: ErrorCode) -> GroupResult:
    """Return the response to a request that fails as a whole."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = _WHILE_LOADING.get(type(request), error)
    return _FAILURES[type(request)](request, error)


def _failed_unexpectedly(request: Any) -> GroupResult:
    """Return the response to a request whose decision, or whose group, failed unexpectedly."""
    return _FAILURES[type(request)](request, ErrorCode.UNKNOWN_SERVER_ERROR)
