"""The shared parts of a node: its state, its log's view, its slots, the effects of the step, and the transitions.

A transition that must be on the disk first ends the step with a ``PersistElection``. The state is entered by the step
that takes the ``ElectionPersisted``; the message that led to it is then handled again from its start, in the new state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.connections import Connections
from tidegauge_controller.raft.effects import (
    Append,
    Effect,
    Flush,
    HighWatermarkMoved,
    InstallSnapshot,
    LeadershipChanged,
    PersistElection,
    Respond,
    Send,
    StateChanged,
)
from tidegauge_controller.raft.events import Event
from tidegauge_controller.raft.log_view import LogView
from tidegauge_controller.raft.messages import Request, Response
from tidegauge_controller.raft.states import (
    NEVER_MS,
    Candidate,
    Follower,
    IllegalTransitionError,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
    check_transition,
    election_of,
)
from tidegauge_controller.raft.values import LAST_EPOCH, Batch, Endpoint, OffsetAndEpoch, ReplicaKey, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory

FIRST_BOOTSTRAP_ID = -2
"""The id of the first bootstrap server; the next ones count downwards."""


@dataclass(slots=True)
class PendingTransition:
    """A state that is entered when its election state is on the disk, and the event that is handled after it."""

    state: State
    reason: str
    then: Event | None = None


@dataclass(slots=True)
class Core:
    """The mutable half of a node; ``elections``, ``leading``, ``following`` and ``membership`` work on it.

    Attributes:
        config: the node's settings.
        log: the bounds of its log.
        history: the voter sets and kraft.versions of its log.
        state: its state in the quorum.
        connections: its slots.
        high_watermark: what it knows to be committed; None until a leader says so or a majority fetches.
        pending: the transition that waits for the disk.
        installing: the snapshot that is being installed.
        is_shutting_down: whether the process is to end.
        is_shut_down: whether the node has said that it may end.
        cleaning_deadline_ms: when snapshots are next looked at.
        now_ms: the time of this step.
        random: a number in [0, 1) at each call.
        effects: of the step so far.
    """

    config: QuorumConfig
    log: LogView
    history: VoterHistory
    state: State
    connections: Connections
    high_watermark: int | None = None
    pending: PendingTransition | None = None
    installing: OffsetAndEpoch | None = None
    is_shutting_down: bool = False
    is_shut_down: bool = False
    cleaning_deadline_ms: int = NEVER_MS
    now_ms: int = 0
    random: Callable[[], float] = lambda: 0.0
    effects: list[Effect] = field(default_factory=list[Effect])

    # --- what the node is

    @property
    def me(self) -> ReplicaKey:
        """The node's own key."""
        return self.config.me

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the latest one in the log, committed or not."""
        return self.history.current

    @property
    def is_voter(self) -> bool:
        """Whether the node is in that set."""
        return self.config.can_become_voter and self.voters.has(self.me)

    @property
    def other_voters(self) -> list[int]:
        """The ids of the other voters."""
        return [voter_id for voter_id in self.voters.ids if voter_id != self.me.id or not self.is_voter]

    def random_election_deadline(self) -> int:
        """Return a deadline one to two election timeouts from now, never now."""
        timeout = max(1, self.config.election_timeout_ms)
        return self.now_ms + timeout + int(self.random() * timeout)

    def is_rejected(self, state: Prospective | Candidate) -> bool:
        """Return whether enough voters have refused that no majority is left."""
        voters = set(self.voters.ids)
        return len(voters) - len(state.rejected & voters) < self.voters.majority

    def would_end_elections(self, epoch: int) -> bool:
        """Whether joining an epoch that a message names would leave no epoch for another election."""
        return epoch > max(self.state.epoch, LAST_EPOCH)

    def leader_endpoints(self) -> dict[int, Endpoint]:
        """Return the address of the epoch's leader by its id, if known."""
        state = self.state
        if isinstance(state, Leader):
            return {self.me.id: self.config.endpoints[0]} if self.config.endpoints else {}
        if isinstance(state, Follower | Prospective) and state.leader_id is not None:
            known = state.endpoints.get(state.leader_id)
            return {} if known is None else {state.leader_id: known}
        return {}

    @property
    def is_blocked(self) -> bool:
        """Whether the node waits for the disk, and takes nothing but its report."""
        return self.pending is not None or self.installing is not None

    # --- effects

    def emit(self, effect: Effect) -> None:
        """Add an effect to the step's effects."""
        self.effects.append(effect)

    def respond(self, token: object, response: Response) -> None:
        """Respond to a request."""
        self.emit(Respond(token, response))

    def send(self, node_id: int, endpoint: Endpoint, request: Request) -> None:
        """Send a request if its slot is ready."""
        if self.connections.is_ready(node_id, self.now_ms):
            self.emit(Send(self.connections.begin(node_id, request, self.now_ms), node_id, endpoint, request))

    def send_to_voter(self, voter_id: int, request: Request) -> None:
        """Send a request to a voter whose endpoint is known."""
        endpoint = self.voters.endpoint(voter_id)
        if endpoint is not None:
            self.send(voter_id, endpoint, request)

    def send_to_bootstrap_server(self, request: Request) -> None:
        """Send a request to a bootstrap server that is ready, chosen at random; one at a time is in flight."""
        servers = {FIRST_BOOTSTRAP_ID - index: server for index, server in enumerate(self.config.bootstrap_servers)}
        if not servers or self.connections.has_in_flight(servers):
            return
        ready = [node_id for node_id in servers if self.connections.is_ready(node_id, self.now_ms)]
        if ready:
            node_id = ready[min(int(self.random() * len(ready)), len(ready) - 1)]
            self.send(node_id, servers[node_id], request)

    def append(self, batch: Batch) -> None:
        """Append a batch to the log, and take in its control records."""
        self.log.append(batch)
        self.history.replay(batch)
        self.emit(Append(batch))

    def flush(self) -> None:
        """Request a flush of the whole log, unless it is on the disk already."""
        if not self.log.is_flushed:
            self.emit(Flush(self.log.request_flush(), self.log.end_offset))

    def move_high_watermark(self, high_watermark: int) -> bool:
        """Take a higher high watermark in; return whether it is higher.

        Raises:
            IllegalTransitionError: it lies beyond the end of the log.
        """
        if high_watermark > self.log.end_offset:
            raise IllegalTransitionError(
                f"high watermark {high_watermark} is beyond the log's end {self.log.end_offset}"
            )
        if self.high_watermark is not None and high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.emit(HighWatermarkMoved(high_watermark))
        return True

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """Put a snapshot in the place of the log; the step ends here."""
        self.installing = snapshot
        self.emit(InstallSnapshot(snapshot))

    # --- transitions

    def persist(self, state: State, reason: str, then: Event | None = None) -> None:
        """Enter ``state`` when it is on the disk, then handle ``then``.

        Raises:
            IllegalTransitionError: the protocol has no such transition.
        """
        check_transition(self.state, state)
        self.pending = PendingTransition(state, reason, then)
        self.emit(PersistElection(election_of(state)))

    def enter(self, state: State, reason: str) -> None:
        """Enter a state: set its timers, drop requests in flight, and report it.

        Raises:
            IllegalTransitionError: the protocol has no such transition.
        """
        check_transition(self.state, state)
        former, self.state = self.state, state
        self._start_timers(former, state)
        voted_alone = (
            type(former) is type(state) and former.epoch == state.epoch and former.leader_id == state.leader_id
        )
        if voted_alone and isinstance(state, Unattached | Prospective):
            return
        self.connections.reset()
        self.emit(StateChanged(type(state).__name__, state.epoch, state.leader_id, reason))
        if (former.leader_id, former.epoch) != (state.leader_id, state.epoch) or isinstance(former, Leader):
            leader_id = None if isinstance(state, Leader | Resigned) else state.leader_id
            self.emit(LeadershipChanged(leader_id, state.epoch))

    def become_unattached(
        self, epoch: int, reason: str, then: Event | None = None, leader_id: int | None = None
    ) -> None:
        """Begin to know a higher epoch, without a leader that can be followed, after that is on the disk."""
        self.persist(Unattached(epoch, leader_id), reason, then)

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: Mapping[int, Endpoint], reason: str, then: Event | None = None
    ) -> None:
        """Begin to follow a leader, after that is on the disk; a vote of the same epoch stays noted."""
        voted = self.state.voted if self.state.epoch == epoch else None
        self.persist(Follower(epoch, leader_id, dict(endpoints), voted), reason, then)

    def become_prospective(self, reason: str) -> None:
        """Begin to ask whether an election would be won; nothing is written."""
        state = self.state
        endpoints = dict(state.endpoints) if isinstance(state, Follower) else {}
        self.enter(Prospective(state.epoch, state.leader_id, endpoints, state.voted, granted={self.me.id}), reason)

    def learn(
        self,
        epoch: int,
        leader_id: int | None,
        endpoints: Mapping[int, Endpoint],
        reason: str,
        then: Event | None = None,
    ) -> bool:
        """Take in an epoch and a leader that a message names (KafkaRaftClient.maybeTransition).

        Args:
            epoch: the sender's epoch, not below the node's own.
            leader_id: the leader it names; None if it names none.
            endpoints: the leader's address, if the message has it; else the voter set does.
            reason: for the event log.
            then: the event to handle after the transition.

        Returns:
            whether a transition waits for the disk.

        Raises:
            IllegalTransitionError: the message names another leader of the epoch than this node knows.
        """
        self._check_leader(epoch, leader_id)
        state = self.state
        is_me = leader_id == self.me.id
        known = {} if leader_id is None or is_me else self._endpoints_of(leader_id, endpoints)
        if epoch > state.epoch:
            if leader_id is None or not known:
                self.become_unattached(epoch, reason, then, leader_id)
            else:
                self.become_follower(epoch, leader_id, known, reason, then)
            return True
        if is_me and state.leader_id is None:
            # An incarnation of this node that lost its disk led the epoch: no other node may be elected in it.
            self.become_unattached(epoch, reason, then, leader_id)
            return True
        if leader_id is None or is_me or not known:
            return False
        knew = len(state.endpoints) if isinstance(state, Follower) else 0
        can_follow = isinstance(state, Unattached | Prospective | Candidate | Follower)
        unknown = state.leader_id is None or isinstance(state, Unattached)
        if can_follow and (unknown or (isinstance(state, Follower) and len(known) > knew)):
            self.become_follower(epoch, leader_id, known, reason, then)
            return True
        return False

    def _check_leader(self, epoch: int, leader_id: int | None) -> None:
        known = self.state.leader_id
        if epoch == self.state.epoch and None not in {leader_id, known} and leader_id != known:
            raise IllegalTransitionError(f"epoch {epoch} is said to be led by {leader_id}; here it is led by {known}")

    def _endpoints_of(self, leader_id: int, endpoints: Mapping[int, Endpoint]) -> dict[int, Endpoint]:
        if leader_id in endpoints:
            return {leader_id: endpoints[leader_id]}
        known = self.voters.endpoint(leader_id)
        return {} if known is None else {leader_id: known}

    def _start_timers(self, former: State, state: State) -> None:
        match state:
            case Unattached():
                state.election_deadline_ms = self._unattached_deadline(former, state)
            case Follower():
                state.fetch_deadline_ms = self.now_ms + self.config.fetch_timeout_ms
                state.update_voter_deadline_ms = self.now_ms + self.config.fetch_timeout_ms
            case Prospective() if isinstance(former, Prospective):
                granted = former.voted is None and state.voted is not None
                state.election_deadline_ms = self.random_election_deadline() if granted else former.election_deadline_ms
            case Prospective() | Candidate() | Resigned():
                state.election_deadline_ms = self.random_election_deadline()
            case Leader():
                pass  # leading.begin sets them

    def _unattached_deadline(self, former: State, state: Unattached) -> int:
        if not self.is_voter:
            return NEVER_MS
        granted = former.epoch == state.epoch and former.voted is None and state.voted is not None
        decided = isinstance(former, Prospective) and self.is_rejected(former)
        if isinstance(former, Candidate | Unattached | Resigned | Prospective) and not granted and not decided:
            return min(former.election_deadline_ms, self.random_election_deadline())
        return self.random_election_deadline()


def with_vote(state: Unattached | Prospective, candidate: ReplicaKey) -> State:
    """Return the state after it gave its vote to ``candidate`` (QuorumState.unattachedAddVotedState)."""
    return replace(state, voted=candidate)
