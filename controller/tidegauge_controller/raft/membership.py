"""Changes of the voter set, one voter at a time, and the upgrade that moves the voters into the log (KIP-853)."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.config import CAUGHT_UP_WITHIN_MS
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.effects import NotProposed, Proposed
from tidegauge_controller.raft.events import RequestReceived, UpgradeKRaftVersion
from tidegauge_controller.raft.leading import append_control, epoch_error, note_contact, own_voter, voter_response
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from tidegauge_controller.raft.states import Leader, VoterChange
from tidegauge_controller.raft.values import (
    VOTERS_IN_LOG,
    Endpoint,
    KRaftVersionRecord,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersRecord,
)

NO_DIRECTORY = bytes(16)


def handle_add(core: Core, event: RequestReceived, request: AddVoterRequest) -> None:
    """Ask the new replica for its kraft.versions; append the set with it after that (AddVoterHandler)."""
    endpoint = _reachable(core, request.endpoints)
    leader = _leader_for_change(core, event, request.voter, has_endpoint=endpoint is not None)
    if leader is None or endpoint is None:
        return
    if request.voter.id in core.voters.ids:
        message = f"Node {request.voter.id} is already a voter. Remove the voter with this id first."
        core.respond(event.token, voter_response(core, ErrorCode.DUPLICATE_VOTER, message))
        return
    if not core.connections.is_ready(request.voter.id, core.now_ms):
        message = f"Node {request.voter.id} is not ready to receive requests."
        core.respond(event.token, voter_response(core, ErrorCode.REQUEST_TIMED_OUT, message))
        return
    deadline = core.now_ms + max(0, min(request.timeout_ms, core.config.request_timeout_ms))
    leader.change = VoterChange(
        event.token,
        core.voters,
        deadline,
        added=request.voter,
        added_endpoints=request.endpoints,
        ack_when_committed=request.ack_when_committed,
    )
    core.send(request.voter.id, endpoint, ApiVersionsRequest())


def handle_api_versions(core: Core, node_id: int, response: ApiVersionsResponse) -> None:
    """Append the voter set with the replica that has responded, if it supports the kraft.version and is caught up."""
    leader = core.state
    change = leader.change if isinstance(leader, Leader) else None
    if not isinstance(leader, Leader) or change is None or change.added is None or change.offset is not None:
        return
    if change.added.id != node_id:
        return
    voter = Voter(change.added, change.added_endpoints, response.lowest_version, response.highest_version)
    if response.error is not ErrorCode.NONE:
        _fail(core, leader, ErrorCode.REQUEST_TIMED_OUT, f"Node {node_id} did not respond to an ApiVersions request.")
    elif not voter.lowest_version <= core.history.version <= voter.highest_version:
        supported = f"{voter.lowest_version} to {voter.highest_version}"
        message = f"Node {node_id} supports kraft.version {supported}; the cluster's is {core.history.version}."
        _fail(core, leader, ErrorCode.INVALID_REQUEST, message)
    elif not _is_caught_up(core, leader, voter):
        message = (
            f"Node {node_id} is lagging behind: it must fetch the metadata log, and have caught up, before it can vote."
        )
        _fail(core, leader, ErrorCode.REQUEST_TIMED_OUT, message)
    else:
        _append_set(core, leader, change, core.voters.with_voter(voter))


def handle_remove(core: Core, event: RequestReceived, request: RemoveVoterRequest) -> None:
    """Append the voter set without a voter; a leader that removes itself leads until that is committed.

    Source: RemoveVoterHandler.
    """
    leader = _leader_for_change(core, event, request.voter, has_endpoint=True)
    if leader is None:
        return
    voter = core.voters.voters.get(request.voter.id)
    if voter is None or voter.key != request.voter or len(core.voters) == 1:
        why = (
            "the last voter can't be removed" if voter is not None and voter.key == request.voter else "it is no voter"
        )
        message = f"Node {request.voter.id} with this directory id was not removed: {why}."
        core.respond(event.token, voter_response(core, ErrorCode.VOTER_NOT_FOUND, message))
        return
    deadline = core.now_ms + core.config.request_timeout_ms
    leader.change = VoterChange(event.token, core.voters, deadline)
    _append_set(core, leader, leader.change, core.voters.without(request.voter.id))


def handle_update(core: Core, event: RequestReceived, request: UpdateVoterRequest) -> None:
    """Take a voter's endpoints and kraft.versions in; the response does not wait for the commit (UpdateVoterHandler).

    Under kraft.version 0 the leader only remembers them: an upgrade to version 1 needs all of them.
    """
    leader = core.state
    error = epoch_error(core, request.epoch)
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        core.respond(event.token, voter_response(core, error))
        return
    if core.voters.has(request.voter):
        note_contact(core, leader, request.voter.id)
    is_static = core.history.version < VOTERS_IN_LOG
    error = _refuse_change(core, leader, allow_static=True)
    if error is ErrorCode.NONE:
        error = _refuse_update(core, request)
    if error is ErrorCode.NONE:
        voter = Voter(request.voter, request.endpoints, request.lowest_version, request.highest_version)
        if is_static:
            leader.updated_voters = leader.updated_voters.with_voter(voter)
        elif core.voters.voters[voter.key.id] != voter:
            append_control(core, leader, [VotersRecord(core.voters.with_voter(voter))])
    core.respond(event.token, voter_response(core, error))


def handle_upgrade(core: Core, event: UpgradeKRaftVersion) -> None:
    """Move the static voters into the log (LeaderState.maybeAppendUpgradedKRaftVersion).

    Refused unless each static voter has sent its endpoints to this leader and supports the version; a lower version is
    refused, since the voters' directories would be lost.
    """
    leader = core.state
    if not isinstance(leader, Leader):
        core.emit(NotProposed(event.token, ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum."))
        return
    known = leader.updated_voters.with_voter(own_voter(core)) if core.is_voter else leader.updated_voters
    missing = [voter_id for voter_id in core.voters.ids if voter_id not in known.voters]
    unable = [voter.key.id for voter in known.voters.values() if voter.highest_version < event.version]
    if event.version == core.history.version:
        core.emit(Proposed(event.token, core.log.end_offset, core.log.end_offset))
        return
    if event.version != VOTERS_IN_LOG or missing or unable or _refuse_change(core, leader, allow_static=True):
        why = f"kraft.version can't go from {core.history.version} to {event.version}"
        if missing or unable:
            why += f": these controllers don't support it or have not said so yet: {sorted({*missing, *unable})}"
        core.emit(NotProposed(event.token, ErrorCode.INVALID_UPDATE_VERSION, f"{why}."))
        return
    voters = VoterSet.of(known.voters[voter_id] for voter_id in core.voters.ids)
    base = append_control(core, leader, [KRaftVersionRecord(event.version), VotersRecord(voters)])
    core.emit(Proposed(event.token, base, core.log.end_offset))


def run_timers(core: Core) -> None:
    """Fail an overdue change of the voter set; its records stay in the log."""
    leader = core.state
    if isinstance(leader, Leader) and leader.change is not None and core.now_ms >= leader.change.deadline_ms:
        _expire(core, leader, leader.change)


def complete(core: Core) -> None:
    """End a change whose voter set is committed; a leader that is no voter any more resigns then."""
    leader = core.state
    if not isinstance(leader, Leader):
        return
    change, committed = leader.change, core.high_watermark
    if change is not None and change.offset is not None and committed is not None and committed > change.offset:
        if change.token is not None:
            core.respond(change.token, voter_response(core, ErrorCode.NONE))
        leader.change = None
    offset = core.history.last_voters_offset
    if not core.is_voter and offset is not None and committed is not None and committed > offset:
        leader.resign_requested = True


def _reachable(core: Core, endpoints: Sequence[Endpoint]) -> Endpoint | None:
    """Return the endpoint of a voter, on the leader's own first listener."""
    if not core.config.endpoints:
        return next(iter(endpoints), None)
    listener = core.config.endpoints[0].listener
    return next((one for one in endpoints if one.listener.upper() == listener.upper()), None)


def _is_valid_key(voter: ReplicaKey) -> bool:
    return voter.id >= 0 and voter.directory_id not in {None, NO_DIRECTORY}


def _leader_for_change(core: Core, event: RequestReceived, voter: ReplicaKey, *, has_endpoint: bool) -> Leader | None:
    leader = core.state
    error = epoch_error(core, core.state.epoch)
    message: str | None = None
    if error is ErrorCode.NONE and (not _is_valid_key(voter) or not has_endpoint):
        error, message = (
            ErrorCode.INVALID_REQUEST,
            "The request names no valid voter: it needs a directory id and an endpoint of the leader's listener.",
        )
    if error is ErrorCode.NONE and isinstance(leader, Leader):
        error = _refuse_change(core, leader, allow_static=False)
        message = _why_not(error)
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        core.respond(event.token, voter_response(core, error, message))
        return None
    return leader


def _refuse_change(core: Core, leader: Leader, *, allow_static: bool) -> ErrorCode:
    """Return why the voter set can't be changed now; NONE if it can.

    One change at a time, after a record of this epoch is committed, and after the former change is: without the second
    rule two majorities could fail to overlap (the bug of single-server changes that was found in 2015).
    """
    if leader.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT
    if not leader.is_announced or core.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if core.history.version < VOTERS_IN_LOG:
        return ErrorCode.NONE if allow_static else ErrorCode.UNSUPPORTED_VERSION
    offset = core.history.last_voters_offset
    return ErrorCode.REQUEST_TIMED_OUT if offset is not None and offset >= core.high_watermark else ErrorCode.NONE


def _why_not(error: ErrorCode) -> str | None:
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return "Another change of the voter set is not committed yet, or this leader's epoch is not. Try again."
    if error is ErrorCode.UNSUPPORTED_VERSION:
        return "The voters are static: kraft.version must be 1 before voters can be added or removed."
    return None


def _refuse_update(core: Core, request: UpdateVoterRequest) -> ErrorCode:
    if (
        not request.endpoints
        or not _is_valid_key(request.voter)
        or not request.lowest_version <= core.history.version <= request.highest_version
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if core.voters.has(request.voter) else ErrorCode.VOTER_NOT_FOUND


def _is_caught_up(core: Core, leader: Leader, voter: Voter) -> bool:
    progress = leader.observers.get(voter.key)
    if progress is None or progress.last_caught_up_ms < 0:
        return False
    return core.now_ms - progress.last_fetch_ms <= CAUGHT_UP_WITHIN_MS


def _append_set(core: Core, leader: Leader, change: VoterChange, voters: VoterSet) -> None:
    change.voter_set = voters
    change.offset = append_control(core, leader, [VotersRecord(voters)])
    if not change.ack_when_committed and change.token is not None:
        core.respond(change.token, voter_response(core, ErrorCode.NONE))
        change.token = None


def _fail(core: Core, leader: Leader, error: ErrorCode, message: str) -> None:
    if leader.change is not None and leader.change.token is not None:
        core.respond(leader.change.token, voter_response(core, error, message))
    leader.change = None


def _expire(core: Core, leader: Leader, change: VoterChange) -> None:
    if change.token is not None:
        message = "The change of the voter set was not committed in time."
        if change.offset is not None:
            message += " It is in the log and may still be committed."
        core.respond(change.token, voter_response(core, ErrorCode.REQUEST_TIMED_OUT, message))
        change.token = None
    if change.offset is None:
        leader.change = None


def fail_unreachable(core: Core, node_id: int) -> None:
    """Fail the addition of a replica that did not respond to the ApiVersions request."""
    leader = core.state
    change = leader.change if isinstance(leader, Leader) else None
    if not isinstance(leader, Leader) or change is None or change.added is None or change.offset is not None:
        return
    if change.added.id == node_id:
        message = f"Node {node_id} did not respond to an ApiVersions request at {change.added_endpoints[0]}."
        _fail(core, leader, ErrorCode.REQUEST_TIMED_OUT, message)
