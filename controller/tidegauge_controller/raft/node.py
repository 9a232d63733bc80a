"""One node of a quorum of controllers, pure: ``RaftNode.step(event, now, random)`` returns effects (``__init__``)."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import describing, elections, following, leading, membership
from tidegauge_controller.raft.config import CLEANING_INTERVAL_MS, QuorumConfig
from tidegauge_controller.raft.connections import Connections
from tidegauge_controller.raft.core import FIRST_BOOTSTRAP_ID, Core
from tidegauge_controller.raft.effects import CleanSnapshots, Effect, ShutDownCompleted, StateChanged
from tidegauge_controller.raft.events import (
    ElectionPersisted,
    Event,
    Flushed,
    LogStartMoved,
    Propose,
    RequestReceived,
    Resign,
    ResponseReceived,
    SendFailed,
    ShutDown,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    UpgradeKRaftVersion,
)
from tidegauge_controller.raft.log_view import LogView, Match
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoterResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.refusals import refusal
from tidegauge_controller.raft.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Resigned,
    State,
    Unattached,
)
from tidegauge_controller.raft.values import ElectionState
from tidegauge_controller.raft.voter_history import VoterHistory


class RaftNode:
    """A voter or an observer of the metadata log's quorum."""

    def __init__(self, config: QuorumConfig, log: LogView, history: VoterHistory, election: ElectionState) -> None:
        """Begin with what the disk has; the first step starts the timers.

        Args:
            config: the node's settings.
            log: the bounds of its log, all of it flushed.
            history: the voter sets of its newest snapshot and its log.
            election: what ``quorum-state`` says; the default if there is no such file.
        """
        connections = Connections(max(1, config.request_timeout_ms), config.retry_backoff_ms)
        self._core = Core(config, log, history, Unattached(election.epoch), connections)
        self._election = election
        self._is_started = False

    # --- what can be seen

    @property
    def state(self) -> State:
        """The node's state in the quorum."""
        return self._core.state

    @property
    def log(self) -> LogView:
        """The bounds of its log."""
        return self._core.log

    @property
    def history(self) -> VoterHistory:
        """The voter sets and kraft.versions of its log."""
        return self._core.history

    @property
    def high_watermark(self) -> int | None:
        """The end of what the node knows to be committed; None if it knows nothing yet."""
        return self._core.high_watermark

    @property
    def is_blocked(self) -> bool:
        """Whether the node takes no event but the disk's report (``ElectionPersisted``, ``SnapshotInstalled``)."""
        return self._core.is_blocked

    @property
    def is_voter(self) -> bool:
        """Whether the node is in the voter set in force."""
        return self._core.is_voter

    def next_deadline_ms(self) -> int:
        """Return the next deadline; NEVER_MS while the node waits for the disk."""
        core = self._core
        if core.is_blocked:
            return NEVER_MS
        own = (elections.deadline_ms(core), following.deadline_ms(core), leading.deadline_ms(core))
        known = [deadline for deadline in own if deadline is not None]
        return min(*known, core.connections.next_deadline_ms(core.now_ms), core.cleaning_deadline_ms)

    # --- steps

    def step(self, event: Event, now_ms: int, random: Callable[[], float]) -> list[Effect]:
        """Run the expired timers, then take one event; return the effects, in order.

        Args:
            event: what happened.
            now_ms: the time, which never goes back.
            random: returns a number in [0, 1) at each call.

        Raises:
            IllegalTransitionError: the protocol is broken, by this node or by a message; the process must end.
            ValueError: the node waits for the disk, and the event is not the disk's report.
        """
        core = self._core
        core.now_ms, core.random, core.effects = max(now_ms, core.now_ms), random, []
        if not self._is_started:
            self._start()
        former = core.state
        event = self._unblock(event) if core.is_blocked else self._run_timers(event)
        former = self._leave(former)
        if not core.is_blocked:
            self._handle(event)
            former = self._leave(former)
        if not core.is_blocked:
            self._settle()
            self._leave(former)
        effects, core.effects = core.effects, []
        return effects

    def _start(self) -> None:
        """Enter the first state (QuorumState.initialize)."""
        core, election = self._core, self._election
        self._is_started = True
        core.cleaning_deadline_ms = core.now_ms + CLEANING_INTERVAL_MS
        core.state = first_state(core, election)
        if isinstance(core.state, Follower):
            core.state.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
            core.state.update_voter_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
        elif not isinstance(core.state, Leader) and core.is_voter:
            core.state.election_deadline_ms = core.random_election_deadline()
        core.emit(StateChanged(type(core.state).__name__, core.state.epoch, core.state.leader_id, "start"))

    def _unblock(self, event: Event) -> Event:
        core = self._core
        if core.pending is not None and isinstance(event, ElectionPersisted):
            pending, core.pending = core.pending, None
            core.enter(pending.state, pending.reason)
            if isinstance(pending.state, Leader):
                leading.begin(core, pending.state)
            return Tick() if pending.then is None else pending.then
        if core.installing is not None and isinstance(event, SnapshotInstalled) and event.snapshot == core.installing:
            core.installing = None
            following.handle_installed(core, event)
            return Tick()
        if core.installing is not None and isinstance(event, SnapshotRefused) and event.snapshot == core.installing:
            core.installing = None
            following.handle_refused(core)
            return Tick()
        raise ValueError(f"the node waits for the disk, and takes no {type(event).__name__}")

    def _run_timers(self, event: Event) -> Event:
        """Take each timer that is due once. If one of them waits for the disk, the event is handled after that."""
        core = self._core
        core.connections.expire(core.now_ms)
        for run in (elections.run_timers, following.run_timers, membership.run_timers, leading.run_timers):
            run(core)
            if core.pending is not None:
                core.pending.then = event
                return Tick()
        if core.now_ms >= core.cleaning_deadline_ms:
            core.cleaning_deadline_ms = core.now_ms + CLEANING_INTERVAL_MS
            core.emit(CleanSnapshots())
        return event

    def _leave(self, former: State) -> State:
        """End a leadership that the node has lost since ``former`` was its state; return the present state."""
        if isinstance(former, Leader) and self._core.state is not former:
            leading.end(self._core, former)
        return self._core.state

    def _settle(self) -> None:
        """Follow up on the new state: decide elections, end changes, send due requests."""
        core = self._core
        membership.complete(core)
        elections.decide(core)
        if core.is_blocked:
            return
        if core.is_shutting_down:
            self._maybe_complete_shutdown()
        for send in (elections.send, following.send, leading.send):
            send(core)

    def _handle(self, event: Event) -> None:
        core = self._core
        match event:
            case Tick():
                pass
            case RequestReceived():
                self._handle_request(event, event.request)
            case ResponseReceived():
                self._handle_response(event)
            case SendFailed():
                self._handle_failure(event)
            case Flushed():
                core.log.flushed(event.number, event.end_offset)
                if isinstance(core.state, Leader):
                    leading.note_own_log(core, core.state)
            case Propose():
                leading.handle_propose(core, event)
            case UpgradeKRaftVersion():
                membership.handle_upgrade(core, event)
            case Resign():
                if isinstance(core.state, Leader) and core.state.epoch == event.epoch:
                    core.state.resign_requested = True
            case ShutDown():
                self._begin_shutdown()
            case SnapshotCreated():
                self._note_snapshot(event)
            case LogStartMoved():
                core.log.move_start(event.start_offset)
                core.history.prune(event.start_offset)
            case _:
                raise ValueError(f"the node does not wait for a {type(event).__name__}")

    def _handle_request(self, event: RequestReceived, request: Request) -> None:
        core = self._core
        response = refusal(core, request)
        if response is not None:
            core.respond(event.token, response)
            return
        match request:
            case VoteRequest():
                elections.handle_vote(core, event, request)
            case BeginQuorumEpochRequest():
                leading.handle_begin_quorum_epoch(core, event, request)
            case EndQuorumEpochRequest():
                following.handle_end_quorum_epoch(core, event, request)
            case FetchRequest():
                leading.handle_fetch(core, event, request)
            case FetchSnapshotRequest():
                leading.handle_fetch_snapshot(core, event, request)
            case AddVoterRequest():
                membership.handle_add(core, event, request)
            case RemoveVoterRequest():
                membership.handle_remove(core, event, request)
            case UpdateVoterRequest():
                membership.handle_update(core, event, request)
            case DescribeQuorumRequest():
                core.respond(event.token, describing.describe(core))
            case ApiVersionsRequest():
                versions = (core.config.lowest_version, core.config.highest_version)
                core.respond(event.token, ApiVersionsResponse(lowest_version=versions[0], highest_version=versions[1]))

    def _handle_response(self, event: ResponseReceived) -> None:
        taken = self._core.connections.take(event.correlation_id)
        if taken is None:
            return
        node_id, request = taken
        if not self._apply_common_rule(node_id, event.response):
            self._handle_own_response(node_id, request, event.response)

    def _handle_own_response(self, node_id: int, request: Request, response: Response) -> None:
        core = self._core
        match request, response:
            case VoteRequest(), VoteResponse():
                elections.handle_vote_response(core, node_id, request, response)
            case FetchRequest(), FetchResponse():
                following.handle_fetch_response(core, node_id, request, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                following.handle_snapshot_response(core, node_id, request, response)
            case UpdateVoterRequest(), ChangeVoterResponse():
                following.handle_update_response(core, node_id, response)
            case ApiVersionsRequest(), ApiVersionsResponse():
                membership.handle_api_versions(core, node_id, response)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse() if response.error is ErrorCode.NONE:
                if isinstance(core.state, Resigned):
                    core.state.unacknowledged.discard(node_id)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse() if response.error is ErrorCode.NONE:
                pass
            case _:
                core.connections.back_off(node_id, core.now_ms)

    def _apply_common_rule(self, node_id: int, response: QuorumResponse) -> bool:
        """Take in what a response says of epoch and leader; return whether nothing is left to do with it.

        Source: KafkaRaftClient.maybeHandleCommonResponse. INVALID_REQUEST ends Kafka's process, since no node sends a
        request that another one calls invalid; here the request is tried again after a back-off.
        """
        core, state = self._core, self._core.state
        if isinstance(response, ApiVersionsResponse):
            return False
        if response.top_level_error is not ErrorCode.NONE or response.error is ErrorCode.INVALID_REQUEST:
            core.connections.back_off(node_id, core.now_ms)
            return True
        is_useless = response.epoch < state.epoch or core.would_end_elections(response.epoch)
        if is_useless or response.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            core.connections.back_off(node_id, core.now_ms)
            return True
        reason = f"response of node {node_id}"
        if node_id <= FIRST_BOOTSTRAP_ID:
            reason = "response of a bootstrap server"
        elsewhere = response.error in {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        if response.epoch > state.epoch or elsewhere:
            if not core.learn(response.epoch, response.leader_id, response.endpoints, reason):
                core.connections.back_off(node_id, core.now_ms)
            return True
        if response.leader_id is not None and core.learn(
            response.epoch, response.leader_id, response.endpoints, reason
        ):
            return True
        if response.error in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_VOTER_KEY}:
            core.connections.back_off(node_id, core.now_ms)
            return True
        return False

    def _handle_failure(self, event: SendFailed) -> None:
        core = self._core
        taken = core.connections.take(event.correlation_id)
        if taken is None:
            return
        node_id, request = taken
        core.connections.back_off(node_id, core.now_ms)
        if isinstance(request, ApiVersionsRequest):
            membership.fail_unreachable(core, node_id)

    def _begin_shutdown(self) -> None:
        core = self._core
        core.is_shutting_down = True
        if isinstance(core.state, Leader):
            leading.resign(core, "shutdown")

    def _maybe_complete_shutdown(self) -> None:
        """End at once unless the others need this node: a leader that has resigned waits until another one is known."""
        core = self._core
        is_alone = core.is_voter and len(core.voters) == 1
        may_end = not core.is_voter or is_alone or isinstance(core.state, Follower)
        if may_end and not core.is_shut_down:
            core.is_shut_down = True
            core.emit(ShutDownCompleted())

    def _note_snapshot(self, event: SnapshotCreated) -> None:
        core, snapshot = self._core, event.snapshot
        match, _ = core.log.match(snapshot.offset, snapshot.epoch)
        if snapshot.offset < core.log.start_offset:
            return  # a newer one of the leader's has been installed meanwhile
        is_committed = core.high_watermark is not None and snapshot.offset <= core.high_watermark
        if not is_committed or match is not Match.VALID:
            raise ValueError(f"a snapshot must hold committed records of this log: {snapshot}, {core.log.end}")
        core.log.add_snapshot(snapshot)


def first_state(core: Core, election: ElectionState) -> State:
    """Return the state in which a node starts (QuorumState.initialize).

    A former leader starts as Resigned: no record may come again under an epoch and offset that an unflushed one had.
    """
    epoch = core.log.last_epoch
    if epoch > election.epoch:
        return Unattached(epoch)
    me, leader_id, voted = core.me, election.leader_id, election.voted
    if leader_id == me.id and core.is_voter:
        others = {voter_id for voter_id in core.voters.ids if voter_id != me.id}
        return Resigned(election.epoch, me.id, voted, unacknowledged=others)
    voted_for_me = voted is not None and voted.id == me.id and voted.directory_id in {None, me.directory_id}
    if voted_for_me and leader_id is None and core.is_voter:
        return Candidate(election.epoch, me, granted={me.id})
    endpoint = None if leader_id is None else core.voters.endpoint(leader_id)
    if leader_id is not None and leader_id != me.id and endpoint is not None:
        return Follower(election.epoch, leader_id, {leader_id: endpoint}, voted)
    return Unattached(election.epoch, leader_id, voted)
