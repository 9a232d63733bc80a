"""A static member that restarts: the same group instance id under another member id (KIP-345, KIP-814).

Source: GroupCoordinator.updateStaticMemberAndRebalance, GroupMetadata.replaceStaticMember. Two races of Kafka's are not
repeated: the outcome of a write completes, or undoes, its own JoinGroup only. Kafka's callback gives a second restart,
made while the first one's record is being written, the member id of the first, which is fenced; and it takes the id of
a member back that a completed join phase has responded to already.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.groups import JoinGroup, JoinGroupResult, SyncGroupResult
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.states import COMPLETING, DEAD, PREPARING, STABLE
from tidegauge_broker.coordinator.group.storing import metadata_batch, stored_error
from tidegauge_broker.coordinator.runtime import GroupRuntime


class Replacing:
    """Replaces static members."""

    def __init__(self, runtime: GroupRuntime, phases: Phases) -> None:
        self._runtime = runtime
        self._phases = phases

    def replace(self, group: Group, instance_id: str, new_id: str, request: JoinGroup, token: object) -> None:
        """Give a static member a new id, fence the old one, and rebalance or persist the replacement.

        In Stable, with the chosen protocol unchanged, nothing rebalances: the record is committed first, then the
        response is sent. In CompletingRebalance the leader may be assigning to the old id, so the group rebalances
        (KAFKA-9801).
        """
        old_id = group.static_members[instance_id]
        old_leader = group.leader or ""
        member = group.members[old_id]
        self._runtime.log(
            f"Static member with groupInstanceId={instance_id} and unknown member id joins group {group.group_id} in "
            f"{group.state.value} state. Replacing previously mapped member {old_id} with this groupInstanceId."
        )
        self._fence(member)
        group.rename(member, new_id)
        self._phases.restart_session(group, member)
        timeouts_ms = member.rebalance_timeout_ms, member.session_timeout_ms
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token
        client_reason = f"client reason: {request.reason or 'not provided'}"
        if group.state is STABLE:
            if group.selected_protocol() == group.protocol_name:
                self._persist(_Replacement(group, member, old_id, new_id, old_leader, timeouts_ms, request, token))
            else:
                self._phases.maybe_prepare_rebalance(
                    group,
                    f"Group's selectedProtocol will change because static member {new_id} with instance id "
                    f"{instance_id} joined with change of protocol; {client_reason}",
                )
        elif group.state is COMPLETING:
            self._phases.prepare_rebalance(
                group,
                f"Updating metadata for static member {new_id} with instance id {instance_id}; {client_reason}",
            )

    def _fence(self, member: Member) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._phases.respond_to_join(member, JoinGroupResult(fenced, member_id=member.member_id))
        if member.sync_token is not None:
            self._runtime.respond(member.sync_token, SyncGroupResult(fenced))
            member.sync_token = None

    def _persist(self, replacement: _Replacement) -> None:
        group = replacement.group
        assignments = {member.member_id: member.assignment for member in group.members.values()}

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            error = stored_error(error)
            if not replacement.is_parked:
                return
            if error is not ErrorCode.NONE:
                self._undo(replacement, error)
            elif group.state is PREPARING:
                return  # The join phase responds to the parked JoinGroup.
            elif group.state is DEAD:
                self._phases.respond_to_join(replacement.member, JoinGroupResult(ErrorCode.NOT_COORDINATOR))
            else:
                self._phases.respond_to_join(replacement.member, self._response(replacement))

        self._runtime.append_record(group.partition, metadata_batch(self._runtime, group, assignments), outcome)

    def _response(self, replacement: _Replacement) -> JoinGroupResult:
        """Return a response after which no leader assigns again: Stable ignores assignments."""
        group, member = replacement.group, replacement.member
        if not replacement.request.supports_skipping_assignment:
            return JoinGroupResult(
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=replacement.old_leader,
                member_id=member.member_id,
            )
        is_leader = group.leader == member.member_id
        return JoinGroupResult(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member.member_id,
            skip_assignment=is_leader,
            members=group.joined_members() if is_leader else (),
        )

    def _undo(self, replacement: _Replacement, error: ErrorCode) -> None:
        """Take a replacement back that could not be persisted. The protocols stay, as in Kafka."""
        group, member = replacement.group, replacement.member
        self._runtime.log(f"Failed to persist metadata for group {group.group_id}: {error.name}", "warning")
        member.rebalance_timeout_ms, member.session_timeout_ms = replacement.old_timeouts_ms
        result = JoinGroupResult(
            error,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=replacement.old_leader,
        )
        self._phases.respond_to_join(member, result)
        if group.state is not DEAD:
            group.rename(member, replacement.old_id)
            self._phases.restart_session(group, member)
            self._phases.try_complete_join(group)


class _Replacement:
    """A replacement whose record is being written."""

    __slots__ = ("group", "member", "new_id", "old_id", "old_leader", "old_timeouts_ms", "request", "token")

    def __init__(
        self,
        group: Group,
        member: Member,
        old_id: str,
        new_id: str,
        old_leader: str,
        old_timeouts_ms: tuple[int, int],
        request: JoinGroup,
        token: object,
    ) -> None:
        self.group = group
        self.member = member
        self.old_id = old_id
        self.new_id = new_id
        self.old_leader = old_leader
        self.old_timeouts_ms = old_timeouts_ms
        self.request = request
        self.token = token

    @property
    def is_parked(self) -> bool:
        """Whether its JoinGroup still waits for the write."""
        return self.member.join_token == self.token
