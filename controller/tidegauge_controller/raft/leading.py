"""The leader of a quorum: fetches, the high watermark, appends, check-quorum, resignation (KIP-595, KIP-1166)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import following
from tidegauge_controller.raft.config import MAX_BATCH_BYTES, MOST_OBSERVERS, OBSERVER_EXPIRES_MS
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.effects import LeadershipChanged, NotProposed, Proposed, Respond
from tidegauge_controller.raft.elections import voter_key_error
from tidegauge_controller.raft.events import Propose, RequestReceived
from tidegauge_controller.raft.log_view import Match
from tidegauge_controller.raft.messages import (
    UNKNOWN_OFFSET,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoterResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from tidegauge_controller.raft.states import NEVER_MS, Leader, ParkedFetch, PendingProposal, Progress, Resigned
from tidegauge_controller.raft.values import (
    LAST_EPOCH,
    VOTERS_IN_LOG,
    Batch,
    ControlRecord,
    KRaftVersionRecord,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VotersRecord,
)

# --- the beginning and the end of a leadership


def begin(core: Core, leader: Leader) -> None:
    """Begin to lead: append the control records of the epoch and make the leadership known.

    Source: KafkaRaftClient.onBecomeLeader, LeaderState.appendStartOfEpochControlRecords.
    """
    leader.check_quorum_deadline_ms = core.now_ms + core.config.check_quorum_ms
    follow_voter_set(core, leader)
    records: list[ControlRecord] = [LeaderChange(core.me.id, core.voters.keys, leader.granting_voters)]
    if core.history.version >= VOTERS_IN_LOG and core.is_voter:
        mine = own_voter(core)
        if core.history.is_from_bootstrap or core.voters.voters[core.me.id] != mine:
            records += [KRaftVersionRecord(core.history.version), VotersRecord(core.voters.with_voter(mine))]
    append_control(core, leader, records)


def own_voter(core: Core) -> Voter:
    """Return the entry of the voter set that describes this node."""
    return Voter(core.me, core.config.endpoints, core.config.lowest_version, core.config.highest_version)


def end(core: Core, leader: Leader) -> None:
    """Respond to everything that waited for this leader with NOT_LEADER_OR_FOLLOWER."""
    for parked in list(leader.parked.values()):
        core.respond(parked.token, _fetch_error(core, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.parked.clear()
    leader.pending.clear()
    if leader.change is not None and leader.change.token is not None:
        message = "The leader has changed; whether the voter set will be changed is not known."
        core.respond(leader.change.token, voter_response(core, ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
    leader.change = None


def voter_response(core: Core, error: ErrorCode, message: str | None = None) -> ChangeVoterResponse:
    """Return the response to a request that changes the voter set."""
    return ChangeVoterResponse(
        error=error,
        message=message,
        leader_id=core.state.leader_id,
        epoch=core.state.epoch,
        endpoints=core.leader_endpoints(),
    )


def resign(core: Core, reason: str) -> None:
    """Give the leadership up; the longest log among the other voters should lead next."""
    leader = core.state
    if not isinstance(leader, Leader):
        return
    others = [progress for voter_id, progress in leader.voters.items() if voter_id != core.me.id]
    by_length = sorted(others, key=lambda progress: (-_end_offset(progress), progress.key.id))
    preferred = tuple(progress.key for progress in by_length)
    unacknowledged = {key.id for key in preferred}
    core.enter(
        Resigned(leader.epoch, core.me.id, leader.voted, unacknowledged=unacknowledged, preferred=preferred), reason
    )


# --- timers and requests of its own


def run_timers(core: Core) -> None:
    """Take the timers of a leader or a resigned one that are due."""
    state = core.state
    if isinstance(state, Resigned) and core.now_ms >= state.election_deadline_ms and not core.is_shutting_down:
        if state.epoch >= LAST_EPOCH:
            state.election_deadline_ms = core.random_election_deadline()
        else:
            core.become_unattached(state.epoch + 1, "election timeout after the resignation")
    if not isinstance(state, Leader):
        return
    if state.resign_requested or core.is_shutting_down:
        resign(core, "the leadership was given up")
    elif core.now_ms >= state.check_quorum_deadline_ms:
        resign(core, "no majority of the voters has fetched for the time of a check-quorum")
    else:
        _expire_parked(core, state)
        if core.now_ms >= state.linger_deadline_ms:
            drain(core, state)


def deadline_ms(core: Core) -> int | None:
    """Return the leader's next deadline; None if the node does not lead."""
    leader = core.state
    if not isinstance(leader, Leader):
        return None
    if leader.resign_requested or core.is_shutting_down:
        return core.now_ms
    due = [leader.check_quorum_deadline_ms, leader.linger_deadline_ms]
    due += [parked.deadline_ms for parked in leader.parked.values()]
    due += [deadline for deadline in leader.begin_deadlines_ms.values() if deadline > core.now_ms]
    if leader.change is not None and leader.change.token is not None:
        due.append(leader.change.deadline_ms)
    return min(due)


def send(core: Core) -> None:
    """Make the leader known to voters that do not fetch; notify all of a resignation."""
    state = core.state
    if isinstance(state, Leader):
        for voter_id, deadline in state.begin_deadlines_ms.items():
            if core.now_ms >= deadline and core.connections.is_ready(voter_id, core.now_ms):
                key = core.voters.voters[voter_id].key
                request = BeginQuorumEpochRequest(
                    core.config.cluster_id, key, core.me.id, state.epoch, core.config.endpoints
                )
                core.send_to_voter(voter_id, request)
                state.begin_deadlines_ms[voter_id] = core.now_ms + core.config.begin_quorum_ms
    elif isinstance(state, Resigned):
        ended = EndQuorumEpochRequest(
            core.config.cluster_id, core.me.id, state.epoch, state.preferred, core.config.endpoints
        )
        for voter_id in sorted(state.unacknowledged):
            core.send_to_voter(voter_id, ended)


def handle_begin_quorum_epoch(core: Core, event: RequestReceived, request: BeginQuorumEpochRequest) -> None:
    """Follow a new leader, even if the request was for another (KafkaRaftClient.handleBeginQuorumEpochRequest)."""
    error = ErrorCode.FENCED_LEADER_EPOCH if request.epoch < core.state.epoch else ErrorCode.NONE
    if error is ErrorCode.NONE:
        error = following.contradiction(core, request.leader_id, request.epoch)
    if error is ErrorCode.NONE:
        endpoints = {} if not request.endpoints else {request.leader_id: request.endpoints[0]}
        reason = f"BeginQuorumEpoch of node {request.leader_id}"
        if core.learn(request.epoch, request.leader_id, endpoints, reason, event):
            return
        error = voter_key_error(core, request.voter)
    response = BeginQuorumEpochResponse(
        error=error, leader_id=core.state.leader_id, epoch=core.state.epoch, endpoints=core.leader_endpoints()
    )
    core.respond(event.token, response)


# --- fetches


def handle_fetch(core: Core, event: RequestReceived, request: FetchRequest) -> None:
    """Respond to a fetch, or park it (KafkaRaftClient.handleFetchRequest)."""
    if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
        core.respond(event.token, _fetch_error(core, ErrorCode.INVALID_REQUEST))
        return
    error = epoch_error(core, request.epoch)
    leader = core.state
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        core.respond(event.token, _fetch_error(core, error))
        return
    snapshot = core.log.newest_snapshot
    if request.offset == 0 and snapshot is not None:
        core.respond(event.token, _fetched(core, leader, snapshot=snapshot))
        return
    match, matched = core.log.match(request.offset, request.last_epoch)
    if match is Match.SNAPSHOT:
        core.respond(event.token, _fetched(core, leader, snapshot=matched))
        return
    if match is Match.DIVERGING:
        core.respond(event.token, _fetched(core, leader, diverging=matched))
        return
    _note_fetch(core, leader, request.replica, request.offset)
    knows_less = request.high_watermark is not None and request.high_watermark < own_high_watermark(core, leader)
    if request.offset < core.log.end_offset or request.max_wait_ms == 0 or knows_less:
        _respond_records(core, leader, event.token, request)
    else:
        leader.parked[event.token] = ParkedFetch(event.token, request, core.now_ms + request.max_wait_ms)


def epoch_error(core: Core, epoch: int) -> ErrorCode:
    """Return why a leader here can't serve an epoch's request, or NONE.

    Source: KafkaRaftClient.validateLeaderOnlyRequest.
    """
    if epoch < core.state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if core.is_shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE if isinstance(core.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def own_high_watermark(core: Core, leader: Leader) -> int:
    """Return the high watermark that a leader reports, or UNKNOWN_OFFSET.

    It is unknown until a majority has a record of its epoch.

    As a follower it may have known less than another follower, whose high watermark must not fall.
    """
    if not leader.is_announced or core.high_watermark is None:
        return UNKNOWN_OFFSET
    assert core.high_watermark <= core.log.end_offset, (
        "move_high_watermark takes no higher one, a leader truncates none"
    )
    return core.high_watermark


def _fetch_error(core: Core, error: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error=error, leader_id=core.state.leader_id, epoch=core.state.epoch, endpoints=core.leader_endpoints()
    )


def _fetched(
    core: Core, leader: Leader, *, snapshot: OffsetAndEpoch | None = None, diverging: OffsetAndEpoch | None = None
) -> FetchResponse:
    return FetchResponse(
        leader_id=core.state.leader_id,
        epoch=core.state.epoch,
        endpoints=core.leader_endpoints(),
        high_watermark=own_high_watermark(core, leader),
        log_start_offset=core.log.start_offset,
        diverging=diverging,
        snapshot=snapshot,
    )


def _respond_records(core: Core, leader: Leader, token: object, request: FetchRequest) -> None:
    read_from = request.offset if request.offset < core.log.end_offset else None
    limit = max(0, min(request.max_bytes, core.config.fetch_max_bytes))
    core.emit(Respond(token, _fetched(core, leader), read_from, limit))


def _complete_parked(core: Core, leader: Leader, *, with_records_only: bool) -> None:
    for parked in list(leader.parked.values()):
        if not with_records_only or parked.request.offset < core.log.end_offset:
            del leader.parked[parked.token]
            _respond_records(core, leader, parked.token, parked.request)


def _expire_parked(core: Core, leader: Leader) -> None:
    for parked in list(leader.parked.values()):
        if core.now_ms >= parked.deadline_ms:
            del leader.parked[parked.token]
            _respond_records(core, leader, parked.token, parked.request)


def handle_fetch_snapshot(core: Core, event: RequestReceived, request: FetchSnapshotRequest) -> None:
    """Let the shell send a slice of a snapshot (KafkaRaftClient.handleFetchSnapshotRequest)."""
    error = epoch_error(core, request.epoch)
    leader = core.state
    if error is ErrorCode.NONE and (request.snapshot not in core.log.snapshots or request.snapshot == (0, 0)):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error is ErrorCode.NONE and request.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    response = FetchSnapshotResponse(
        error=error,
        leader_id=core.state.leader_id,
        epoch=core.state.epoch,
        endpoints=core.leader_endpoints(),
        snapshot=request.snapshot,
        position=request.position,
    )
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        core.respond(event.token, response)
        return
    if core.voters.has(request.replica):
        note_contact(core, leader, request.replica.id)
    limit = max(1, min(request.max_bytes, core.config.fetch_snapshot_max_bytes))
    core.emit(Respond(event.token, response, max_bytes=limit))


# --- what the leader knows of the others' logs


def _note_fetch(core: Core, leader: Leader, replica: ReplicaKey, offset: int) -> None:
    if replica == core.me or replica.id < 0 or (replica.id == core.me.id and core.voters.has(replica)):
        return  # static voters have no directory: whatever fetches under the leader's id must not count as its disk
    if core.voters.has(replica):
        progress = leader.voters[replica.id]
        note_contact(core, leader, replica.id)
    else:
        progress = leader.observers.setdefault(replica, Progress(replica))
        _forget_observers(core, leader, replica)
    if offset >= core.log.end_offset:
        progress.last_caught_up_ms = core.now_ms
    elif offset >= progress.leader_end_at_last_fetch >= 0:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
    progress.end_offset = offset
    progress.last_fetch_ms = core.now_ms
    progress.leader_end_at_last_fetch = core.log.end_offset
    maybe_move_high_watermark(core, leader)


def _forget_observers(core: Core, leader: Leader, fetching: ReplicaKey) -> None:
    """Drop observers that no longer fetch, and the one that fetched longest ago if there are too many."""
    for key, other in list(leader.observers.items()):
        if key != fetching and core.now_ms - other.last_fetch_ms > OBSERVER_EXPIRES_MS:
            del leader.observers[key]
    if len(leader.observers) > MOST_OBSERVERS:
        others = [progress for key, progress in leader.observers.items() if key != fetching]
        del leader.observers[min(others, key=lambda progress: progress.last_fetch_ms).key]


def note_contact(core: Core, leader: Leader, voter_id: int) -> None:
    """Note that another voter has been heard; restart the check-quorum timer once a majority has (LeaderState)."""
    if voter_id == core.me.id:
        return
    if voter_id in leader.begin_deadlines_ms:
        leader.begin_deadlines_ms[voter_id] = core.now_ms + core.config.begin_quorum_ms
    leader.fetched_since_check.add(voter_id)
    _check_quorum(core, leader)


def _check_quorum(core: Core, leader: Leader) -> None:
    needed = core.voters.majority - (1 if core.is_voter else 0)
    if needed <= 0:
        leader.check_quorum_deadline_ms = NEVER_MS
    elif len(leader.fetched_since_check & set(core.voters.ids)) >= needed:
        leader.fetched_since_check.clear()
        leader.check_quorum_deadline_ms = core.now_ms + core.config.check_quorum_ms


def follow_voter_set(core: Core, leader: Leader) -> None:
    """Take the voter set in, which is in force as soon as it is appended (LeaderState.updateVoterAndObserverStates)."""
    known = {progress.key: progress for progress in leader.voters.values()} | leader.observers
    leader.voters = {
        voter_id: known.get(voter.key, Progress(voter.key)) for voter_id, voter in core.voters.voters.items()
    }
    # A static voter that has moved into the log has a new key: the old one, without directory, is no observer.
    keys = {named for key in core.voters.keys for named in (key, ReplicaKey(key.id))}
    leader.observers = {key: progress for key, progress in known.items() if key not in keys and key != core.me}
    others = core.other_voters
    leader.begin_deadlines_ms = {voter_id: leader.begin_deadlines_ms.get(voter_id, core.now_ms) for voter_id in others}
    leader.fetched_since_check &= set(others)
    if leader.check_quorum_deadline_ms == NEVER_MS:
        leader.check_quorum_deadline_ms = core.now_ms + core.config.check_quorum_ms
    _check_quorum(core, leader)
    note_own_log(core, leader)


def note_own_log(core: Core, leader: Leader) -> None:
    """Count the flushed part of the leader's own log, if the leader is a voter."""
    if core.is_voter and core.me.id in leader.voters:
        leader.voters[core.me.id].end_offset = core.log.flushed_offset
        maybe_move_high_watermark(core, leader)


def _end_offset(progress: Progress) -> int:
    return -1 if progress.end_offset is None else progress.end_offset


def maybe_move_high_watermark(core: Core, leader: Leader) -> None:
    """Commit what a majority of the voters has, once it reaches into this epoch (LeaderState.maybeUpdateHighWatermark).

    Records of former epochs are committed only with a record of the leader's own (Raft paper, section 5.4.2).
    """
    ends = sorted((_end_offset(progress) for progress in leader.voters.values()), reverse=True)
    bound = min(ends[len(ends) // 2], core.log.end_offset) if ends else UNKNOWN_OFFSET
    if bound > leader.epoch_start_offset and core.move_high_watermark(bound):
        if not leader.is_announced:
            leader.is_announced = True
            core.emit(LeadershipChanged(core.me.id, leader.epoch))
        _complete_parked(core, leader, with_records_only=False)


# --- appends


def handle_propose(core: Core, event: Propose) -> None:
    """Give the records their offsets; they are appended with others after a short wait (BatchAccumulator)."""
    leader = core.state
    if not isinstance(leader, Leader) or event.epoch != leader.epoch or leader.resign_requested:
        core.emit(
            NotProposed(event.token, ErrorCode.NOT_CONTROLLER, "This node does not lead the epoch of the records.")
        )
        return
    if event.size_bytes > MAX_BATCH_BYTES or event.count < 1:
        message = (
            f"A batch holds 1 record or more and at most {MAX_BATCH_BYTES} bytes; this one has {event.size_bytes}."
        )
        core.emit(NotProposed(event.token, ErrorCode.RECORD_LIST_TOO_LARGE, message))
        return
    base = leader.pending[-1].end_offset if leader.pending else core.log.end_offset
    last = leader.pending[-1] if leader.pending else None
    if last is not None and last.size_bytes + event.size_bytes <= MAX_BATCH_BYTES:
        last.end_offset, last.size_bytes = base + event.count, last.size_bytes + event.size_bytes
        last.payloads.append(event.payload)
    else:
        leader.pending.append(PendingProposal(base, base + event.count, event.size_bytes, [event.payload]))
    core.emit(Proposed(event.token, base, base + event.count))
    if len(leader.pending) > 1 or core.config.append_linger_ms <= 0:
        drain(core, leader)
    elif leader.linger_deadline_ms == NEVER_MS:
        leader.linger_deadline_ms = core.now_ms + core.config.append_linger_ms


def drain(core: Core, leader: Leader) -> None:
    """Append all proposals, each batch at the offsets that it was given, and flush."""
    leader.linger_deadline_ms = NEVER_MS
    if not leader.pending:
        return
    pending, leader.pending = leader.pending, []
    for proposal in pending:
        payload = tuple(proposal.payloads)
        core.append(
            Batch(proposal.base_offset, proposal.end_offset, leader.epoch, payload=payload, timestamp_ms=core.now_ms)
        )
    _appended(core, leader)


def append_control(core: Core, leader: Leader, records: list[ControlRecord]) -> int:
    """Append control records in one batch, behind all proposals; return the offset of the first."""
    leader.linger_deadline_ms = NEVER_MS
    drain(core, leader)
    base = core.log.end_offset
    core.append(Batch(base, base + len(records), leader.epoch, tuple(records), timestamp_ms=core.now_ms))
    if any(isinstance(record, VotersRecord) for record in records):
        follow_voter_set(core, leader)
    _appended(core, leader)
    return base


def _appended(core: Core, leader: Leader) -> None:
    _complete_parked(core, leader, with_records_only=True)
    core.flush()
