"""SyncGroup, Heartbeat and LeaveGroup.

Source: GroupCoordinator (handleSyncGroup, handleHeartbeat, handleLeaveGroup).
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    Heartbeat,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from tidegauge_broker.coordinator.group.checks import member_error
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.states import COMPLETING, EMPTY, PREPARING, STABLE
from tidegauge_broker.coordinator.group.storing import metadata_batch, stored_error
from tidegauge_broker.coordinator.runtime import GroupRuntime


class Membership:
    """Handles the requests of members that have joined."""

    def __init__(self, runtime: GroupRuntime, phases: Phases) -> None:
        self._runtime = runtime
        self._phases = phases

    def sync(self, group: Group, request: SyncGroup, token: object) -> None:
        """Handle a SyncGroup: park it, or respond with the assignment of a Stable group.

        The leader's assignment is written first; all parked requests complete when it is committed.
        """
        error = _sync_error(group, request)
        if error is not ErrorCode.NONE:
            self._runtime.respond(token, SyncGroupResult(error))
            return
        member = group.members[request.member_id]
        if group.state is STABLE:
            self._phases.note_sync(group, member)
            result = SyncGroupResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            self._runtime.respond(token, result)
            self._phases.restart_session(group, member)
            return
        self._runtime.forget_request(member.sync_token)
        member.sync_token = token
        self._phases.note_sync(group, member)
        if group.leader == member.member_id:
            self._store_assignment(group, request)

    def _store_assignment(self, group: Group, request: SyncGroup) -> None:
        given = dict(request.assignments)
        missing = [member_id for member_id in group.members if member_id not in given]
        if missing:
            self._runtime.log(
                f"Setting empty assignments for members {', '.join(missing)} of {group.group_id} for generation "
                f"{group.generation}",
                "warning",
            )
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation
        self._runtime.log(
            f"Assignment received from leader {request.member_id} for group {group.group_id} for generation "
            f"{generation}. The group has {len(group.members)} members, {len(group.static_members)} of which are "
            "static."
        )

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            # A member may have joined or left meanwhile: then another generation decides.
            if group.state is not COMPLETING or group.generation != generation:
                return
            error = stored_error(error)
            if error is ErrorCode.NONE:
                self._phases.assign(group, assignments)
                self._phases.change_state(group, STABLE, group.reason)
                return
            self._phases.fail_syncs(group, error)
            self._phases.maybe_prepare_rebalance(
                group,
                f"Error {error.name} when storing group assignment during SyncGroup (member: {request.member_id})",
            )

        self._runtime.append_record(group.partition, metadata_batch(self._runtime, group, assignments), outcome)
        self._runtime.counters.completed_rebalances += 1

    def heartbeat(self, group: Group, request: Heartbeat) -> ErrorCode:
        """Handle a Heartbeat and return its error: it counts in every state that has members."""
        error = member_error(group, request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._phases.restart_session(group, group.members[request.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE

    def leave(self, group: Group, request: LeaveGroup) -> LeaveGroupResult:
        """Handle a LeaveGroup and return its result; what it starts happens before."""
        return LeaveGroupResult(
            members=tuple(
                LeftMember(leaving.member_id, leaving.group_instance_id, self._leave(group, leaving))
                for leaving in request.members
            )
        )

    def _leave(self, group: Group, leaving: LeavingMember) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            # An administrator removes a static member by its instance id alone.
            current = None if instance_id is None else group.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_members:
            self._phases.forget(group, member_id)
            self._phases.try_complete_join(group)
            self._runtime.log(
                f"Pending member with memberId={member_id} has left group {group.group_id} through explicit "
                "`LeaveGroup` request"
            )
            return ErrorCode.NONE
        else:
            error = member_error(group, member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        reason = leaving.reason or "not provided"
        self._runtime.log(
            f"Member {member_id} has left group {group.group_id} through explicit `LeaveGroup`; client reason: {reason}"
        )
        self._phases.remove(
            group, group.members[member_id], f"Removing member {member_id} on LeaveGroup; client reason: {reason}"
        )
        return ErrorCode.NONE


def _sync_error(group: Group, request: SyncGroup) -> ErrorCode:
    error = member_error(group, request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state is not EMPTY
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE
