"""Rules that only a schedule made by hand shows: comparison of logs, stale high watermarks, voters of snapshots."""

from __future__ import annotations

from tests.unit.raft.driven_node import CLUSTER, batch, driven, first_batch, key, static_voters, voters_in_log

from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.messages import (
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.values import ElectionState, OffsetAndEpoch, VotersRecord

THREE = static_voters(0, 1, 2)


def test_epochs_are_compared_before_offsets():
    """A longer log of an older epoch may lack committed records (Raft paper, section 5.4.1)."""
    node = driven(0, THREE, batch(0, 1), batch(1, 2))
    longer = node.ask(VoteRequest(CLUSTER, key(0), 5, key(1), 1, 9, False))
    later = node.ask(VoteRequest(CLUSTER, key(0), 6, key(2), 3, 1, False))
    assert isinstance(longer, VoteResponse)
    assert isinstance(later, VoteResponse)
    assert (longer.granted, later.granted) == (False, True)


def test_a_new_leader_does_not_report_the_high_watermark_that_it_had_as_a_follower():
    """Another follower may know a higher one, and would see it fall (LeaderState.highWatermark is empty)."""
    node = driven(0, THREE, batch(0, 1), election=ElectionState(1, 1))
    node.fetched(1, high_watermark=1)
    node.elect(to=2)
    response = node.fetch(2, 1, 1, wait=0)
    assert isinstance(response, FetchResponse)
    assert response.high_watermark == -1


def test_a_removal_takes_one_voter_away():
    """Else the majorities of both sets need not overlap (KIP-853, VoterSet.hasOverlappingMajority)."""
    voters = voters_in_log(0, 1, 2, 3)
    node = driven(0, voters, first_batch(1, 0, voters, in_log=True))
    node.give(events.Tick())
    while not node.state.startswith("Prospective"):
        node.wait_for_timer()
    for pre_vote in (True, False):
        for voter_id in (1, 2):
            node.vote(pre_vote=pre_vote, to=voter_id)
    for voter_id in (1, 2):
        node.fetch(voter_id, node.node.log.end_offset, node.node.log.last_epoch)
    node.ask(RemoveVoterRequest(CLUSTER, key(3)))
    [record] = [
        record
        for effect in node.of(effects.Append)
        for record in effect.batch.control
        if isinstance(record, VotersRecord)
    ]
    assert record.voter_set.ids == [0, 1, 2]


def test_a_leader_that_removed_itself_is_not_part_of_the_majority():
    """The set without it decides as soon as it is appended: one of two other voters is no majority."""
    voters = voters_in_log(0, 1, 2)
    node = driven(0, voters, first_batch(1, 0, voters, in_log=True))
    node.elect(to=1)
    node.fetch(1, node.node.log.end_offset, node.node.log.last_epoch)
    before = node.node.high_watermark
    node.ask(RemoveVoterRequest(CLUSTER, key(0)))
    end = node.node.log.end
    node.fetch(1, end.offset, end.epoch)
    assert node.node.high_watermark == before
    node.fetch(2, end.offset, end.epoch)
    assert node.node.high_watermark == end.offset


def test_the_voters_of_an_installed_snapshot_are_in_force():
    """KRaftControlRecordStateMachine begins again with the snapshot's records (KIP-853)."""
    voters = voters_in_log(0, 1, 2)
    node = driven(0, voters, first_batch(1, 1, voters, in_log=True), election=ElectionState(1, 1))
    node.fetched(1, snapshot=OffsetAndEpoch(9, 1))
    slice_of_it = FetchSnapshotResponse(leader_id=1, epoch=1, snapshot=OffsetAndEpoch(9, 1), size_bytes=1, data=b"s")
    node.respond(node.last_send(FetchSnapshotRequest), slice_of_it)
    node.give(events.SnapshotInstalled(OffsetAndEpoch(9, 1), voters_in_log(0, 1, 3), 1))
    assert node.node.history.current.ids == [0, 1, 3]
