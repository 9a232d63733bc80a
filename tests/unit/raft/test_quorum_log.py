"""The replicated log of a quorum: fetches, the high watermark, divergence, snapshots (KIP-595, KIP-630, KIP-1166)."""

from __future__ import annotations

import pytest
from tests.unit.raft.driven_node import (
    CLUSTER,
    Driven,
    batch,
    driven,
    endpoint,
    key,
    static_voters,
    voters_in_log,
)

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.log_view import Match, loaded
from tidegauge_controller.raft.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
)
from tidegauge_controller.raft.states import IllegalTransitionError
from tidegauge_controller.raft.values import ElectionState, OffsetAndEpoch, VotersRecord
from tidegauge_controller.raft.voter_history import VoterHistory

THREE = static_voters(0, 1, 2)


def leader(*batches: object, holds_disk: bool = False, **settings: int) -> Driven:
    """Make node 0 the leader of epoch 1, or of the epoch behind its log."""
    node = driven(0, THREE, *batches, **settings)  # type: ignore[arg-type]
    node.elect(to=1)
    node.holds_disk = holds_disk
    return node


def follower(*batches: object, epoch: int = 1, **settings: int) -> Driven:
    """Return node 0 as the follower of node 1."""
    return driven(0, THREE, *batches, election=ElectionState(epoch, 1), **settings)  # type: ignore[arg-type]


def propose(node: Driven, count: int = 1) -> tuple[int, int]:
    """Propose records at a leader and let them be appended; return their offsets."""
    wanted = node.give(events.Propose("p", node.node.state.epoch, count, 10, "value"))
    [proposed] = [effect for effect in wanted if isinstance(effect, effects.Proposed)]
    node.wait_for_timer()
    return proposed.base_offset, proposed.end_offset


def fetch(node: Driven, replica: int, offset: int, last_epoch: int, **more: int) -> FetchResponse | None:
    response = node.fetch(replica, offset, last_epoch, **more)
    assert response is None or isinstance(response, FetchResponse)
    return response


def test_a_leader_begins_with_its_leader_change_and_knows_no_high_watermark():
    node = leader()
    [append] = node.of(effects.Append)
    assert (append.batch.base_offset, append.batch.end_offset, append.batch.epoch) == (0, 1, 1)
    response = fetch(node, 1, 0, 0, wait=0)
    assert response is not None
    assert response.high_watermark == -1
    assert effects.LeadershipChanged(0, 1) not in node.done, "its controller hears of it when the record is committed"


def test_the_high_watermark_moves_on_the_request_that_makes_a_majority():
    """The response to that very fetch carries it (KafkaRaftClient.handleFetchRequest)."""
    node = leader()
    assert fetch(node, 1, 0, 0) is not None
    assert node.node.high_watermark is None
    response = fetch(node, 1, 1, 1, known=-1)
    assert response is not None
    assert (response.high_watermark, node.node.high_watermark) == (1, 1)
    assert effects.LeadershipChanged(0, 1) in node.done


def test_records_of_former_epochs_are_committed_with_one_of_the_leaders_own_only():
    """Figure 8 of the Raft paper: a majority for an old record alone commits nothing."""
    node = leader(batch(0, 1), batch(1, 2))
    assert node.state == "Leader 3"
    assert fetch(node, 1, 2, 2) is not None
    assert fetch(node, 2, 2, 2) is not None
    assert node.node.high_watermark is None
    fetch(node, 1, 3, 3)
    assert node.node.high_watermark == 3


def test_a_leader_does_not_count_itself_before_its_flush():
    """A lone voter of Kafka moves the high watermark before its fsync; a power loss then takes committed records."""
    node = driven(0, static_voters(0))
    node.holds_disk = True
    while not node.state.startswith("Leader"):
        if node.node.is_blocked:
            node.give(events.ElectionPersisted())
        else:
            node.wait_for_timer()
    assert node.node.high_watermark is None
    [flush] = node.of(effects.Flush)
    node.give(events.Flushed(flush.number, flush.end_offset))
    assert node.node.high_watermark == 1


def test_a_follower_fetches_on_only_after_its_flush():
    """Its next fetch says that everything before is on its disk (KafkaRaftClient.appendAsFollower)."""
    node = follower()
    node.holds_disk = True
    wanted = node.fetched(1, batch(0, 1, 3), high_watermark=0)
    assert [type(effect) for effect in wanted] == [effects.Append, effects.Flush, effects.HighWatermarkMoved]
    [flush] = node.of(effects.Flush)
    [send] = node.give(events.Flushed(flush.number, flush.end_offset))
    assert isinstance(send, effects.Send)
    assert isinstance(send.request, FetchRequest)
    assert (send.request.offset, send.request.last_epoch) == (3, 1)


def test_a_broker_that_observes_never_flushes():
    """It may lose its page cache: no leader counts it (KafkaRaftClient: canBecomeVoter)."""
    node = driven(7, THREE, can_become_voter=False, election=ElectionState(1, 1))
    wanted = node.fetched(1, batch(0, 1, 3), high_watermark=2)
    assert [type(effect) for effect in wanted] == [effects.Append, effects.HighWatermarkMoved, effects.Send]
    node.wait(60_000)
    assert node.state == "Follower 1", "an observer never stands for election"


def test_a_follower_ends_up_with_the_smaller_of_both_high_watermarks():
    node = follower()
    node.fetched(1, batch(0, 1, 3), high_watermark=9)
    assert node.node.high_watermark == 3


def test_a_high_watermark_that_falls_ends_the_process():
    node = follower(batch(0, 1, 5))
    node.fetched(1, high_watermark=5)
    with pytest.raises(IllegalTransitionError, match="high watermark 4 is below"):
        node.fetched(1, high_watermark=4)


def test_a_diverging_response_truncates_to_the_common_end():
    """The leader's end of the epoch and the follower's; the smaller one (RaftLog.truncateToEndOffset)."""
    node = follower(batch(0, 1, 2), batch(2, 2), batch(3, 2, 3), epoch=3)
    node.fetched(1, diverging=OffsetAndEpoch(3, 2))
    assert node.of(effects.Truncate) == [effects.Truncate(3)]
    node.fetched(1, diverging=OffsetAndEpoch(9, 1))
    assert node.of(effects.Truncate)[1:] == [effects.Truncate(2)], "here epoch 1 ends before it does at the leader"


def test_an_unknown_epoch_truncates_to_the_end_of_the_largest_one_below():
    node = follower(batch(0, 1, 2), batch(2, 3, 4), epoch=5)
    node.fetched(1, diverging=OffsetAndEpoch(7, 2))
    assert node.of(effects.Truncate) == [effects.Truncate(2)]
    send = node.last_send(FetchRequest)
    assert isinstance(send.request, FetchRequest)
    assert (send.request.offset, send.request.last_epoch) == (2, 1)


def test_a_divergence_below_the_high_watermark_ends_the_process():
    node = follower(batch(0, 1, 5), epoch=1)
    node.fetched(1, high_watermark=4)
    with pytest.raises(IllegalTransitionError, match="diverges at 2"):
        node.fetched(1, diverging=OffsetAndEpoch(2, 1))


def test_a_flush_from_before_a_truncation_says_nothing_about_what_came_after():
    view = loaded([batch(0, 1, 2)])
    view.append(batch(2, 1, 4))
    number = view.request_flush()
    view.truncate(2)
    view.append(batch(2, 2, 6))
    view.flushed(number, 6)
    assert view.flushed_offset == 2


@pytest.mark.parametrize(
    ("end", "match"),
    [
        ((0, 0), (Match.VALID, (0, 0))),
        ((4, 1), (Match.VALID, (4, 1))),
        ((5, 1), (Match.DIVERGING, (4, 1))),
        ((6, 2), (Match.DIVERGING, (4, 1))),
        ((9, 3), (Match.VALID, (9, 3))),
        ((10, 3), (Match.DIVERGING, (9, 3))),
        ((9, 7), (Match.DIVERGING, (9, 3))),
    ],
)
def test_the_leader_judges_the_end_of_a_followers_log(end: tuple[int, int], match: tuple[Match, tuple[int, int]]):
    """RaftLog.validateOffsetAndEpoch on a log with the epochs 1 (0 to 4) and 3 (4 to 9)."""
    assert loaded([batch(0, 1, 4), batch(4, 3, 5)]).match(*end) == match


def test_a_fetch_from_before_the_log_gets_the_newest_snapshot():
    view = loaded([batch(4, 3, 5)], start_offset=4, snapshots=[OffsetAndEpoch(4, 1), OffsetAndEpoch(9, 3)])
    newest = (Match.SNAPSHOT, (9, 3))
    assert view.match(2, 1) == newest
    assert view.match(4, 2) == newest, "the snapshot at the log's start has another epoch"
    assert view.match(5, 0) == newest, "an epoch below the oldest snapshot's"
    assert view.match(4, 1) == (Match.VALID, (4, 1))


def test_a_parked_fetch_is_completed_by_an_append_by_the_high_watermark_and_by_its_deadline():
    """KIP-1166: one that knows a lower high watermark is responded to at once, and any moves when the mark does."""
    node = leader()
    fetch(node, 1, 1, 1, wait=0)
    assert fetch(node, 1, 1, 1, known=1) is None
    assert fetch(node, 2, 1, 1, known=1) is None
    before = len(node.of(effects.Respond))
    propose(node)
    completed = node.of(effects.Respond)[before:]
    assert [respond.read_from for respond in completed] == [1, 1]
    assert fetch(node, 1, 2, 1, known=1) is not None, "its request moved the high watermark"
    assert fetch(node, 1, 2, 1, known=2) is None
    before = len(node.of(effects.Respond))
    node.wait(500)
    assert [respond.read_from for respond in node.of(effects.Respond)[before:]] == [None]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, ErrorCode.NONE)],
)
def test_the_epoch_of_a_fetch_is_checked(epoch: int, error: ErrorCode):
    response = leader().ask(FetchRequest(CLUSTER, key(1), epoch, 0, 0, 0))
    assert isinstance(response, FetchResponse)
    assert (response.error, response.leader_id, response.endpoints) == (error, 0, {0: endpoint(0)})


@pytest.mark.parametrize(("offset", "last_epoch", "wait"), [(-1, 0, 0), (0, -1, 0), (0, 2, 0), (0, 0, -1)])
def test_a_fetch_that_makes_no_sense_is_invalid(offset: int, last_epoch: int, wait: int):
    response = leader().ask(FetchRequest(CLUSTER, key(1), 1, offset, last_epoch, wait))
    assert isinstance(response, FetchResponse)
    assert response.error is ErrorCode.INVALID_REQUEST


def test_a_leader_that_no_majority_fetches_from_resigns():
    """Check-quorum: one and a half fetch timeouts (LeaderState); fetches of a majority start the time again."""
    node = leader(fetch_timeout_ms=2000)
    node.wait(2900)
    fetch(node, 1, 1, 1)
    node.wait(2900)
    assert node.state == "Leader 1"
    node.wait(100)
    assert node.state == "Resigned 1"
    assert node.last_send(EndQuorumEpochRequest, to=2)


def test_fetches_of_a_minority_do_not_keep_a_leader():
    node = driven(0, static_voters(0, 1, 2, 3, 4))
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    for pre_vote in (True, False):
        for voter in (1, 2):
            send = node.last_send(VoteRequest, to=voter)
            assert isinstance(send.request, VoteRequest)
            assert send.request.pre_vote == pre_vote
            node.vote(pre_vote=pre_vote, to=voter)
    assert node.state == "Leader 1"
    for _ in range(8):
        fetch(node, 1, 1, 1)
        node.wait(400)
    assert node.state == "Resigned 1"


def test_a_deposed_leader_fails_the_fetches_that_it_had_parked():
    node = leader()
    fetch(node, 1, 1, 1, wait=0)
    assert fetch(node, 2, 1, 1, known=1) is None
    node.ask(VoteRequest(CLUSTER, key(0), 5, key(2), 1, 99, pre_vote=False))
    [*_, last] = [r.response for r in node.of(effects.Respond) if isinstance(r.response, FetchResponse)]
    assert (last.error, last.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5)


def test_proposals_share_a_batch_until_the_linger_is_over():
    node = leader(append_linger_ms=25)
    for value in (1, 2):
        node.give(events.Propose(value, 1, 2, 10, value))
        node.wait(10)
    assert len(node.of(effects.Append)) == 1, "only the LeaderChange"
    node.wait(5)
    [_, append] = node.of(effects.Append)
    assert (append.batch.base_offset, append.batch.end_offset, append.batch.payload) == (1, 5, (1, 2))


def test_a_proposal_of_another_epoch_is_refused():
    node = leader()
    node.give(events.Propose("p", 0, 1, 10, "value"))
    [refused] = node.of(effects.NotProposed)
    assert refused.error is ErrorCode.NOT_CONTROLLER


def test_a_snapshot_is_fetched_in_slices_and_takes_the_place_of_the_log():
    node = follower(fetch_snapshot_max_bytes=4)
    node.fetched(1, snapshot=OffsetAndEpoch(7, 1))
    for position, data in ((0, b"abcd"), (4, b"ef")):
        send = node.last_send(FetchSnapshotRequest)
        assert isinstance(send.request, FetchSnapshotRequest)
        assert (send.request.snapshot, send.request.position) == ((7, 1), position)
        response = FetchSnapshotResponse(
            leader_id=1, epoch=1, snapshot=OffsetAndEpoch(7, 1), position=position, size_bytes=6, data=data
        )
        node.respond(send, response)
    assert node.node.is_blocked
    node.give(events.SnapshotInstalled(OffsetAndEpoch(7, 1), None, 0))
    assert (node.node.log.start_offset, node.node.log.end, node.node.high_watermark) == (7, (7, 1), 7)
    send = node.last_send(FetchRequest)
    assert isinstance(send.request, FetchRequest)
    assert (send.request.offset, send.request.last_epoch) == (7, 1)


def test_a_snapshot_that_proves_damaged_is_fetched_again_and_the_log_stays():
    """Kafka's node ends its process by the damage on the leader's disk; this one keeps its log, and its vote."""
    node = follower()
    end = node.node.log.end
    node.fetched(1, snapshot=OffsetAndEpoch(7, 1))
    response = FetchSnapshotResponse(
        leader_id=1, epoch=1, snapshot=OffsetAndEpoch(7, 1), position=0, size_bytes=3, data=b"bad"
    )
    node.respond(node.last_send(FetchSnapshotRequest), response)
    assert node.node.is_blocked
    node.give(events.SnapshotRefused(OffsetAndEpoch(7, 1)))
    assert not node.node.is_blocked
    assert node.node.log.end == end
    node.wait(20)
    assert isinstance(node.of(effects.Send)[-1].request, FetchRequest)


def test_a_snapshot_that_is_gone_is_forgotten_and_the_log_is_fetched_again():
    node = follower()
    node.fetched(1, snapshot=OffsetAndEpoch(7, 1))
    gone = FetchSnapshotResponse(
        error=ErrorCode.SNAPSHOT_NOT_FOUND, leader_id=1, epoch=1, snapshot=OffsetAndEpoch(7, 1)
    )
    node.respond(node.last_send(FetchSnapshotRequest), gone)
    assert node.of(effects.DropSnapshot) == [effects.DropSnapshot(OffsetAndEpoch(7, 1))]
    node.wait(20)
    assert isinstance(node.of(effects.Send)[-1].request, FetchRequest)


def test_a_late_response_of_a_former_state_changes_nothing():
    """A new state clears all slots (KafkaRaftClient.resetConnections), so the correlation id is unknown."""
    node = follower()
    send = node.last_send(FetchRequest)
    node.ask(VoteRequest(CLUSTER, key(0), 5, key(2), 1, 9, pre_vote=False))
    late = FetchResponse(leader_id=1, epoch=1, high_watermark=1, batches=(batch(0, 1),))
    before = len(node.done)
    node.respond(send, late)
    assert not [effect for effect in node.done[before:] if isinstance(effect, effects.Append)]


def with_two_fetches_in_flight() -> tuple[Driven, effects.Send, effects.Send]:
    """Return a follower with two fetches in flight.

    Its leader's slot backed off, so a bootstrap server, the leader too, was asked.
    """
    node = follower(batch(0, 1), request_timeout_ms=100)
    first = node.last_send(FetchRequest)
    node.wait(100)
    to_bootstrap = node.last_send(FetchRequest)
    node.wait(20)
    to_leader = node.last_send(FetchRequest)
    assert len({first.correlation_id, to_bootstrap.correlation_id, to_leader.correlation_id}) == 3
    assert to_bootstrap.node_id != to_leader.node_id == 1
    return node, to_bootstrap, to_leader


def test_the_later_of_two_responses_in_flight_is_no_regression():
    """Found by the search of whole clusters: the one that waited at the leader has an older high watermark.

    KafkaRaftClient sends both requests as well, and ends its process at the second response.
    """
    node, to_bootstrap, to_leader = with_two_fetches_in_flight()
    one = FetchResponse(leader_id=1, epoch=1, high_watermark=1, batches=(batch(1, 1),))
    node.respond(to_leader, FetchResponse(leader_id=1, epoch=1, high_watermark=2, batches=(batch(1, 1),)))
    before = len(node.done)
    node.respond(to_bootstrap, one)
    assert (node.node.log.end_offset, node.node.high_watermark) == (2, 2)
    assert not [effect for effect in node.done[before:] if isinstance(effect, effects.Append | effects.Truncate)]


@pytest.mark.parametrize(
    "late", [{"diverging": OffsetAndEpoch(0, 0)}, {"snapshot": OffsetAndEpoch(9, 1)}], ids=["diverging", "snapshot"]
)
def test_the_later_of_two_responses_takes_nothing_back(late: dict[str, OffsetAndEpoch]):
    """The response is about a log that ended elsewhere: records that came meanwhile stay."""
    node, to_bootstrap, to_leader = with_two_fetches_in_flight()
    node.respond(to_leader, FetchResponse(leader_id=1, epoch=1, high_watermark=1, batches=(batch(1, 1),)))
    node.respond(to_bootstrap, FetchResponse(leader_id=1, epoch=1, **late))  # type: ignore[arg-type]
    assert node.node.log.end_offset == 2
    assert isinstance(node.last_send(FetchRequest).request, FetchRequest)
    assert not node.of(effects.Truncate)


def test_describe_quorum_is_the_leaders():
    node = leader()
    fetch(node, 1, 1, 1)
    fetch(node, 9, 0, 0, wait=0)
    response = node.ask(DescribeQuorumRequest())
    assert isinstance(response, DescribeQuorumResponse)
    assert response.high_watermark == 1
    assert [(status.key.id, status.end_offset) for status in response.voters] == [(0, 1), (1, 1), (2, -1)]
    assert [status.key.id for status in response.observers] == [9]
    other = follower().ask(DescribeQuorumRequest())
    assert isinstance(other, DescribeQuorumResponse)
    assert (other.error, other.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)


def test_voter_sets_below_the_start_of_the_log_are_forgotten_but_the_one_in_force_there():
    """KRaftControlRecordStateMachine.truncateOldEntries: a log that is cleaned keeps no history without bound."""
    history = VoterHistory()
    sets = [voters_in_log(*range(count)) for count in (3, 4, 5)]
    for offset, voters in ((2, sets[0]), (10, sets[1]), (20, sets[2])):
        history.replay(batch(offset, 1, control=(VotersRecord(voters),)))
    history.prune(15)
    assert [at.offset for at in history.voters] == [10, 20]
    assert history.voters_at(15) == sets[1]
    history.prune(30)
    assert [at.offset for at in history.voters] == [20]
    history.prune(5)
    assert history.current == sets[2]


def test_a_node_prunes_its_history_when_its_log_start_moves():
    """events.LogStartMoved."""
    changes = [(VotersRecord(voters_in_log(0, 1, 2)),), (VotersRecord(voters_in_log(0, 1, 2, 3)),)]
    log = [batch(offset, 1, control=control) for offset, control in enumerate(changes)]
    node = driven(0, THREE, *log, batch(2, 1), snapshots=(OffsetAndEpoch(2, 1),))
    node.give(events.LogStartMoved(2))
    assert [at.offset for at in node.node.history.voters] == [1]


@pytest.mark.parametrize(("fetch_timeout_ms", "wait_ms"), [(2000, 500), (500, 166), (1, 0)])
def test_a_follower_hears_of_an_idle_leader_before_its_fetch_timeout(fetch_timeout_ms: int, wait_ms: int):
    """KafkaRaftClient lets its leader wait 500 ms; with a fetch timeout as short each idle fetch was an election."""
    assert QuorumConfig(CLUSTER, key(0), fetch_timeout_ms=fetch_timeout_ms).fetch_wait_ms == wait_ms
