"""Epochs are int32 (KIP-595): no message leads a node to an epoch without a successor, and no election begins one."""

from __future__ import annotations

import pytest
from tests.unit.raft.driven_node import CLUSTER, Driven, driven, endpoint, key, static_voters

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import events
from tidegauge_controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Request,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.states import Unattached
from tidegauge_controller.raft.values import LAST_EPOCH, ElectionState, OffsetAndEpoch

HIGHEST = 2**31 - 1
THREE = static_voters(0, 1, 2)
TIMEOUTS = 12
"""Timers that a node takes in these tests; each ends or begins one attempt to be elected."""

REQUESTS = {
    "vote": VoteRequest(CLUSTER, key(0), HIGHEST, key(1), 0, 0, pre_vote=False),
    "pre-vote": VoteRequest(CLUSTER, key(0), HIGHEST, key(1), 0, 0, pre_vote=True),
    "begin": BeginQuorumEpochRequest(CLUSTER, key(0), 1, HIGHEST, (endpoint(1),)),
    "end": EndQuorumEpochRequest(CLUSTER, 1, HIGHEST, (key(0),), (endpoint(1),)),
    "fetch": FetchRequest(CLUSTER, key(1), HIGHEST, 0, 0, 0),
    "fetch of a snapshot": FetchSnapshotRequest(CLUSTER, key(1), HIGHEST, OffsetAndEpoch(0, 0), 0, 100),
    "update": UpdateVoterRequest(CLUSTER, HIGHEST, key(1), (endpoint(1),), 0, 1),
}


def at_the_last_epoch(**more: int | None) -> Driven:
    """Return node 0 whose disk has the last epoch, without a vote."""
    return driven(0, THREE, election=ElectionState(LAST_EPOCH, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("election", [ElectionState(1), ElectionState(1, 1)], ids=["unattached", "follower"])
def test_a_request_of_an_epoch_without_a_successor_is_refused(request_: Request, election: ElectionState) -> None:
    node = driven(0, THREE, election=election)
    former = node.state
    response = node.ask(request_)
    assert response is not None
    assert response.error is not ErrorCode.NONE
    assert node.state == former


@pytest.mark.parametrize("name", ["vote", "begin", "end"])
def test_a_leader_is_not_deposed_by_an_epoch_without_a_successor(name: str) -> None:
    node = driven(0, THREE)
    node.elect(to=1)
    response = node.ask(REQUESTS[name])
    assert response is not None
    assert response.error is ErrorCode.INVALID_REQUEST
    assert node.state == "Leader 1"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@pytest.mark.parametrize("leader_id", [None, 2])
def test_a_response_of_an_epoch_without_a_successor_changes_nothing(error: ErrorCode, leader_id: int | None) -> None:
    """And the request is sent again only after a back-off."""
    node = driven(0, THREE, election=ElectionState(1, 1))
    response = FetchResponse(epoch=HIGHEST, leader_id=leader_id, endpoints={2: endpoint(2)}, error=error)
    node.respond(node.last_send(FetchRequest), response)
    assert node.state == "Follower 1"
    assert node.node.next_deadline_ms() > node.now_ms


def test_the_last_epoch_is_joined_and_voted_in() -> None:
    """It is an epoch as any other."""
    node = driven(0, THREE, election=ElectionState(1))
    response = node.ask(VoteRequest(CLUSTER, key(0), LAST_EPOCH, key(1), 0, 0, pre_vote=False))
    assert isinstance(response, VoteResponse)
    assert response.granted
    assert node.node.state.epoch == LAST_EPOCH


def test_an_election_may_begin_the_last_epoch() -> None:
    node = driven(0, THREE, election=ElectionState(LAST_EPOCH - 1))
    node.elect(to=1)
    assert node.state == f"Leader {LAST_EPOCH}"


@pytest.mark.parametrize("voters", [THREE, static_voters(0)], ids=["three voters", "a voter alone"])
def test_no_election_begins_an_epoch_after_the_last(voters: object) -> None:
    """The node goes on in the epoch that it has; each timer that it takes sets the next one ahead."""
    node = driven(0, voters, election=ElectionState(LAST_EPOCH))  # type: ignore[arg-type]
    for _ in range(TIMEOUTS):
        node.wait_for_timer()
        if node.state.startswith("Prospective"):
            node.vote(pre_vote=True, to=1)
        assert node.node.state.epoch == LAST_EPOCH
        assert not node.state.startswith("Candidate")
        assert node.node.next_deadline_ms() > node.now_ms
    assert isinstance(node.node.state, Unattached)


def test_a_voter_without_pre_votes_begins_no_epoch_after_the_last() -> None:
    """UNSUPPORTED_VERSION makes a prospective a candidate at once (KIP-996)."""
    node = at_the_last_epoch()
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    node.respond(node.last_send(VoteRequest, 1), VoteResponse(epoch=LAST_EPOCH, error=ErrorCode.UNSUPPORTED_VERSION))
    assert node.state == f"Unattached {LAST_EPOCH}"


def test_a_leader_of_the_last_epoch_that_resigned_stays_so() -> None:
    node = at_the_last_epoch(leader_id=0)
    assert node.state == f"Resigned {LAST_EPOCH}"
    for _ in range(TIMEOUTS):
        node.wait_for_timer()
        assert node.state == f"Resigned {LAST_EPOCH}"
    node.give(events.Tick())
    assert node.node.next_deadline_ms() > node.now_ms


def test_a_disk_that_has_the_highest_epoch_is_served() -> None:
    """An older version may have written it: the node starts, stands for no election, and raises nothing."""
    node = driven(0, THREE, election=ElectionState(HIGHEST))
    for _ in range(TIMEOUTS):
        node.wait_for_timer()
        assert node.node.state.epoch == HIGHEST
