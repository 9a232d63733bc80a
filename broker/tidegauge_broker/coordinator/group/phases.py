"""The join phase, the sync phase and the sessions of a group's members.

A rebalance: ``prepare_rebalance`` opens the join phase. It ends when every member has a parked JoinGroup, or with its
timer; then the generation rises and the members get their responses. The sync phase is open until every member has sent
SyncGroup, or its timer removes those that have not.
Source: GroupCoordinator (prepareRebalance, onCompleteJoin, onExpirePendingSync, onExpireHeartbeat), DelayedJoin,
InitialDelayedJoin, DelayedSync, DelayedHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState, JoinGroupResult, SyncGroupResult
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
)
from tidegauge_broker.coordinator.group.storing import metadata_batch, stored_error
from tidegauge_broker.coordinator.runtime import GroupRuntime

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""Maximum time that a new member's JoinGroup stays parked (GroupCoordinator.NewMemberJoinTimeoutMs)."""
MIN_REPEATED_PHASE_MS = 100
"""Minimum duration of a join phase that follows one without a new member.

With a rebalance timeout of 0 it would be over as soon as it begins, as long as the group has static members. Kafka
keeps a thread of its purgatory busy with that (GroupCoordinator.onCompleteJoin).
"""


class Phases:
    """Moves groups from state to state."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime

    # States

    def change_state(self, group: Group, new: GroupState, reason: str = "") -> None:
        """Enter a state and emit it for the event log."""
        old = group.state
        group.change_state(new, self._runtime.wall_ms)
        self._runtime.note(
            "group",
            group.group_id,
            old=old.value,
            new=new.value,
            generation=group.generation,
            members=len(group.members),
            reason=reason,
        )

    def maybe_prepare_rebalance(self, group: Group, reason: str) -> None:
        """Open a join phase, unless one is open."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)

    def prepare_rebalance(self, group: Group, reason: str) -> None:
        """Open a join phase: the initial delay if the group was Empty, else until all have rejoined."""
        if group.state is COMPLETING:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._close_sync_phase(group)
        was_empty = group.state is EMPTY
        group.reason = reason
        self.change_state(group, PREPARING, reason)
        self._runtime.log(
            f"Preparing to rebalance group {group.group_id} in state {group.state.value} with old generation "
            f"{group.generation} (__consumer_offsets-{group.partition}) (reason: {reason})"
        )
        if was_empty:
            delay_ms = self._runtime.settings.group_initial_rebalance_delay_ms
            self._start_initial_delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        else:
            self._start_join_phase(group)

    # The join phase

    def _start_initial_delay(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        """Wait for further first members; never ended early (InitialDelayedJoin)."""

        def end() -> None:
            if group.member_was_added and remaining_ms != 0:
                group.member_was_added = False
                configured_ms = self._runtime.settings.group_initial_rebalance_delay_ms
                self._start_initial_delay(group, min(configured_ms, remaining_ms), max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        self._set_phase(group, delay_ms, "InitialRebalanceDelay", end)
        group.in_initial_delay = True

    def _start_join_phase(self, group: Group, min_ms: int = 0) -> None:
        """Wait until all members have joined, or for the longest of their rebalance timeouts, and ``min_ms`` at least.

        After a phase in which no member joined, ``min_ms`` is positive, and the next such phase is not logged again.
        """
        timeout_ms, is_repeated = max(group.rebalance_timeout_ms, min_ms), min_ms > 0
        self._set_phase(
            group, timeout_ms, "RebalanceTimeout", lambda: self._complete_join(group, is_repeated=is_repeated)
        )
        group.in_initial_delay = False
        self.try_complete_join(group)

    def try_complete_join(self, group: Group) -> None:
        """End the join phase if every expected member has joined; the initial delay is never ended early."""
        if group.state is PREPARING and not group.in_initial_delay and group.all_have_joined:
            self._runtime.timers.cancel(group.phase)
            self._complete_join(group)

    def _complete_join(self, group: Group, *, is_repeated: bool = False) -> None:
        """End the join phase with the members that have joined, or open it again if none has (onCompleteJoin)."""
        group.phase = None
        late = [member for member in group.members.values() if member.join_token is None and not member.is_static]
        if late:
            ids = ", ".join(member.member_id for member in late)
            self._runtime.log(f"Group {group.group_id} removed dynamic members who haven't joined: {ids}")
        for member in late:
            self.forget(group, member.member_id)
        if not group.elect_rejoined_leader() and group.members:
            if not is_repeated:
                self._runtime.log(
                    f"Group {group.group_id} could not complete rebalance because no members rejoined", "error"
                )
            self._start_join_phase(group, MIN_REPEATED_PHASE_MS)
            return
        old = group.state
        group.begin_next_generation(self._runtime.wall_ms)
        self._note_generation(group, old)
        if group.members:
            self._respond_to_joins(group)
        else:
            self._store_empty(group)

    def _note_generation(self, group: Group, old: GroupState) -> None:
        runtime = self._runtime
        runtime.note(
            "group",
            group.group_id,
            old=old.value,
            new=group.state.value,
            generation=group.generation,
            members=len(group.members),
            reason=group.reason,
        )
        where = f"(__consumer_offsets-{group.partition})"
        if group.members:
            runtime.log(
                f"Stabilized group {group.group_id} generation {group.generation} {where} with "
                f"{len(group.members)} members"
            )
        else:
            runtime.log(f"Group {group.group_id} with generation {group.generation} is now empty {where}")

    def _respond_to_joins(self, group: Group) -> None:
        for member in list(group.members.values()):
            self.respond_to_join(member, self.joined(group, member))
            self.restart_session(group, member)
            member.is_new = False
            group.awaiting_sync.add(member.member_id)
        timeout_ms = group.rebalance_timeout_ms
        group.sync_phase = self._runtime.start_timer(
            self._runtime.now_ms + timeout_ms, "SyncTimeout", lambda: self._expire_sync_phase(group)
        )

    def joined(self, group: Group, member: Member) -> JoinGroupResult:
        """Return the response to the JoinGroup of a member of the current generation."""
        return JoinGroupResult(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member.member_id,
            members=group.joined_members() if group.leader == member.member_id else (),
        )

    def _store_empty(self, group: Group) -> None:
        """Write that the group has no members; if that fails, a load brings the last generation back, to expire."""
        runtime = self._runtime

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            error = stored_error(error)
            if error is not ErrorCode.NONE:
                runtime.log(f"Failed to write empty metadata for group {group.group_id}: {error.name}", "warning")

        runtime.append_record(group.partition, metadata_batch(runtime, group, {}), outcome)

    # The sync phase

    def note_sync(self, group: Group, member: Member) -> None:
        """Take note that a member has sent its SyncGroup; the last one ends the sync phase."""
        group.awaiting_sync.discard(member.member_id)
        if not group.awaiting_sync:
            self._close_sync_phase(group)

    def _close_sync_phase(self, group: Group) -> None:
        group.awaiting_sync.clear()
        self._runtime.timers.cancel(group.sync_phase)
        group.sync_phase = None

    def _expire_sync_phase(self, group: Group) -> None:
        """Remove the members that have not sent SyncGroup, static ones too, and rebalance (KAFKA-12890)."""
        group.sync_phase = None
        missing = sorted(group.awaiting_sync)
        if not missing:
            return
        for member_id in missing:
            self.forget(group, member_id)
        self.prepare_rebalance(group, f"Removing {', '.join(missing)} on pending sync request expiration")

    def assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Give the members their assignments and respond to the parked SyncGroups."""
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
        for member in group.members.values():
            result = SyncGroupResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            self._respond_to_sync(group, member, result)

    def fail_syncs(self, group: Group, error: ErrorCode) -> None:
        """Take all assignments back and respond to the parked SyncGroups with an error."""
        for member in group.members.values():
            member.assignment = b""
        for member in group.members.values():
            self._respond_to_sync(group, member, SyncGroupResult(error))

    def _respond_to_sync(self, group: Group, member: Member, result: SyncGroupResult) -> None:
        if member.sync_token is not None:
            self._runtime.respond(member.sync_token, result)
            member.sync_token = None
            self.restart_session(group, member)

    # Members

    def respond_to_join(self, member: Member, result: JoinGroupResult) -> None:
        """Respond to a member's parked JoinGroup, if it has one."""
        if member.join_token is not None:
            self._runtime.respond(member.join_token, result)
            member.join_token = None

    def remove(self, group: Group, member: Member, reason: str) -> None:
        """Remove a member that left or expired, and rebalance if that matters (removeMemberAndUpdateGroup)."""
        self.respond_to_join(member, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.forget(group, member.member_id)
        if group.state in {STABLE, COMPLETING}:
            self.maybe_prepare_rebalance(group, reason)
        else:
            self.try_complete_join(group)

    def forget(self, group: Group, member_id: str) -> None:
        """Remove a member, or a pending one, and its timer, without further consequences."""
        self._runtime.timers.cancel(group.pending_members.pop(member_id, None))
        member = group.remove(member_id)
        if member is not None:
            self._runtime.forget_request(member.sync_token)
            self._runtime.timers.cancel(member.session)
            member.session = None

    def add_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Expect a member that was given its id with MEMBER_ID_REQUIRED, for as long as its session timeout."""

        def expire() -> None:
            self._runtime.log(
                f"Pending member {member_id} in group {group.group_id} has been removed after session timeout "
                "expiration."
            )
            self.forget(group, member_id)
            self.try_complete_join(group)

        group.pending_members[member_id] = self._runtime.start_timer(
            self._runtime.now_ms + timeout_ms, "PendingMemberExpiration", expire
        )

    def restart_session(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Start a member's session timer again: it was heard of. A parked request stands for it instead."""
        timers = self._runtime.timers
        if member.is_exempt_from_expiration:
            timers.cancel(member.session)
            member.session = None
            return
        deadline_ms = self._runtime.now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        if member.session is not None and member.session.action is not None:
            timers.postpone(member.session, deadline_ms)
        else:
            member.session = self._runtime.start_timer(
                deadline_ms, "SessionExpiration", lambda: self._expire(group, member)
            )

    def _expire(self, group: Group, member: Member) -> None:
        member.session = None
        if member.is_exempt_from_expiration:
            return
        self._runtime.log(f"Member {member.member_id} in group {group.group_id} has failed, removing it from the group")
        self.remove(group, member, f"removing member {member.member_id} on heartbeat expiration")

    def _set_phase(self, group: Group, delay_ms: int, cause: str, end: Callable[[], None]) -> None:
        group.phase = self._runtime.start_timer(self._runtime.now_ms + delay_ms, cause, end)

    def resume(self, group: Group) -> None:
        """Start the timers of a loaded group; a group that is larger than group.max.size rebalances to shrink."""
        max_size = self._runtime.settings.group_max_size
        if len(group.members) > max_size:
            self.prepare_rebalance(
                group,
                f"Freshly-loaded group is over capacity ({max_size}). Rebalancing in order to give a chance for "
                "consumers to commit offsets",
            )
        for member in list(group.members.values()):
            self.restart_session(group, member)

    def unload(self, group: Group) -> None:
        """Respond to parked requests with NOT_COORDINATOR and stop all timers (GroupCoordinator.onGroupUnloaded)."""
        old = group.state
        for member in group.members.values():
            if old is PREPARING:
                self.respond_to_join(member, JoinGroupResult(ErrorCode.NOT_COORDINATOR, member_id=member.member_id))
            elif member.sync_token is not None:
                self._runtime.respond(member.sync_token, SyncGroupResult(ErrorCode.NOT_COORDINATOR))
                member.sync_token = None
        self.change_state(group, DEAD, "unloaded")
        self.stop_timers(group)

    def convert(self, group: Group) -> None:
        """Respond to parked requests with REBALANCE_IN_PROGRESS and stop all timers: it is a consumer group now."""
        for member in group.members.values():
            rejoin = JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            self.respond_to_join(member, rejoin)
            if member.sync_token is not None:
                self._runtime.respond(member.sync_token, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_token = None
        self.change_state(group, DEAD, "converted to a consumer group")
        self.stop_timers(group)

    def stop_timers(self, group: Group) -> None:
        """Cancel every timer of a group that is Dead."""
        timers = self._runtime.timers
        for member in group.members.values():
            timers.cancel(member.session)
        for timer in [group.phase, group.sync_phase, *group.pending_members.values()]:
            timers.cancel(timer)
