"""The six states of a node in its quorum (QuorumState and its EpochStates; KIP-595, KIP-996 for Prospective).

Legal transitions::

    Unattached  -> Unattached (a higher epoch), Prospective, Follower
    Follower    -> Unattached, Prospective, Follower (a higher epoch, or better known endpoints)
    Prospective -> Unattached, Candidate, Follower
    Candidate   -> Unattached, Prospective, Leader, Follower
    Leader      -> Unattached (a higher epoch), Resigned, Follower (a higher epoch)
    Resigned    -> Unattached (a higher epoch), Follower (a higher epoch)

``check_transition`` holds the table; each transition but those to Prospective and Resigned is on the disk before it
is entered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidegauge.lazy_dataclasses import dataclass
from tidegauge_controller.raft.messages import FetchRequest
from tidegauge_controller.raft.values import ElectionState, Endpoint, OffsetAndEpoch, ReplicaKey, VoterSet

NEVER_MS = 2**63 - 1
"""A deadline that never comes."""


@dataclass(slots=True)
class Unattached:
    """Knows the epoch and no leader that it could follow; may have given its vote of the epoch."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    election_deadline_ms: int = NEVER_MS


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched: its id, and how many bytes of it are here."""

    snapshot: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch.

    Attributes:
        endpoints: where the leader can be reached, by node id.
        voted: the node that it gave its vote of this epoch, so that it does not vote twice.
        fetch_deadline_ms: when a voter gives the leader up; each successful response moves it.
        has_fetched: whether a fetch from this leader has succeeded in this epoch; from then on no pre-vote is granted.
        download: the snapshot that is being fetched in place of records.
        update_voter_deadline_ms: when a voter next looks if the voter set still describes it.
        has_updated: whether this leader has the node's endpoints and kraft.versions.
    """

    epoch: int
    leader_id: int
    endpoints: Mapping[int, Endpoint]
    voted: ReplicaKey | None = None
    fetch_deadline_ms: int = NEVER_MS
    has_fetched: bool = False
    download: Download | None = None
    update_voter_deadline_ms: int = NEVER_MS
    has_updated: bool = False


@dataclass(slots=True)
class Prospective:
    """Asks whether it would win an election before it begins one (KIP-996); keeps its epoch, leader and vote."""

    epoch: int
    leader_id: int | None = None
    endpoints: Mapping[int, Endpoint] = field(default_factory=dict[int, Endpoint])
    voted: ReplicaKey | None = None
    election_deadline_ms: int = NEVER_MS
    granted: set[int] = field(default_factory=set[int])
    rejected: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class Candidate:
    """Stands for election in an epoch of its own; has voted for itself."""

    epoch: int
    voted: ReplicaKey
    election_deadline_ms: int = NEVER_MS
    granted: set[int] = field(default_factory=set[int])
    rejected: set[int] = field(default_factory=set[int])
    leader_id: int | None = None


@dataclass(slots=True)
class Progress:
    """A leader's view of one replica's log (LeaderState.ReplicaState).

    Attributes:
        end_offset: the offset of its last fetch; None before the first one. It may fall: a replica may lose its log.
        last_fetch_ms: when that was; -1 before.
        last_caught_up_ms: the last time at which the replica is known to have had all of the log; -1: never.
        leader_end_at_last_fetch: the leader's end of log at the last fetch.
    """

    key: ReplicaKey
    end_offset: int | None = None
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that waits at the leader for records, a higher high watermark, or its deadline."""

    token: object
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class PendingProposal:
    """Proposals that have their offsets and are not in the log yet."""

    base_offset: int
    end_offset: int
    size_bytes: int
    payloads: list[object]


@dataclass(slots=True)
class VoterChange:
    """The one change of the voter set in progress (AddVoterHandlerState, RemoveVoterHandlerState).

    Attributes:
        token: the request's; None once it is responded to.
        voter_set: the set that the change leads to.
        deadline_ms: when the request expires.
        offset: where the new set is in the log; None while the replica to be added is still being asked.
        added: the key of the replica that an AddRaftVoter names; None for a removal.
        added_endpoints: its endpoints.
        ack_when_committed: whether the response waits for the commit.
    """

    token: object | None
    voter_set: VoterSet
    deadline_ms: int
    offset: int | None = None
    added: ReplicaKey | None = None
    added_endpoints: tuple[Endpoint, ...] = ()
    ack_when_committed: bool = True


@dataclass(slots=True)
class Leader:
    """Leads its epoch: appends, responds to fetches, moves the high watermark.

    Attributes:
        epoch_start_offset: where its LeaderChange is; nothing is committed before that is on a majority.
        granting_voters: who elected it.
        voters: what it knows of each voter's log, its own included, by id.
        observers: the same of all other replicas that fetch, by key.
        fetched_since_check: the voters that have fetched since the quorum was last seen.
        check_quorum_deadline_ms: when it resigns unless a majority fetches.
        begin_deadlines_ms: when each other voter next gets a BeginQuorumEpoch, unless it fetches.
        parked: fetches that wait, by token.
        pending: proposals that are not in the log yet, in order.
        linger_deadline_ms: when they are appended at the latest.
        change: the change of the voter set in progress.
        updated_voters: under kraft.version 0, the voters that have sent UpdateRaftVoter to this leader.
        resign_requested: whether it resigns at the end of the step.
        is_announced: whether the controller has heard that it leads.
    """

    epoch: int
    epoch_start_offset: int
    granting_voters: tuple[ReplicaKey, ...]
    voted: ReplicaKey
    leader_id: int
    voters: dict[int, Progress] = field(default_factory=dict[int, Progress])
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict[ReplicaKey, Progress])
    fetched_since_check: set[int] = field(default_factory=set[int])
    check_quorum_deadline_ms: int = NEVER_MS
    begin_deadlines_ms: dict[int, int] = field(default_factory=dict[int, int])
    parked: dict[object, ParkedFetch] = field(default_factory=dict[object, ParkedFetch])
    pending: list[PendingProposal] = field(default_factory=list[PendingProposal])
    linger_deadline_ms: int = NEVER_MS
    change: VoterChange | None = None
    updated_voters: VoterSet = field(default_factory=VoterSet)
    resign_requested: bool = False
    is_announced: bool = False


@dataclass(slots=True)
class Resigned:
    """Led the epoch and does no longer; a former leader also restarts in this state, and never votes in it.

    Attributes:
        unacknowledged: the voters that have not responded to its EndQuorumEpoch.
        preferred: the other voters by the length of their logs, the longest first.
    """

    epoch: int
    leader_id: int
    voted: ReplicaKey | None = None
    election_deadline_ms: int = NEVER_MS
    unacknowledged: set[int] = field(default_factory=set[int])
    preferred: tuple[ReplicaKey, ...] = ()


State = Unattached | Follower | Prospective | Candidate | Leader | Resigned

SAME_EPOCH: Mapping[type[State], frozenset[type[State]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Follower: frozenset({Follower, Prospective, Unattached}),
    Prospective: frozenset({Unattached, Follower, Prospective}),
    Candidate: frozenset({Prospective, Leader, Follower}),
    Leader: frozenset({Resigned}),
    Resigned: frozenset(),
}
"""The states that may follow in the same epoch; a higher epoch leads to Unattached or Follower from any state."""


class IllegalTransitionError(RuntimeError):
    """A node would break the protocol; its process must end (QuorumState throws IllegalStateException)."""


def check_transition(old: State, new: State) -> None:
    """Refuse a transition that the protocol does not have.

    Raises:
        IllegalTransitionError: the epoch would fall, or the new state may not follow the old one.
    """
    if new.epoch > old.epoch:
        allowed = isinstance(new, Unattached | Follower) or (
            isinstance(new, Candidate) and isinstance(old, Prospective)
        )
    else:
        allowed = new.epoch == old.epoch and type(new) in SAME_EPOCH[type(old)]
    if not allowed:
        raise IllegalTransitionError(
            f"{type(old).__name__} of epoch {old.epoch} may not become {type(new).__name__} of epoch {new.epoch}"
        )


def election_of(state: State) -> ElectionState:
    """Return what ``quorum-state`` says of a node in this state."""
    return ElectionState(state.epoch, state.leader_id, state.voted)
