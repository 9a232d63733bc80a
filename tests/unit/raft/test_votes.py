"""Votes and pre-votes of KIP-595 and KIP-996, as KafkaRaftClient and the classes of its states decide them."""

from __future__ import annotations

import pytest
from tests.unit.raft.driven_node import CLUSTER, Driven, batch, driven, key, static_voters, voters_in_log

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.states import Follower, Unattached
from tidegauge_controller.raft.values import ElectionState, ReplicaKey

THREE = static_voters(0, 1, 2)


def vote(node: Driven, candidate: int, epoch: int, end: tuple[int, int] = (0, 0), **more: object) -> VoteResponse:
    """Ask for a vote; ``end`` is the last epoch and the end offset of the candidate's log."""
    voter = more.get("voter", key(0))
    assert voter is None or isinstance(voter, ReplicaKey)
    request = VoteRequest(CLUSTER, voter, epoch, key(candidate), end[0], end[1], bool(more.get("pre_vote")))
    response = node.ask(request)
    assert isinstance(response, VoteResponse)
    return response


def follower(epoch: int = 1, leader: int = 1, *, has_fetched: bool = True) -> Driven:
    """Return node 0 as the follower of a leader."""
    node = driven(0, THREE, election=ElectionState(epoch, leader))
    assert node.state == f"Follower {epoch}"
    if has_fetched:
        node.fetched(leader)
    return node


def test_a_vote_is_on_the_disk_before_it_is_granted():
    """Persist, then respond: a power loss between both may not let the node vote again (FileQuorumStateStore)."""
    node = driven(0, THREE)
    node.holds_disk = True
    wanted = node.give(events.RequestReceived("t", VoteRequest(CLUSTER, key(0), 1, key(1), 0, 0, pre_vote=False)))
    assert [type(effect) for effect in wanted] == [effects.PersistElection], "the epoch first"
    wanted = node.give(events.ElectionPersisted())
    assert wanted[-1] == effects.PersistElection(ElectionState(1, None, key(1)))
    assert not any(isinstance(effect, effects.Respond) for effect in wanted)
    [respond] = [effect for effect in node.give(events.ElectionPersisted()) if isinstance(effect, effects.Respond)]
    assert isinstance(respond.response, VoteResponse)
    assert respond.response.granted


def test_a_crash_before_or_after_the_rename_of_the_vote_gives_no_second_vote():
    """RaftFsync: before it no response has left, and after it the restarted process finds its vote."""
    node = driven(0, THREE, election=ElectionState(1))
    node.holds_disk = True
    wanted = node.give(events.RequestReceived("t", VoteRequest(CLUSTER, key(0), 1, key(1), 0, 0, pre_vote=False)))
    assert wanted == [effects.PersistElection(ElectionState(1, None, key(1)))], "nobody has been given the vote yet"
    before = driven(0, THREE, election=ElectionState(1))
    assert vote(before, 2, 1).granted
    after = driven(0, THREE, election=ElectionState(1, None, key(1)))
    assert not vote(after, 2, 1).granted
    assert vote(after, 1, 1).granted, "the first candidate, which has no response, may ask again"


def test_one_vote_an_epoch_and_the_same_candidate_is_granted_again():
    node = driven(0, THREE)
    assert vote(node, 1, 1).granted
    assert vote(node, 1, 1).granted
    assert not vote(node, 2, 1).granted
    assert vote(node, 2, 2).granted


def test_a_restart_remembers_the_vote():
    node = driven(0, THREE, election=ElectionState(4, None, key(1)))
    assert not vote(node, 2, 4).granted
    assert vote(node, 1, 4).granted


@pytest.mark.parametrize(
    ("end", "is_up_to_date"), [((1, 3), True), ((1, 2), False), ((2, 1), True), ((0, 9), False), ((1, 9), True)]
)
def test_a_candidate_whose_log_is_behind_gets_no_vote(end: tuple[int, int], is_up_to_date: bool):
    """The last epoch decides, then the end offset (Raft paper, section 5.4.1)."""
    node = driven(0, THREE, batch(0, 1, 3), election=ElectionState(1))
    assert vote(node, 1, 3, end).granted == is_up_to_date
    assert vote(node, 1, 3, end, pre_vote=True).granted == is_up_to_date


def test_no_vote_in_an_epoch_whose_leader_is_known():
    node = follower()
    assert not vote(node, 2, 1).granted
    assert isinstance(node.node.state, Follower)


def test_a_pre_vote_is_granted_until_the_leader_has_been_heard():
    """KIP-996: a follower that fetches grants none, so a returning voter does not disturb a healthy leader."""
    assert vote(follower(has_fetched=False), 2, 1, pre_vote=True).granted
    assert not vote(follower(), 2, 1, pre_vote=True).granted


def test_a_node_that_knows_no_vote_of_its_own_grants_pre_votes_after_the_fetch_timeout():
    """A voter set that it has not fetched may need its vote (KIP-853); it has no timer that makes it Prospective.

    Kafka's node grants none for as long as it knows no other leader (FollowerState.canGrantVote).
    """
    node = driven(3, THREE, election=ElectionState(1, 1))
    node.fetched(1)
    node.wait(QuorumConfig(CLUSTER, key(3)).fetch_timeout_ms - 1)
    assert not vote(node, 2, 1, (1, 9), pre_vote=True, voter=key(3)).granted
    node.wait(1)
    assert node.state == "Follower 1"
    assert vote(node, 2, 1, (1, 9), pre_vote=True, voter=key(3)).granted


def test_a_pre_vote_of_a_higher_epoch_does_not_depose_a_leader_nor_its_followers():
    """Kafka 4.3 raises the epoch for any pre-vote, so one stray request ends a healthy leader's term."""
    leader = driven(0, THREE)
    leader.elect(to=1)
    assert not vote(leader, 2, 9, (0, 99), pre_vote=True).granted
    assert leader.state == "Leader 1"
    node = follower()
    assert not vote(node, 2, 9, (0, 99), pre_vote=True).granted
    assert node.state == "Follower 1"


def test_a_voter_with_a_higher_epoch_is_heard_through_begin_quorum_epoch():
    """Without this a voter that once stood for election could never rejoin a leader that ignores its pre-votes."""
    node = driven(0, THREE)
    node.elect(to=1)
    begin = node.last_send(BeginQuorumEpochRequest, to=2)
    node.respond(begin, BeginQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=9))
    assert node.state == "Unattached 9"


def test_a_vote_of_a_higher_epoch_deposes_even_if_it_is_refused():
    node = driven(0, THREE, batch(0, 1, 3))
    node.elect(to=1)
    assert not vote(node, 2, 9, (0, 0)).granted
    assert node.state == "Unattached 9"


def test_a_request_for_another_voter_is_refused_before_it_raises_the_epoch():
    """INVALID_VOTER_KEY: another id, or this id with another directory (KIP-853). Kafka raises the epoch first."""
    node = driven(0, THREE)
    for voter in (ReplicaKey(7, bytes(16)), ReplicaKey(0, b"another-directory"[:16])):
        response = vote(node, 1, 5, voter=voter)
        assert (response.error, node.node.state.epoch) == (ErrorCode.INVALID_VOTER_KEY, 0)
    assert vote(node, 1, 5, voter=None).granted, "version 0 names no voter"


@pytest.mark.parametrize(
    ("candidate", "epoch", "end", "pre_vote"),
    [
        (1, 5, (-1, 0), False),
        (1, 5, (0, -1), False),
        (1, 5, (5, 9), False),
        (1, 5, (6, 9), True),
        (-1, 5, (0, 0), False),
    ],
)
def test_a_vote_that_makes_no_sense_is_invalid(candidate: int, epoch: int, end: tuple[int, int], pre_vote: bool):
    node = driven(0, THREE)
    request = VoteRequest(CLUSTER, key(0), epoch, ReplicaKey(candidate), end[0], end[1], pre_vote)
    response = node.ask(request)
    assert isinstance(response, VoteResponse)
    assert response.error is ErrorCode.INVALID_REQUEST
    assert node.state == "Unattached 0"


def test_a_vote_of_an_old_epoch_is_fenced_and_names_the_leader():
    response = vote(follower(epoch=4), 2, 3)
    assert (response.error, response.leader_id, response.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 1, 4)


def test_another_cluster_is_refused_first():
    response = driven(0, THREE).ask(VoteRequest("other", key(7), -5, key(1), 0, 0, pre_vote=False))
    assert isinstance(response, VoteResponse)
    assert response.top_level_error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_equal_fetch_timeouts_and_the_split_vote():
    """Fetch timeouts are not random: two followers grant each other's pre-votes, and refuse each other's votes.

    The random election timeout then decides (KafkaRaftClient; seen with Apache Kafka when a leader is killed).
    """
    nodes = {i: driven(i, THREE, election=ElectionState(1, 0)) for i in (1, 2)}
    for node in nodes.values():
        node.fetched(0)
        node.wait_for_timer()
        assert node.state == "Prospective 1"
    for i, other in ((1, 2), (2, 1)):
        assert vote(nodes[i], other, 1, pre_vote=True, voter=key(i)).granted
    for i, other in ((1, 2), (2, 1)):
        nodes[i].vote(pre_vote=True, to=other)
        assert nodes[i].state == "Candidate 2"
    for i, other in ((1, 2), (2, 1)):
        granted = vote(nodes[i], other, 2, voter=key(i)).granted
        assert not granted
        nodes[other].vote(granted, to=i)
        assert nodes[other].state == "Candidate 2", "a rejected candidate waits its election timeout out"
    nodes[1].wait_for_timer()
    assert nodes[1].state == "Prospective 2"
    assert vote(nodes[2], 1, 2, pre_vote=True, voter=key(2)).granted, "a candidate grants pre-votes"
    nodes[1].vote(pre_vote=True, to=2)
    assert vote(nodes[2], 1, 3, voter=key(2)).granted
    nodes[1].vote(to=2)
    assert nodes[1].state == "Leader 3"


def test_a_prospective_keeps_its_epoch_and_its_leader_until_a_majority_agrees():
    node = follower(epoch=3)
    node.wait_for_timer()
    assert node.state == "Prospective 3"
    assert node.of(effects.PersistElection) == [], "nothing is written for a pre-vote"
    node.vote(granted=False, pre_vote=True, to=1)
    assert node.state == "Prospective 3"
    node.vote(granted=False, pre_vote=True, to=2)
    assert node.state == "Follower 3", "rejected by a majority: back to its leader at once"


def test_a_voter_that_knows_no_pre_votes_lets_the_election_begin():
    node = follower(epoch=3)
    node.wait_for_timer()
    node.respond(node.last_send(VoteRequest), VoteResponse(error=ErrorCode.UNSUPPORTED_VERSION, epoch=3))
    assert node.state == "Candidate 4"


def test_a_former_leader_restarts_as_resigned_and_votes_in_the_next_epoch_only():
    """Records that it had not flushed must not come again under the same epoch and offset (QuorumState.initialize)."""
    node = driven(0, THREE, election=ElectionState(5, 0, key(0)))
    assert node.state == "Resigned 5"
    assert node.last_send(EndQuorumEpochRequest, to=1).request.preferred == ()  # type: ignore[union-attr]
    assert not vote(node, 1, 5).granted
    assert vote(node, 1, 5, pre_vote=True).granted
    assert vote(node, 1, 6).granted


def test_a_candidate_restarts_as_a_candidate():
    assert driven(0, THREE, election=ElectionState(5, None, key(0))).state == "Candidate 5"


def test_a_log_with_a_higher_epoch_than_quorum_state_decides_at_the_start():
    node = driven(0, THREE, batch(0, 7), election=ElectionState(5, None, key(0)))
    assert node.state == "Unattached 7"
    assert isinstance(node.node.state, Unattached)
    assert node.node.state.voted is None


def test_a_lone_voter_leads_without_a_message_in_a_new_epoch_at_every_start():
    node = driven(0, static_voters(0), election=ElectionState(3, 0, key(0)))
    assert node.state == "Resigned 3"
    while not node.state.startswith("Leader"):
        node.wait_for_timer()
    assert node.state == "Leader 5", "Resigned goes on as Unattached in epoch 4, Candidate in epoch 5"
    assert not [send for send in node.of(effects.Send) if isinstance(send.request, VoteRequest)]


def test_a_newly_added_voter_votes_before_it_knows_that_it_is_one():
    """KIP-853: its log may not have the VotersRecord yet, and without its vote no majority might be left."""
    node = driven(3, voters_in_log(0, 1, 2), bootstrap=True)
    assert not node.node.is_voter
    assert vote(node, 1, 4, (1, 9), voter=key(3)).granted


def test_a_resigned_leader_is_replaced_at_once_by_the_voter_that_it_prefers():
    """Rank 0 waits for nothing, later ranks exponentially longer (strictExponentialElectionBackoffMs)."""
    waits = {}
    for node_id in (0, 2):
        node = driven(node_id, THREE, election=ElectionState(1, 1))
        node.fetched(1)
        node.ask(EndQuorumEpochRequest(CLUSTER, 1, 1, (key(2), key(0))))
        before = node.now_ms
        node.wait_for_timer()
        assert node.state == "Prospective 1"
        waits[node_id] = node.now_ms - before
    assert waits == {2: 0, 0: 500}


def test_a_contradicting_leader_of_the_same_epoch_is_invalid():
    """No honest leader sends it; Kafka's node ends its process here."""
    node = follower(epoch=3, leader=1)
    response = node.ask(BeginQuorumEpochRequest(CLUSTER, key(0), 2, 3))
    assert isinstance(response, BeginQuorumEpochResponse)
    assert (response.error, node.state) == (ErrorCode.INVALID_REQUEST, "Follower 3")


def test_begin_quorum_epoch_is_followed_even_if_it_was_meant_for_another_voter():
    node = driven(0, THREE)
    response = node.ask(BeginQuorumEpochRequest(CLUSTER, key(2), 1, 3))
    assert isinstance(response, BeginQuorumEpochResponse)
    assert (response.error, node.state) == (ErrorCode.INVALID_VOTER_KEY, "Follower 3")
