"""Fetches of a node that does not lead: of records, of snapshots, and in search of a leader (KIP-595, KIP-630)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.effects import DropSnapshot, Truncate, WriteSnapshot
from tidegauge_controller.raft.events import RequestReceived, SnapshotInstalled
from tidegauge_controller.raft.messages import (
    UNKNOWN_OFFSET,
    ChangeVoterResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    UpdateVoterRequest,
)
from tidegauge_controller.raft.states import NEVER_MS, Download, Follower, IllegalTransitionError, Unattached
from tidegauge_controller.raft.values import OffsetAndEpoch


def run_timers(core: Core) -> None:
    """Take the fetch timeout of a follower that is a voter; an observer never stands for election."""
    state = core.state
    if not isinstance(state, Follower) or not core.is_voter:
        return
    if core.now_ms >= state.fetch_deadline_ms and not core.is_shutting_down:
        core.become_prospective("fetch timeout")
    elif core.now_ms >= state.update_voter_deadline_ms and not _needs_update(core, state):
        state.update_voter_deadline_ms = core.now_ms + core.config.fetch_timeout_ms


def deadline_ms(core: Core) -> int | None:
    """Return the follower's next deadline; None if the node does not follow.

    An UpdateRaftVoter that is overdue waits for its slot, and a node that shuts down stands for no election.
    """
    state = core.state
    if not isinstance(state, Follower):
        return None
    if not core.is_voter:
        return NEVER_MS
    update = state.update_voter_deadline_ms
    return min(
        NEVER_MS if core.is_shutting_down else state.fetch_deadline_ms, update if update > core.now_ms else NEVER_MS
    )


def send(core: Core) -> None:
    """Fetch from the leader; from a bootstrap server if the leader is not known or does not respond."""
    state = core.state
    if isinstance(state, Follower):
        _send_to_leader(core, state)
    elif isinstance(state, Unattached):
        core.send_to_bootstrap_server(_fetch_request(core))


def _send_to_leader(core: Core, state: Follower) -> None:
    download = state.download
    if core.config.can_become_voter and not core.log.is_flushed:
        return
    endpoint = state.endpoints[state.leader_id]
    if core.connections.is_failing(state.leader_id, core.now_ms):
        core.send_to_bootstrap_server(_fetch_request(core))
    elif download is not None:
        limit = core.config.fetch_snapshot_max_bytes
        request = FetchSnapshotRequest(
            core.config.cluster_id, core.me, state.epoch, download.snapshot, download.position, limit
        )
        core.send(state.leader_id, endpoint, request)
    elif _wants_update(core, state):
        core.send(state.leader_id, endpoint, _update_request(core, state))
    else:
        core.send(state.leader_id, endpoint, _fetch_request(core))


def _fetch_request(core: Core) -> FetchRequest:
    known = UNKNOWN_OFFSET if core.high_watermark is None else core.high_watermark
    return FetchRequest(
        core.config.cluster_id,
        core.me,
        core.state.epoch,
        core.log.end_offset,
        core.log.last_epoch,
        core.config.fetch_wait_ms,
        known,
        core.config.fetch_max_bytes,
    )


def handle_fetch_response(core: Core, node_id: int, request: FetchRequest, response: FetchResponse) -> None:
    """Take records, a truncation or a snapshot in; the common rule for epochs and leaders has been applied.

    Two fetches may be in flight to one node, since a follower asks bootstrap servers while its leader's slot backs off.
    A response that finds another end of the log than its request named is the later of the two, and changes nothing.
    (Kafka's node would append the same records again, and end its process.)
    Source: KafkaRaftClient.handleFetchResponse.

    Raises:
        IllegalTransitionError: the leader would take back committed records.
    """
    state = core.state
    if not isinstance(state, Follower):
        core.connections.back_off(node_id, core.now_ms)
        return
    if response.error is not ErrorCode.NONE or state.leader_id not in {node_id, response.leader_id}:
        core.connections.back_off(node_id, core.now_ms)
        return
    if (request.offset, request.last_epoch) != (core.log.end_offset, core.log.last_epoch):
        goes_on = True
    elif response.diverging is not None:
        goes_on = _truncate(core, response.diverging)
    elif response.snapshot is not None:
        goes_on = True
        _begin_download(core, state, response.snapshot)
    else:
        goes_on = _append(core, state, request, response)
    if not goes_on:  # the same request would bring the same response, as fast as the network allows
        core.connections.back_off(node_id, core.now_ms)
    _heard_of_leader(core, state)


def _heard_of_leader(core: Core, state: Follower) -> None:
    state.has_fetched = True
    state.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms


def _committed_floor(core: Core) -> int:
    """Return the offset below which the log is known to be committed.

    After a restart there is no high watermark yet, but a snapshot holds committed records alone.
    """
    newest = core.log.newest_snapshot
    return max(core.high_watermark or 0, core.log.start_offset, 0 if newest is None else newest.offset)


def _truncate(core: Core, diverging: OffsetAndEpoch) -> bool:
    """Truncate to the common part of both logs; return whether anything was truncated."""
    offset = core.log.truncation_offset(diverging)
    common, committed = min(offset, diverging.offset), _committed_floor(core)
    if common < committed:
        raise IllegalTransitionError(f"the leader's log diverges at {common}, below the high watermark {committed}")
    if offset >= core.log.end_offset:
        return False
    core.log.truncate(offset)
    core.history.truncate(offset)
    assert core.log.end_offset >= committed, "committed records are never truncated"
    core.emit(Truncate(offset))
    return True


def _append(core: Core, state: Follower, request: FetchRequest, response: FetchResponse) -> bool:
    """Append the batches that follow the log; return whether one did, or none was sent."""
    before = core.log.end_offset
    for batch in response.batches:
        follows = batch.base_offset == core.log.end_offset and batch.end_offset > batch.base_offset
        if not follows or not core.log.last_epoch <= batch.epoch <= state.epoch:
            break
        core.append(batch)
    if core.config.can_become_voter:
        core.flush()
    if response.high_watermark >= 0:
        _follow_high_watermark(core, request.high_watermark, response.high_watermark)
    return core.log.end_offset > before or not response.batches


def _follow_high_watermark(core: Core, asked: int | None, leaders: int) -> None:
    """Take over the leader's high watermark, unless another response has brought a later one meanwhile.

    Raises:
        IllegalTransitionError: it is below the one that the request named.
    """
    bound = min(leaders, core.log.end_offset)
    if asked is not None and bound < asked:
        raise IllegalTransitionError(f"the leader's high watermark {leaders} is below this node's {asked}")
    core.move_high_watermark(bound)


def _begin_download(core: Core, state: Follower, snapshot: OffsetAndEpoch) -> None:
    """Begin to fetch a snapshot in the place of the log.

    The leader names one if this log ends before its own begins, or has records there that were never committed. Those
    may be of a higher epoch than the snapshot's last record; Kafka's node then ends its process at every start
    (KafkaRaftLog.truncateToLatestFullSnapshot does nothing, and KafkaRaftClient throws).

    Raises:
        IllegalTransitionError: the snapshot would take back committed records.
    """
    if state.download is not None and state.download.snapshot == snapshot:
        return
    if not _may_install(core, snapshot):
        raise IllegalTransitionError(
            f"snapshot {tuple(snapshot)} ends below {_committed_floor(core)}, which is committed here"
        )
    state.download = Download(snapshot)
    if snapshot in core.log.snapshots:
        core.install(snapshot)


def _may_install(core: Core, snapshot: OffsetAndEpoch) -> bool:
    return snapshot.offset >= max(1, _committed_floor(core)) and 0 <= snapshot.epoch <= core.state.epoch


def handle_snapshot_response(
    core: Core, node_id: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    """Take a slice of a snapshot in; install the snapshot when it is complete.

    Source: KafkaRaftClient.handleFetchSnapshotResponse.
    """
    state = core.state
    if not isinstance(state, Follower) or state.download is None or state.download.snapshot != request.snapshot:
        return
    download = state.download
    is_gone = response.error in {ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE}
    if response.error is not ErrorCode.NONE and not is_gone:
        core.connections.back_off(node_id, core.now_ms)
        return
    is_other = response.snapshot != download.snapshot or response.position != download.position
    is_senseless = not response.data or download.position + len(response.data) > response.size_bytes
    if is_gone or is_other or is_senseless or not _may_install(core, download.snapshot):
        state.download = None
        core.emit(DropSnapshot(download.snapshot))
        core.connections.back_off(node_id, core.now_ms)
        return
    core.emit(WriteSnapshot(download.snapshot, download.position, response.data))
    download.position += len(response.data)
    if download.position >= response.size_bytes:
        core.install(download.snapshot)
    _heard_of_leader(core, state)


def handle_installed(core: Core, event: SnapshotInstalled) -> None:
    """Continue behind an installed snapshot: log, voters and high watermark start at its end."""
    core.log.restart_at(event.snapshot)
    core.history.restart(event.voter_set, event.kraft_version)
    if core.high_watermark is None or event.snapshot.offset > core.high_watermark:
        core.move_high_watermark(event.snapshot.offset)
    if isinstance(core.state, Follower):
        core.state.download = None


def handle_refused(core: Core) -> None:
    """Fetch again after a while: another leader, or the next snapshot of this one, may be whole."""
    state = core.state
    if isinstance(state, Follower):
        state.download = None
        core.connections.back_off(state.leader_id, core.now_ms)


def handle_end_quorum_epoch(core: Core, event: RequestReceived, request: EndQuorumEpochRequest) -> None:
    """Stand for election sooner or later, by the rank that the resigned leader gives (KafkaRaftClient)."""
    error = _refusal(core, request.leader_id, request.epoch)
    if error is ErrorCode.NONE:
        endpoints = {} if not request.endpoints else {request.leader_id: request.endpoints[0]}
        if core.learn(
            request.epoch, request.leader_id, endpoints, f"EndQuorumEpoch of node {request.leader_id}", event
        ):
            return
        state = core.state
        if isinstance(state, Follower) and state.leader_id == request.leader_id:
            rank = next((i for i, key in enumerate(request.preferred) if key.id == core.me.id), None)
            wait = election_backoff_ms(rank, len(request.preferred), core.config.election_backoff_max_ms)
            state.fetch_deadline_ms = core.now_ms + wait
    known = core.leader_endpoints()
    response = EndQuorumEpochResponse(
        error=error, leader_id=core.state.leader_id, epoch=core.state.epoch, endpoints=known
    )
    core.respond(event.token, response)


def _refusal(core: Core, leader_id: int, epoch: int) -> ErrorCode:
    if epoch < core.state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return contradiction(core, leader_id, epoch)


def contradiction(core: Core, leader_id: int, epoch: int) -> ErrorCode:
    """Return INVALID_REQUEST if a request's leader is missing or contradicts.

    It contradicts if this node knows another leader of the same epoch.

    Kafka's node ends its process there (KafkaRaftClient.maybeTransition). No honest leader sends such a request, nor
    one of an epoch that has no successor.
    """
    known = core.state.leader_id
    other = epoch == core.state.epoch and known is not None and known != leader_id
    is_me = leader_id == core.me.id and (epoch > core.state.epoch or known != core.me.id)
    return (
        ErrorCode.INVALID_REQUEST
        if leader_id < 0 or other or is_me or core.would_end_elections(epoch)
        else ErrorCode.NONE
    )


def election_backoff_ms(rank: int | None, candidates: int, longest_ms: int) -> int:
    """Return how long the voter of a rank waits after a resignation.

    Source: KafkaRaftClient.strictExponentialElectionBackoffMs.

    Args:
        rank: the voter's place among the preferred candidates, 0 first; None if it is not among them.
        candidates: how many there are.
        longest_ms: ``controller.quorum.election.backoff.max.ms``.
    """
    if rank is None:
        return longest_ms
    if rank == 0:
        return 0
    return min(longest_ms, (longest_ms >> (candidates - 1)) << (rank - 1))


def _wants_update(core: Core, state: Follower) -> bool:
    return core.is_voter and core.now_ms >= state.update_voter_deadline_ms and _needs_update(core, state)


def _needs_update(core: Core, state: Follower) -> bool:
    if core.history.version == 0:
        return not state.has_updated
    mine = core.voters.voters[core.me.id]
    same_range = (mine.lowest_version, mine.highest_version) == (
        core.config.lowest_version,
        core.config.highest_version,
    )
    return mine.endpoints != core.config.endpoints or not same_range


def _update_request(core: Core, state: Follower) -> UpdateVoterRequest:
    config = core.config
    return UpdateVoterRequest(
        config.cluster_id, state.epoch, core.me, config.endpoints, config.lowest_version, config.highest_version
    )


def handle_update_response(core: Core, node_id: int, response: ChangeVoterResponse) -> None:
    """Note that the leader knows the node's endpoints; try again later after an error."""
    state = core.state
    if not isinstance(state, Follower):
        return
    state.update_voter_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
    if response.error is ErrorCode.NONE:
        state.has_updated = True
        state.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
    else:
        core.connections.back_off(node_id, core.now_ms)
