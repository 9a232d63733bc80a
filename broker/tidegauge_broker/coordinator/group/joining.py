"""JoinGroup: a member's first request, its repetition with an id, and the rejoin in every state.

Source: GroupCoordinator (handleJoinGroup, doNewMemberJoinGroup, doCurrentMemberJoinGroup); KIP-394.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.groups import JoinGroup, JoinGroupResult
from tidegauge_broker.coordinator.group.checks import has_room_for, member_error
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.phases import NEW_MEMBER_TIMEOUT_MS, Phases
from tidegauge_broker.coordinator.group.replacing import Replacing
from tidegauge_broker.coordinator.group.states import COMPLETING, PREPARING, STABLE
from tidegauge_broker.coordinator.runtime import GroupRuntime


class Joining:
    """Handles JoinGroup for the groups of a coordinator."""

    def __init__(self, runtime: GroupRuntime, phases: Phases) -> None:
        self._runtime = runtime
        self._phases = phases
        self._replacing = Replacing(runtime, phases)

    def join(self, group: Group, request: JoinGroup, token: object, member_uuid: str) -> None:
        """Handle a JoinGroup to an existing group; the response comes now or when the join phase ends."""
        if not has_room_for(group, request.member_id, self._runtime.settings.group_max_size):
            self._phases.forget(group, request.member_id)
            self._refuse(token, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not request.member_id:
            self._join_without_id(group, request, token, member_uuid)
        else:
            self._join_with_id(group, request, token)
        self._phases.try_complete_join(group)

    def _refuse(self, token: object, member_id: str, error: ErrorCode) -> None:
        self._runtime.respond(token, JoinGroupResult(error, member_id=member_id))

    def _join_without_id(self, group: Group, request: JoinGroup, token: object, member_uuid: str) -> None:
        if not group.supports(request.protocol_type, request.protocols):
            self._refuse(token, "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{member_uuid}"
        if instance_id is not None and instance_id in group.static_members:
            self._replacing.replace(group, instance_id, member_id, request, token)
            return
        what = "Dynamic member" if instance_id is None else f"Static member with groupInstanceId={instance_id}"
        intro = (
            f"{what} and unknown member id joins group {group.group_id} in {group.state.value} state. "
            f"Created a new member id {member_id}"
        )
        if instance_id is None and request.requires_known_member_id:
            self._runtime.log(f"{intro} and request the member to rejoin with this id.")
            self._phases.add_pending(group, member_id, request.session_timeout_ms)
            self._refuse(token, member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return
        self._runtime.log(f"{intro} for this member and add to the group.")
        self._add(group, member_id, request, token)

    def _join_with_id(self, group: Group, request: JoinGroup, token: object) -> None:
        member_id = request.member_id
        if not group.supports(request.protocol_type, request.protocols):
            self._refuse(token, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                # Ids are only given to dynamic members; Kafka's IllegalStateException reaches the client like this.
                self._refuse(token, "", ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            self._add(group, member_id, request, token)
            return
        error = member_error(group, member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(token, member_id, error)
            return
        self._rejoin(group, group.members[member_id], request, token)

    def _add(self, group: Group, member_id: str, request: JoinGroup, token: object) -> None:
        """Add a member, park its JoinGroup, and rebalance (GroupCoordinator.addMemberAndRebalance)."""
        self._runtime.timers.cancel(group.pending_members.pop(member_id, None))
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
            join_token=token,
            is_new=True,
        )
        if group.state is PREPARING and group.generation == 0:
            group.member_was_added = True
        group.add(member)
        self._phases.restart_session(group, member, NEW_MEMBER_TIMEOUT_MS)
        self._phases.maybe_prepare_rebalance(
            group,
            f"Adding new member {member_id} with group instance id {request.group_instance_id}; "
            f"client reason: {_reason(request)}",
        )

    def _rejoin(self, group: Group, member: Member, request: JoinGroup, token: object) -> None:
        changed = member.protocols != request.protocols
        state = group.state
        if state is COMPLETING and not changed:
            # The member may have missed the response: it gets the current generation again.
            self._runtime.respond(token, self._phases.joined(group, member))
        elif state is STABLE and not changed and group.leader != member.member_id:
            self._runtime.respond(token, self._phases.joined(group, member))
        else:
            self._runtime.forget_request(member.join_token)
            update(member, request, token)
            what = "Leader" if state is STABLE and group.leader == member.member_id else "Updating metadata for member"
            verb = " re-joining group" if what == "Leader" else ""
            self._phases.maybe_prepare_rebalance(
                group,
                f"{what} {member.member_id}{verb} during {state.value}; client reason: {_reason(request)}",
            )


def update(member: Member, request: JoinGroup, token: object) -> None:
    """Take what a JoinGroup says about a known member, and park it in the place of an earlier one."""
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_token = token


def _reason(request: JoinGroup) -> str:
    return request.reason or "not provided"
