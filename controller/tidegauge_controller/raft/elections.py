"""Votes and pre-votes: who asks, who grants, who wins (KIP-595, KIP-996)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.core import Core, with_vote
from tidegauge_controller.raft.events import RequestReceived
from tidegauge_controller.raft.messages import VoteRequest, VoteResponse
from tidegauge_controller.raft.states import NEVER_MS, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from tidegauge_controller.raft.values import LAST_EPOCH, ReplicaKey


def handle_vote(core: Core, event: RequestReceived, request: VoteRequest) -> None:
    """Grant or refuse a vote (KafkaRaftClient.handleVoteRequest).

    A request that is meant for another voter is refused first, and a pre-vote does not depose a leader, nor a follower
    that hears its leader: with Kafka either raises the epoch, so one stray request can end a healthy leader's term. A
    replica with a higher epoch is still heard: it responds FENCED_LEADER_EPOCH to the leader's BeginQuorumEpoch.

    A node that is no voter in its own log hears its leader until its fetch timeout, too. Kafka's refuses pre-votes
    for as long as it knows no other leader (FollowerState.canGrantVote), though a voter set that it has not fetched yet
    may need its vote (KIP-853): no leader could be elected before it restarts or the old one returns.
    """
    error = _refusal(core, request)
    if error is not ErrorCode.NONE:
        _respond(core, event.token, error=error)
        return
    if request.epoch > core.state.epoch and not (request.pre_vote and _hears_leader(core)):
        core.become_unattached(request.epoch, f"Vote of node {request.candidate.id}", event)
        return
    granted = _may_grant(core, request)
    if (
        granted
        and not request.pre_vote
        and isinstance(core.state, Unattached | Prospective)
        and core.state.voted is None
    ):
        core.persist(with_vote(core.state, request.candidate), f"vote for node {request.candidate.id}", event)
        return
    _respond(core, event.token, granted=granted)


def _refusal(core: Core, request: VoteRequest) -> ErrorCode:
    too_new = request.last_epoch > request.epoch if request.pre_vote else request.last_epoch >= request.epoch
    if request.end_offset < 0 or request.last_epoch < 0 or too_new or request.candidate.id < 0:
        return ErrorCode.INVALID_REQUEST
    if core.would_end_elections(request.epoch):
        return ErrorCode.INVALID_REQUEST
    if request.epoch < core.state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return voter_key_error(core, request.voter)


def voter_key_error(core: Core, voter: ReplicaKey | None) -> ErrorCode:
    """Return INVALID_VOTER_KEY if a request is meant for another replica than this one."""
    if voter is None or voter.id < 0:
        return ErrorCode.NONE
    is_me = voter.id == core.me.id and voter.directory_id in {None, core.me.directory_id}
    return ErrorCode.NONE if is_me else ErrorCode.INVALID_VOTER_KEY


def _hears_leader(core: Core) -> bool:
    """Whether the node leads, or has fetched from its leader within the fetch timeout."""
    state = core.state
    if isinstance(state, Follower):
        return state.has_fetched and core.now_ms < state.fetch_deadline_ms
    return isinstance(state, Leader)


def _may_grant(core: Core, request: VoteRequest) -> bool:
    state = core.state
    is_up_to_date = (request.last_epoch, request.end_offset) >= (core.log.last_epoch, core.log.end_offset)
    if request.pre_vote:
        return is_up_to_date and not _hears_leader(core)
    if not isinstance(state, Unattached | Prospective):
        return False
    if state.voted is not None:
        # A vote that was noted without a directory, under quorum-state version 0, counts for the id.
        return state.voted.id == request.candidate.id and state.voted.directory_id in {
            None,
            request.candidate.directory_id,
        }
    return state.leader_id is None and is_up_to_date


def _respond(core: Core, token: object, *, error: ErrorCode = ErrorCode.NONE, granted: bool = False) -> None:
    core.respond(
        token,
        VoteResponse(
            error=error,
            leader_id=core.state.leader_id,
            epoch=core.state.epoch,
            endpoints=core.leader_endpoints(),
            granted=granted,
        ),
    )


def handle_vote_response(core: Core, voter_id: int, request: VoteRequest, response: VoteResponse) -> None:
    """Count a vote; the common rule for epochs and leaders has been applied."""
    state = core.state
    if not isinstance(state, Prospective | Candidate) or request.pre_vote != isinstance(state, Prospective):
        return
    if response.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(state, Prospective):
        become_candidate(core, f"node {voter_id} knows no pre-votes")
    elif response.error is ErrorCode.NONE:
        (state.granted if response.granted else state.rejected).add(voter_id)
        decide(core)
    else:
        core.connections.back_off(voter_id, core.now_ms)


def decide(core: Core) -> None:
    """Continue if a majority has granted its votes or can no longer do so.

    A candidate that was rejected waits its election timeout out; a prospective goes back to its leader at once.
    """
    state = core.state
    if not isinstance(state, Prospective | Candidate):
        return
    if len(state.granted & set(core.voters.ids)) >= core.voters.majority:
        if isinstance(state, Prospective):
            become_candidate(core, "a majority granted its pre-votes")
        else:
            _become_leader(core, state)
    elif isinstance(state, Prospective) and core.is_rejected(state):
        _give_up(core, state, "a majority rejected its pre-votes")


def become_candidate(core: Core, reason: str) -> None:
    """Begin an election in a new epoch, after the node's vote for itself is on the disk.

    After the last epoch there is no election; the node waits for its leader, or for another election timeout.
    """
    if core.state.epoch >= LAST_EPOCH:
        assert isinstance(core.state, Prospective), "only a node that has asked for pre-votes becomes a candidate"
        _give_up(core, core.state, f"epoch {core.state.epoch} has no successor")
        return
    core.persist(Candidate(core.state.epoch + 1, core.me, granted={core.me.id}), reason)


def run_timers(core: Core) -> None:
    """Take the election timeout of an unattached voter, a prospective or a candidate."""
    state = core.state
    match state:
        case Unattached() if core.is_voter and core.now_ms >= state.election_deadline_ms and not core.is_shutting_down:
            core.become_prospective("election timeout")
        case Candidate() if core.now_ms >= state.election_deadline_ms:
            core.become_prospective("election timeout, no majority")
        case Prospective() if core.now_ms >= state.election_deadline_ms:
            _give_up(core, state, "election timeout, no majority")
        case _:
            pass


def send(core: Core) -> None:
    """Ask each voter that has not voted yet."""
    state = core.state
    if not isinstance(state, Prospective | Candidate):
        return
    for voter_id, voter in core.voters.voters.items():
        if voter_id not in state.granted and voter_id not in state.rejected:
            pre_vote = isinstance(state, Prospective)
            request = VoteRequest(
                core.config.cluster_id,
                voter.key,
                state.epoch,
                core.me,
                core.log.last_epoch,
                core.log.end_offset,
                pre_vote,
            )
            core.send_to_voter(voter_id, request)


def deadline_ms(core: Core) -> int | None:
    """Return when the next election timeout is; None if the state has none.

    A node that shuts down begins no election: it waits for the result of its own, or for another leader
    (KafkaRaftClient.pollUnattachedAsVoter, pollResigned).
    """
    state = core.state
    if isinstance(state, Unattached | Resigned):
        return NEVER_MS if core.is_shutting_down else state.election_deadline_ms
    return state.election_deadline_ms if isinstance(state, Prospective | Candidate) else None


def _become_leader(core: Core, state: Candidate) -> None:
    keys = core.voters.voters
    granting = tuple(keys[voter_id].key for voter_id in sorted(state.granted) if voter_id in keys)
    leader = Leader(state.epoch, core.log.end_offset, granting, state.voted, core.me.id)
    core.persist(leader, "a majority granted its votes")


def _give_up(core: Core, state: Prospective, reason: str) -> None:
    if state.leader_id is not None and state.leader_id in state.endpoints:
        core.persist(Follower(state.epoch, state.leader_id, dict(state.endpoints), state.voted), reason)
    else:
        unattached = Unattached(state.epoch, state.leader_id, state.voted)
        core.persist(unattached, reason)
