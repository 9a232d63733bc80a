"""Messages that no honest replica sends, and late ones: none stops a node, none counts, none makes it spin."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.raft.driven_node import (
    CLUSTER,
    Driven,
    batch,
    driven,
    endpoint,
    first_batch,
    key,
    static_voters,
    voters_in_log,
)

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.config import MOST_OBSERVERS
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.states import NEVER_MS, IllegalTransitionError
from tidegauge_controller.raft.values import ElectionState, OffsetAndEpoch, ReplicaKey

THREE = static_voters(0, 1, 2)
STRANGER = ReplicaKey(0, bytes([9]) * 16)


def leader(**settings: int) -> Driven:
    """Make node 0 the leader of epoch 1, by the votes of nodes 0 and 1."""
    node = driven(0, THREE, **settings)
    node.elect(to=1)
    return node


def follower(*batches: object, epoch: int = 1, **more: object) -> Driven:
    """Return node 0 as the follower of node 1."""
    return driven(0, THREE, *batches, election=ElectionState(epoch, 1), **more)  # type: ignore[arg-type]


def committed_leader() -> Driven:
    """Return node 0 as a leader whose epoch is committed."""
    node = leader()
    node.fetch(1, 1, 1)
    assert node.node.high_watermark == 1
    return node


# The leader's own id


def test_a_fetch_under_the_leaders_own_id_does_not_count_as_its_disk():
    """Static voters have no directory, so the key of a stranger names the leader; its log is not flushed yet."""
    node = driven(0, THREE)
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    node.vote(pre_vote=True, to=1)
    node.holds_disk = True
    node.vote(to=1)
    node.give(events.ElectionPersisted())
    node.fetch(1, 1, 1)
    node.ask(FetchRequest(CLUSTER, STRANGER, 1, 1, 1, 500))
    assert node.node.high_watermark is None


@pytest.mark.parametrize(
    "contact",
    [
        FetchRequest(CLUSTER, STRANGER, 1, 1, 1, 0),
        UpdateVoterRequest(CLUSTER, 1, STRANGER, (endpoint(0),), 0, 1),
    ],
    ids=["fetch", "update"],
)
def test_a_request_under_the_leaders_own_id_does_not_keep_it_leading(contact: Request):
    """Check-quorum counts other voters (LeaderState.updateCheckQuorumForFollowingVoter)."""
    node = leader()
    for _ in range(5):
        node.wait(1000)
        node.ask(contact)
    assert not node.state.startswith("Leader")


def test_no_other_node_begins_an_epoch_in_a_leaders_name():
    node = leader()
    response = node.ask(BeginQuorumEpochRequest(CLUSTER, None, 0, 7))
    assert response is not None
    assert response.error is ErrorCode.INVALID_REQUEST
    assert node.state == "Leader 1"


def test_static_keys_are_no_observers_after_the_upgrade():
    """The voters' keys gain directories; the former keys name no replica (LeaderState.updateVoterAndObserverStates)."""
    node = committed_leader()
    for voter_id in (1, 2):
        node.ask(UpdateVoterRequest(CLUSTER, 1, key(voter_id), (endpoint(voter_id),), 0, 1))
    node.give(events.UpgradeKRaftVersion("up", 1))
    response = node.ask(DescribeQuorumRequest())
    assert isinstance(response, DescribeQuorumResponse)
    assert [status.key for status in response.voters] == [key(0), key(1), key(2)]
    assert response.observers == ()


@pytest.mark.parametrize("directory", [None, bytes(16)])
def test_an_update_without_a_directory_is_invalid(directory: bytes | None):
    """The upgrade would put a voter into the log that every directory of that id names."""
    node = committed_leader()
    response = node.ask(UpdateVoterRequest(CLUSTER, 1, ReplicaKey(1, directory), (endpoint(1),), 0, 1))
    assert response is not None
    assert response.error is ErrorCode.INVALID_REQUEST


def test_a_voter_with_a_negative_id_is_not_added():
    """Negative ids are the bootstrap servers' ids in the node's slots."""
    voters = voters_in_log(0, 1, 2)
    node = driven(0, voters, first_batch(1, 0, voters, in_log=True))
    node.elect(to=1)
    node.fetch(1, node.node.log.end_offset, node.node.log.last_epoch)
    response = node.ask(AddVoterRequest(CLUSTER, ReplicaKey(-3, bytes([3]) * 16), (endpoint(3),), 1000))
    assert response is not None
    assert response.error is ErrorCode.INVALID_REQUEST


def test_a_leader_keeps_track_of_a_limited_number_of_observers():
    node = committed_leader()
    for replica in range(10, 10 + MOST_OBSERVERS + 5):
        node.ask(FetchRequest(CLUSTER, ReplicaKey(replica, bytes([1]) * 16), 1, 1, 1, 0))
    response = node.ask(DescribeQuorumRequest())
    assert isinstance(response, DescribeQuorumResponse)
    assert len(response.observers) == MOST_OBSERVERS
    assert response.observers[-1].key.id == 10 + MOST_OBSERVERS + 4


@pytest.mark.parametrize("limit", [-1, -(2**31), 0])
def test_a_limit_that_makes_no_sense_is_raised(limit: int):
    node = committed_leader()
    node.give(events.SnapshotCreated(OffsetAndEpoch(1, 1)))
    node.ask(FetchSnapshotRequest(CLUSTER, key(1), 1, OffsetAndEpoch(1, 1), 0, limit))
    assert node.of(effects.Respond)[-1].max_bytes == 1
    node.ask(FetchRequest(CLUSTER, key(2), 1, 0, 0, 0, None, limit))
    assert node.of(effects.Respond)[-1].max_bytes >= 0


# Messages that a leader would never send


def test_a_batch_of_a_later_epoch_than_the_leaders_is_not_appended():
    node = follower()
    node.fetched(1, batch(0, 2))
    assert node.node.log.end_offset == 0


@pytest.mark.parametrize("end", [0, -4])
def test_a_batch_without_records_is_not_appended(end: int):
    node = follower()
    node.fetched(1, batch(0, 1, end))
    assert node.of(effects.Append) == []


@pytest.mark.parametrize(
    "more",
    [
        {"diverging": OffsetAndEpoch(9, 1)},
        {"snapshot": None, "batches": (batch(5, 1),)},
    ],
    ids=["diverges nowhere", "a gap"],
)
def test_a_response_that_leads_nowhere_is_not_asked_for_again_at_once(more: dict[str, object]):
    """A retry waits for controller.quorum.retry.backoff.ms; else both nodes are busy with it as fast as they can."""
    node = follower(batch(0, 1))
    fields: dict[str, object] = {"leader_id": 1, "epoch": 1, **more}
    wanted = node.respond(node.last_send(FetchRequest), FetchResponse(**fields))  # type: ignore[arg-type]
    assert [effect for effect in wanted if isinstance(effect, effects.Send) and effect.node_id == 1] == []


def test_an_unattached_node_asks_a_server_that_knows_no_leader_again_after_a_while():
    node = driven(0, static_voters(0, 1, 2))
    wanted = node.respond(node.last_send(FetchRequest), FetchResponse(epoch=0))
    again = [effect.endpoint for effect in wanted if isinstance(effect, effects.Send)]
    assert endpoint(0) not in again, "the server that was asked is left alone for a while"


@pytest.mark.parametrize(
    "response",
    [
        VoteResponse(error=ErrorCode.INVALID_VOTER_KEY, epoch=3),
        VoteResponse(epoch=2, granted=False),
    ],
    ids=["another directory", "a lower epoch"],
)
def test_a_refused_pre_vote_is_not_asked_for_again_at_once(response: VoteResponse):
    """A voter that hears its leader refuses in its own, lower epoch; one that lost its disk has another key."""
    node = driven(0, THREE, election=ElectionState(3))
    node.wait_for_timer()
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    wanted = node.respond(node.last_send(VoteRequest, 1), response)
    assert [effect for effect in wanted if isinstance(effect, effects.Send)] == []
    wanted = node.wait(20)
    assert [effect.node_id for effect in wanted if isinstance(effect, effects.Send)] == [1]


def test_a_divergence_below_a_snapshot_ends_the_process_before_anything_is_truncated():
    """There is no high watermark after a restart, but a snapshot holds committed records (KIP-630)."""
    node = follower(batch(0, 1), batch(1, 1), snapshots=(OffsetAndEpoch(2, 1),))
    with pytest.raises(IllegalTransitionError):
        node.fetched(1, diverging=OffsetAndEpoch(-5, 1))
    assert node.node.log.end_offset == 2


def test_a_snapshot_below_the_high_watermark_ends_the_process_before_the_log_is_dropped():
    node = follower(batch(0, 1), batch(1, 1))
    node.fetched(1, high_watermark=2)
    with pytest.raises(IllegalTransitionError):
        node.fetched(1, snapshot=OffsetAndEpoch(1, 1))
    assert node.of(effects.InstallSnapshot) == []


def test_a_snapshot_of_a_lower_epoch_takes_the_place_of_records_that_were_never_committed():
    """The leader's log begins at (1, 1) and this one's records behind it, of a lost leader of epoch 3, are not there.

    Kafka's node ends its process at each start here: its log ends in a higher epoch than the snapshot.
    """
    node = follower(batch(0, 3), epoch=4)
    node.fetched(1, snapshot=OffsetAndEpoch(1, 1))
    send = node.last_send(FetchSnapshotRequest)
    node.respond(
        send, FetchSnapshotResponse(leader_id=1, epoch=4, snapshot=OffsetAndEpoch(1, 1), size_bytes=1, data=b"s")
    )
    node.give(events.SnapshotInstalled(OffsetAndEpoch(1, 1), None, 0))
    assert node.node.log.end == (1, 1)
    assert node.node.high_watermark == 1


@pytest.mark.parametrize(("size", "data"), [(0, b""), (2, b"long"), (-1, b"x"), (5, b"")])
def test_a_slice_that_makes_no_sense_ends_the_download(size: int, data: bytes):
    node = follower()
    node.fetched(1, snapshot=OffsetAndEpoch(4, 1))
    send = node.last_send(FetchSnapshotRequest)
    wanted = node.respond(
        send, FetchSnapshotResponse(leader_id=1, epoch=1, snapshot=OffsetAndEpoch(4, 1), size_bytes=size, data=data)
    )
    assert effects.DropSnapshot(OffsetAndEpoch(4, 1)) in wanted
    assert not node.node.is_blocked


def test_a_snapshot_that_was_written_while_a_newer_one_was_installed_is_let_be():
    node = driven(0, THREE, election=ElectionState(1, 1))
    node.fetched(1, snapshot=OffsetAndEpoch(4, 1))
    send = node.last_send(FetchSnapshotRequest)
    node.respond(
        send, FetchSnapshotResponse(leader_id=1, epoch=1, snapshot=OffsetAndEpoch(4, 1), size_bytes=1, data=b"s")
    )
    node.give(events.SnapshotInstalled(OffsetAndEpoch(4, 1), None, 0))
    node.give(events.SnapshotCreated(OffsetAndEpoch(2, 1)))
    assert node.node.log.snapshots == [OffsetAndEpoch(4, 1)]


# Timers and shutdown


def test_a_request_timeout_of_nothing_still_ends():
    node = driven(0, THREE, request_timeout_ms=0, retry_backoff_ms=0)
    assert node.node.next_deadline_ms() > node.now_ms


def test_a_leader_that_is_elected_while_it_shuts_down_resigns():
    """KafkaRaftClient.pollLeader: a leader that refuses every fetch must not hold its followers up."""
    node = driven(0, THREE)
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    node.vote(pre_vote=True, to=1)
    node.give(events.ShutDown())
    node.vote(to=1)
    node.wait(0)
    assert node.state == "Resigned 1"


@pytest.mark.parametrize("election", [ElectionState(1), ElectionState(1, 0)], ids=["unattached", "resigned"])
def test_a_node_that_shuts_down_begins_no_election(election: ElectionState):
    """KafkaRaftClient.pollUnattachedAsVoter, pollResigned."""
    node = driven(0, THREE, election=election)
    former = node.state
    node.give(events.ShutDown())
    node.wait(100_000)
    assert node.state == former
    assert node.node.next_deadline_ms() > node.now_ms


# Anything at any time

OFFSETS = (-(2**63), -1, 0, 1, 2, 5, 2**63 - 1)
EPOCHS = (-(2**31), -1, 0, 1, 2, 3, 2**31 - 1)
IDS = (-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 1)
DIRECTORIES = (None, bytes(16), bytes([1]) * 16, bytes([2]) * 16)


class Chance:
    """Draws the fields of messages, most of them near the node's own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, values: tuple[object, ...]) -> object:
        return self.random.choice(values)

    def number(self, values: tuple[int, ...], near: int) -> int:
        return near + self.random.randint(-1, 1) if self.random.random() < 0.7 else self.random.choice(values)

    def key(self) -> ReplicaKey:
        return ReplicaKey(self.random.choice(IDS), self.random.choice(DIRECTORIES))

    def end(self, node: Driven) -> OffsetAndEpoch:
        return OffsetAndEpoch(
            self.number(OFFSETS, node.node.log.end_offset), self.number(EPOCHS, node.node.log.last_epoch)
        )

    def request(self, node: Driven) -> Request:
        epoch, end, replica = self.number(EPOCHS, node.node.state.epoch), self.end(node), self.key()
        cluster = self.random.choice((None, CLUSTER, CLUSTER, "other"))
        keys = tuple(self.key() for _ in range(self.random.randint(0, 3))) * self.random.randint(1, 3)
        ends = (endpoint(replica.id % 3),) * self.random.randint(0, 2)
        wait, low = self.random.choice((-1, 0, 500, 2**31 - 1)), self.random.choice((-1, 0, 1, 2**15 - 1))
        makers: tuple[Callable[[], Request], ...] = (
            lambda: VoteRequest(cluster, self.key(), epoch, replica, end.epoch, end.offset, bool(keys)),
            lambda: VoteRequest(cluster, None, epoch, replica, end.epoch, end.offset, not keys),
            lambda: BeginQuorumEpochRequest(cluster, self.key(), replica.id, epoch, ends),
            lambda: EndQuorumEpochRequest(cluster, replica.id, epoch, keys, ends),
            lambda: FetchRequest(cluster, replica, epoch, end.offset, end.epoch, wait, end.offset, wait),
            lambda: FetchSnapshotRequest(cluster, replica, epoch, end, end.offset, wait),
            lambda: AddVoterRequest(cluster, replica, ends, wait),
            lambda: RemoveVoterRequest(cluster, replica),
            lambda: UpdateVoterRequest(cluster, epoch, replica, ends, low, -low),
            DescribeQuorumRequest,
            ApiVersionsRequest,
        )
        return self.random.choice(makers)()

    def response(self, node: Driven) -> Response:
        leader_id = self.random.choice((None, *IDS, 1, 1, 1))
        common: dict[str, object] = {
            "epoch": self.number(EPOCHS, node.node.state.epoch),
            "leader_id": leader_id,
            "endpoints": {} if leader_id is None or self.random.random() < 0.3 else {leader_id: endpoint(1)},
            "error": self.random.choice((ErrorCode.NONE, ErrorCode.NONE, *ErrorCode)),
        }
        end, low = self.end(node), self.random.choice((-1, 0, 1, 5))
        records = tuple(batch(self.end(node).offset, self.end(node).epoch, low) for _ in range(2))
        makers: tuple[Callable[[], Response], ...] = (
            lambda: VoteResponse(**common, granted=low > 0),  # type: ignore[arg-type]
            lambda: BeginQuorumEpochResponse(**common),  # type: ignore[arg-type]
            lambda: EndQuorumEpochResponse(**common),  # type: ignore[arg-type]
            lambda: FetchResponse(**common, high_watermark=end.offset, batches=records),  # type: ignore[arg-type]
            lambda: FetchResponse(**common, diverging=end),  # type: ignore[arg-type]
            lambda: FetchResponse(**common, snapshot=end),  # type: ignore[arg-type]
            lambda: FetchSnapshotResponse(**common, snapshot=end, size_bytes=low, data=b"x"),  # type: ignore[arg-type]
            lambda: ChangeVoterResponse(**common),  # type: ignore[arg-type]
            lambda: ApiVersionsResponse(**common, lowest_version=low, highest_version=-low),  # type: ignore[arg-type]
        )
        return self.random.choice(makers)()


def any_node(chance: Chance) -> Driven:
    """Return a node with drawn state, settings, and static or logged voters."""
    in_log = chance.random.random() < 0.5
    voters = voters_in_log(0, 1, 2) if in_log else static_voters(*range(chance.random.choice((1, 3))))
    election = chance.random.choice((None, ElectionState(1, 1), ElectionState(2), ElectionState(2, 0, key(0))))
    settings = {
        "request_timeout_ms": chance.random.choice((0, 2000)),
        "retry_backoff_ms": chance.random.choice((0, 20)),
    }
    node = driven(0, voters, election=election, bootstrap=in_log, **settings)
    if election is None and chance.random.random() < 0.6 and len(voters) == 3:
        node.elect(to=1)
    return node


def is_over(node: Driven) -> bool:
    """Let timers run until the next one lies ahead; a timer that stays due is a busy loop."""
    for _ in range(20):
        if node.node.is_blocked or node.node.next_deadline_ms() > node.now_ms:
            return True
        node.wait(0)
    return False


@pytest.mark.parametrize("seed", range(50))
def test_no_request_raises_and_no_timer_stays_due(seed: int):
    """Any sequence of requests and responses: a response may end the process of a node that was lied to, no more."""
    chance = Chance(seed)
    node = any_node(chance)
    for _ in range(60):
        sent = node.of(effects.Send)
        kind = chance.random.random()
        if node.node.is_blocked:
            [*_, install] = node.of(effects.InstallSnapshot)
            node.give(events.SnapshotInstalled(install.snapshot, None, 0))
        elif kind < 0.5 or not sent:
            node.ask(chance.request(node))
        elif kind < 0.8:
            try:
                node.respond(chance.random.choice(sent[-3:]), chance.response(node))
            except IllegalTransitionError:
                return
        else:
            node.wait(chance.random.choice((0, 1, 30, 3000, 2**40)))
        assert node.node.log.end_offset >= node.node.log.start_offset >= 0
        assert is_over(node), f"a timer stays due: {node.node.state}"
        assert node.node.next_deadline_ms() <= NEVER_MS
