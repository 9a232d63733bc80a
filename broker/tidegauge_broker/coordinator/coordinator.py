"""The group coordinator of one broker: events in, effects out.

Finds the shard of a request, runs loads and unloads one after the other, and the timers. Reads no clock, no log and no
network: time, records and random member ids are arguments. A group that is Dead has left its shard within the same
event, so no request ever meets one.
Source: GroupCoordinator and GroupMetadataManager of Kafka 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import (
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
    partition_of,
)
from tidegauge_broker.coordinator.committing import Committing, failed_commit, fetch_offsets
from tidegauge_broker.coordinator.describing import counted, described, listed, viewed
from tidegauge_broker.coordinator.effects import Effect, ReadLog
from tidegauge_broker.coordinator.events import (
    Appended,
    Elected,
    Event,
    LoadCompleted,
    PartitionsDeleted,
    RecordsRead,
    RequestArrived,
    Resigned,
    ShutDown,
)
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.joining import Joining
from tidegauge_broker.coordinator.group.membership import Membership
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.runtime import Runtime
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.coordinator.shard import Shard, ShardState
from tidegauge_broker.coordinator.views import Counters, Gauges, GroupView

_MAY_HAVE_EMPTY_ID = (OffsetCommit, OffsetFetch, DescribeGroup, DeleteGroup)
"""Requests that an empty group id does not make invalid: offsets were once kept for it (isValidGroupId)."""


class GroupCoordinator:
    """Coordinates the groups of the partitions of __consumer_offsets that this broker leads."""

    def __init__(self, settings: GroupSettings, now_ms: int) -> None:
        self._runtime = Runtime(settings, now_ms)
        self._phases = Phases(self._runtime)
        self._joining = Joining(self._runtime, self._phases)
        self._membership = Membership(self._runtime, self._phases)
        self._committing = Committing(self._runtime, self._phases)
        self._shards: dict[int, Shard] = {}
        self._epochs: dict[int, int] = {}
        self._tasks: deque[tuple[Elected | Resigned, int]] = deque()
        self._loading: Shard | None = None
        self._problem = ""
        self._is_active = True
        self._events: dict[type, Callable[[Any], None]] = {
            RequestArrived: self._on_request,
            Appended: self._on_appended,
            RecordsRead: self._on_records,
            LoadCompleted: self._on_load_completed,
            Elected: self._on_leadership,
            Resigned: self._on_leadership,
            PartitionsDeleted: self._on_partitions_deleted,
            ShutDown: self._on_shut_down,
        }
        self._requests: dict[type, Callable[[Shard, Any, object, str], None]] = {
            Heartbeat: self._heartbeat,
            OffsetCommit: self._commit,
            OffsetFetch: self._fetch,
            JoinGroup: self._join,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
            OffsetDelete: self._delete_offsets,
        }
        self._schedule_expiration(now_ms)

    # What the shell calls

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return what is to be done, in order.

        Args:
            event: what happened.
            now_ms: the time, which never goes back.
        """
        self._runtime.begin(now_ms, type(event).__name__)
        self._events[type(event)](event)
        return self._runtime.effects

    def step(self, now_ms: int) -> list[Effect]:
        """Run the timers that have expired and return what is to be done."""
        self._runtime.begin(now_ms, "")
        if self._is_active:
            while (expired := self._runtime.timers.take_expired(now_ms)) is not None:
                self._runtime.cause, action = expired
                action()
        return self._runtime.effects

    def next_deadline_ms(self) -> int | None:
        """Return when ``step`` should be called next; None: not before another event."""
        return self._runtime.timers.next_deadline_ms() if self._is_active else None

    @property
    def counters(self) -> Counters:
        """Totals since the start, for the metrics."""
        return self._runtime.counters

    @property
    def appends_in_flight(self) -> int:
        """How many appends have no outcome yet."""
        return self._runtime.appends_in_flight

    def gauges(self) -> Gauges:
        """Return what is there now, for the metrics."""
        return counted(self._groups())

    def group_view(self, group_id: str) -> GroupView | None:
        """Return the full truth about a group; None if this broker does not have it."""
        shard = self._shards.get(partition_of(group_id, self._runtime.settings.partitions))
        group = None if shard is None else shard.groups.get(group_id)
        return None if group is None else viewed(group)

    def group_views(self) -> list[GroupView]:
        """Return the full truth about all groups of this broker."""
        return [viewed(group) for group in self._groups()]

    def shard_states(self) -> dict[int, ShardState]:
        """Return the state of every partition that this broker loads or serves."""
        return {partition: shard.state for partition, shard in self._shards.items() if shard.state is not None}

    def _groups(self) -> Iterator[Group]:
        for shard in self._shards.values():
            yield from shard.groups.values()

    # Leadership

    def _on_leadership(self, event: Elected | Resigned) -> None:
        self._tasks.append((event, self._runtime.now_ms))
        self._run_tasks()

    def _run_tasks(self) -> None:
        """Run loads and unloads in their order; a load holds up those behind it until it is complete."""
        while self._tasks and self._loading is None:
            event, since_ms = self._tasks.popleft()
            name = f"__consumer_offsets-{event.partition}"
            if not self._is_current(event.partition, event.leader_epoch):
                self._runtime.log(
                    f"Ignoring {type(event).__name__} for {name} in epoch {event.leader_epoch} since current epoch is "
                    f"{self._epochs[event.partition]}"
                )
            elif isinstance(event, Resigned):
                self._runtime.cause = "Resignation"
                shard = self._shards.pop(event.partition, None)
                if shard is not None:
                    shard.unload()
            elif event.partition in self._shards:
                self._runtime.log(f"Already loading offsets and group metadata from {name}")
            else:
                self._runtime.cause = "Election"
                self._loading = self._shards[event.partition] = Shard(
                    self._runtime, self._phases, event.partition, event.leader_epoch, since_ms
                )
                self._problem = ""
                self._runtime.effects.append(ReadLog(event.partition, event.leader_epoch))

    def _is_current(self, partition: int, leader_epoch: int | None) -> bool:
        """Return whether no later epoch was seen, and keep this one (maybeUpdateCoordinatorEpoch)."""
        if leader_epoch is None:
            return True
        self._epochs[partition] = max(leader_epoch, self._epochs.get(partition, leader_epoch))
        return self._epochs[partition] == leader_epoch

    def _on_records(self, event: RecordsRead) -> None:
        shard = self._loading
        if shard is None or self._problem or not _is_of(shard, event):
            return
        try:
            shard.loader.replay(event.batches)
        except TidegaugeError as problem:
            self._problem = problem.message

    def _on_load_completed(self, event: LoadCompleted) -> None:
        shard = self._loading
        if shard is None or not _is_of(shard, event):
            return
        self._loading = None
        self._runtime.cause = "Load"
        for version in sorted(shard.loader.unknown_versions):
            self._runtime.log(
                f"Unknown message key with version {version} while loading offsets and group metadata from "
                f"__consumer_offsets-{shard.partition}. Ignoring it. It could be a left over from an aborted upgrade.",
                "warning",
            )
        shard.activate(self._problem or event.problem)
        self._run_tasks()

    def _on_shut_down(self, _event: ShutDown) -> None:
        self._is_active = False

    # Outcomes and timers

    def _on_appended(self, event: Appended) -> None:
        self._runtime.appended(event.append_id, event.error, event.base_offset)

    def _on_partitions_deleted(self, event: PartitionsDeleted) -> None:
        removed = sum(shard.remove_partitions(event.partitions) for shard in self._active_shards())
        names = ", ".join(map(str, event.partitions))
        self._runtime.log(f"Removed {removed} offsets associated with deleted partitions: {names}.")

    def _schedule_expiration(self, at_ms: int) -> None:
        self._runtime.timers.start(at_ms, "OffsetsRetention", lambda: self._expire_offsets(at_ms))

    def _expire_offsets(self, due_ms: int) -> None:
        """Run the removal of expired offsets, and schedule the next one at a fixed rate."""
        removed = sum(shard.expire_offsets() for shard in self._active_shards())
        self._runtime.counters.offset_expirations += removed
        if removed:
            self._runtime.log(f"Removed {removed} expired offsets.")
        interval_ms = self._runtime.settings.offsets_retention_check_interval_ms
        missed = (self._runtime.now_ms - due_ms) // interval_ms
        self._schedule_expiration(due_ms + (missed + 1) * interval_ms)

    def _active_shards(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.state is ShardState.ACTIVE]

    # Requests

    def _on_request(self, event: RequestArrived) -> None:
        request = event.request
        self._runtime.cause = type(request).__name__
        if isinstance(request, ListGroups):
            self._runtime.respond(event.token, self._list(request))
            return
        shard = self._shards.get(partition_of(request.group_id or "", self._runtime.settings.partitions))
        error = self._error_before(request, shard)
        if error is not ErrorCode.NONE or shard is None:
            self._runtime.respond(event.token, _failed(request, error))
        else:
            self._requests[type(request)](shard, request, event.token, event.member_uuid)

    def _error_before(self, request: GroupRequest, shard: Shard | None) -> ErrorCode:
        """Return why a request is not for this coordinator now (GroupCoordinator.validateGroupStatus)."""
        assert not isinstance(request, ListGroups)
        group_id = request.group_id
        if group_id is None or (not group_id and not isinstance(request, _MAY_HAVE_EMPTY_ID)):
            return ErrorCode.INVALID_GROUP_ID
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.state is ShardState.LOADING else ErrorCode.NONE

    def _join(self, shard: Shard, request: JoinGroup, token: object, member_uuid: str) -> None:
        settings = self._runtime.settings
        group_id = request.group_id or ""
        if not (
            settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms
        ):
            self._runtime.respond(token, _failed(request, ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        group = shard.group_for_join(group_id, request.member_id)
        if group is None:
            self._runtime.respond(token, _failed(request, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            assert member_uuid or request.member_id, "a JoinGroup without member id needs a UUID to make one"
            self._joining.join(group, request, token, member_uuid)

    def _sync(self, shard: Shard, request: SyncGroup, token: object, _uuid: str) -> None:
        group = shard.groups.get(request.group_id or "")
        if group is None:
            self._runtime.respond(token, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._membership.sync(group, request, token)

    def _heartbeat(self, shard: Shard, request: Heartbeat, token: object, _uuid: str) -> None:
        group = shard.groups.get(request.group_id or "")
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._membership.heartbeat(group, request)
        self._runtime.respond(token, HeartbeatResult(error))

    def _leave(self, shard: Shard, request: LeaveGroup, token: object, _uuid: str) -> None:
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
        group = shard.groups.get(request.group_id or "")
        if group is None and request.generation >= 0:
            self._runtime.respond(token, failed_commit(request, ErrorCode.ILLEGAL_GENERATION))
        else:
            self._committing.commit(group or shard.group_or_new(request.group_id or ""), request, token)

    def _fetch(self, shard: Shard, request: OffsetFetch, token: object, _uuid: str) -> None:
        self._runtime.respond(token, fetch_offsets(shard.groups.get(request.group_id or ""), request))

    def _describe(self, shard: Shard, request: DescribeGroup, token: object, _uuid: str) -> None:
        group_id = request.group_id or ""
        self._runtime.respond(token, described(group_id, shard.groups.get(group_id)))

    def _delete(self, shard: Shard, request: DeleteGroup, token: object, _uuid: str) -> None:
        self._runtime.respond(token, shard.delete_group(request.group_id or ""))

    def _delete_offsets(self, shard: Shard, request: OffsetDelete, token: object, _uuid: str) -> None:
        self._runtime.respond(token, shard.delete_offsets(request))

    def _list(self, request: ListGroups) -> ListGroupsResult:
        if not self._is_active:
            return ListGroupsResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        error = ErrorCode.NONE if self._loading is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ListGroupsResult(error, listed(self._groups(), request))


def _is_of(shard: Shard, event: RecordsRead | LoadCompleted) -> bool:
    return shard.partition == event.partition and shard.leader_epoch == event.leader_epoch


_FAILURES: dict[type, Callable[[Any, ErrorCode], GroupResult]] = {
    JoinGroup: lambda request, error: JoinGroupResult(error, member_id=request.member_id),
    SyncGroup: lambda _, error: SyncGroupResult(error),
    Heartbeat: lambda _, error: HeartbeatResult(error),
    LeaveGroup: lambda _, error: LeaveGroupResult(error),
    OffsetCommit: failed_commit,
    OffsetFetch: lambda _, error: OffsetFetchResult(error),
    OffsetDelete: lambda _, error: OffsetDeleteResult(error),
    DescribeGroup: lambda request, error: DescribeGroupResult(request.group_id or "", error),
    DeleteGroup: lambda _, error: DeleteGroupResult(error),
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
