"""One Raft node that a test drives by hand: the disk reports at once unless a test holds it, and time is the test's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.log_view import loaded
from tidegauge_controller.raft.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import (
    Batch,
    ControlRecord,
    ElectionState,
    Endpoint,
    KRaftVersionRecord,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersRecord,
)
from tidegauge_controller.raft.voter_history import VoterHistory

CLUSTER = "cluster"
Kind = TypeVar("Kind", bound=effects.Effect)


def endpoint(node_id: int) -> Endpoint:
    """Return where a node listens."""
    return Endpoint("CONTROLLER", "127.0.0.1", 9000 + node_id)


def key(node_id: int) -> ReplicaKey:
    """Return a node's key."""
    return ReplicaKey(node_id, bytes([node_id + 1]) * 16)


def static_voters(*ids: int) -> VoterSet:
    """Return the voters of kraft.version 0, whose directories are unknown."""
    return VoterSet.of(Voter(ReplicaKey(i), (endpoint(i),)) for i in ids)


def voters_in_log(*ids: int) -> VoterSet:
    """Return the voters of kraft.version 1."""
    return VoterSet.of(Voter(key(i), (endpoint(i),)) for i in ids)


def batch(base_offset: int, epoch: int, count: int = 1, control: tuple[ControlRecord, ...] = ()) -> Batch:
    """Return a batch of the log."""
    return Batch(base_offset, base_offset + count, epoch, control, None if control else f"{epoch}@{base_offset}")


def first_batch(epoch: int, leader: int, voters: VoterSet, *, in_log: bool = False) -> Batch:
    """Return the control batch with which the first leader begins its epoch."""
    records: tuple[ControlRecord, ...] = (LeaderChange(leader, voters.keys, voters.keys),)
    if in_log:
        records += (KRaftVersionRecord(1), VotersRecord(voters))
    return batch(0, epoch, len(records), records)


@dataclass
class Driven:
    """A node, its time, and everything that it wanted done.

    Attributes:
        node: the node.
        now_ms: the time.
        holds_disk: whether election states and flushes wait until the test reports them.
        done: all effects so far.
        chances: what ``random`` returns, the last one again and again.
    """

    node: RaftNode
    now_ms: int = 0
    holds_disk: bool = False
    done: list[effects.Effect] = field(default_factory=list)
    chances: list[float] = field(default_factory=lambda: [0.0])
    _tokens: int = 0

    def give(self, event: events.Event) -> list[effects.Effect]:
        """Give the node an event, and the reports of the disk that follow from it; return all effects."""
        wanted = self.node.step(event, self.now_ms, self._random)
        self.done += wanted
        everything = list(wanted)
        if not self.holds_disk:
            for effect in wanted:
                if isinstance(effect, effects.PersistElection):
                    everything += self.give(events.ElectionPersisted())
                elif isinstance(effect, effects.Flush):
                    everything += self.give(events.Flushed(effect.number, effect.end_offset))
        return everything

    def _random(self) -> float:
        return self.chances.pop(0) if len(self.chances) > 1 else self.chances[0]

    def wait(self, duration_ms: int) -> list[effects.Effect]:
        """Let time pass, and look at the timers once."""
        self.now_ms += duration_ms
        return self.give(events.Tick())

    def wait_for_timer(self) -> list[effects.Effect]:
        """Let time pass until the next timer is due."""
        return self.wait(max(0, self.node.next_deadline_ms() - self.now_ms))

    def ask(self, request: Request) -> Response | None:
        """Give the node a request; return its response, None if there is none yet."""
        self._tokens += 1
        token = f"token-{self._tokens}"
        for effect in self.give(events.RequestReceived(token, request)):
            if isinstance(effect, effects.Respond) and effect.token == token:
                return effect.response
        return None

    def respond(self, send: effects.Send, response: Response) -> list[effects.Effect]:
        """Let the response to a request of the node arrive."""
        return self.give(events.ResponseReceived(send.correlation_id, response))

    def last_send(self, kind: type[Request], to: int | None = None) -> effects.Send:
        """Return the last request of a kind that the node sent."""
        for effect in reversed(self.done):
            if isinstance(effect, effects.Send) and isinstance(effect.request, kind) and to in {None, effect.node_id}:
                return effect
        raise AssertionError(f"no {kind.__name__} was sent")

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return all effects of a kind."""
        return [effect for effect in self.done if isinstance(effect, kind)]

    @property
    def state(self) -> str:
        """The name of the node's state, and its epoch."""
        return f"{type(self.node.state).__name__} {self.node.state.epoch}"

    def vote(self, granted: bool = True, pre_vote: bool = False, to: int | None = None) -> None:
        """Let a voter respond to the last Vote that was sent to it."""
        send = self.last_send(VoteRequest, to)
        assert isinstance(send.request, VoteRequest)
        assert send.request.pre_vote == pre_vote
        self.respond(send, VoteResponse(epoch=self.node.state.epoch, granted=granted))

    def elect(self, to: int) -> None:
        """Make the node the leader by the votes of one other voter of three."""
        while not self.state.startswith("Prospective"):
            self.wait_for_timer()
        self.vote(pre_vote=True, to=to)
        self.vote(to=to)
        assert self.state.startswith("Leader")

    def fetch(self, replica: int, offset: int, last_epoch: int, **more: int) -> Response | None:
        """Let another replica fetch from the node."""
        request = FetchRequest(
            CLUSTER, key(replica), self.node.state.epoch, offset, last_epoch, more.get("wait", 500), more.get("known")
        )
        return self.ask(request)

    def fetched(self, leader: int, *batches: Batch, high_watermark: int = -1, **more: object) -> list[effects.Effect]:
        """Let the leader respond to the node's last Fetch."""
        send = self.last_send(FetchRequest)
        response = FetchResponse(
            leader_id=leader,
            epoch=self.node.state.epoch,
            endpoints={leader: endpoint(leader)},
            high_watermark=high_watermark,
            batches=batches,
            **more,  # type: ignore[arg-type]
        )
        return self.respond(send, response)


def driven(
    node_id: int,
    voters: VoterSet,
    *batches: Batch,
    election: ElectionState | None = None,
    bootstrap: bool = False,
    snapshots: tuple[OffsetAndEpoch, ...] = (),
    **settings: int,
) -> Driven:
    """Return a node on a log, started.

    Args:
        node_id: its id.
        voters: static ones, or with ``bootstrap`` the voters of a formatted node's snapshot.
        batches: its log.
        election: what its quorum-state says.
        bootstrap: whether the voters come from the snapshot (0, 0), under kraft.version 1.
        snapshots: the snapshots that it has besides.
        settings: of ``QuorumConfig``.
    """
    servers = tuple(endpoint(i) for i in voters.ids)
    config = QuorumConfig(CLUSTER, key(node_id), (endpoint(node_id),), servers, **settings)
    history = VoterHistory(VoterSet() if bootstrap else voters)
    if bootstrap:
        history.restart(voters, 1, is_bootstrap=True)
    history.replay_all(batches)
    known = [*snapshots, *([OffsetAndEpoch(0, 0)] if bootstrap else [])]
    node = Driven(RaftNode(config, loaded(batches, snapshots=known), history, election or ElectionState()))
    node.give(events.Tick())
    return node
