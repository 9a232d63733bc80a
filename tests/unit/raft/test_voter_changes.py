"""Adding, removing and updating voters one at a time, and moving static voters into the log (KIP-853)."""

from __future__ import annotations

import pytest
from tests.unit.raft.driven_node import CLUSTER, Driven, driven, endpoint, key, static_voters, voters_in_log

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    ChangeVoterResponse,
    FetchRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from tidegauge_controller.raft.values import (
    ElectionState,
    KRaftVersionRecord,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    VotersRecord,
)

THREE = voters_in_log(0, 1, 2)


def leader(*, is_committed: bool = True) -> Driven:
    """Return node 0 as leader of a formatted quorum with logged voters."""
    node = driven(0, THREE, bootstrap=True)
    node.elect(to=1)
    if is_committed:
        catch_up(node, 1)
    return node


def catch_up(node: Driven, replica: int) -> None:
    """Let a replica fetch everything, and say so."""
    node.fetch(replica, node.node.log.end_offset, node.node.log.last_epoch)


def add(node: Driven, replica: int, **more: bool) -> ChangeVoterResponse | None:
    response = node.ask(AddVoterRequest(CLUSTER, key(replica), (endpoint(replica),), 30_000, **more))
    assert response is None or isinstance(response, ChangeVoterResponse)
    return response


def remove(node: Driven, replica: int) -> ChangeVoterResponse | None:
    response = node.ask(RemoveVoterRequest(CLUSTER, key(replica)))
    assert response is None or isinstance(response, ChangeVoterResponse)
    return response


def responds_to_versions(node: Driven, lowest: int = 0, highest: int = 1) -> None:
    node.respond(
        node.last_send(ApiVersionsRequest), ApiVersionsResponse(lowest_version=lowest, highest_version=highest)
    )


def last_response(node: Driven) -> ChangeVoterResponse:
    found = [r.response for r in node.of(effects.Respond) if isinstance(r.response, ChangeVoterResponse)]
    return found[-1]


def test_the_first_leader_puts_the_voters_of_the_formatted_nodes_into_the_log():
    """LeaderState.appendStartOfEpochControlRecords: offsets 0, 1, 2 of a new cluster."""
    node = leader()
    [append] = node.of(effects.Append)
    assert [type(record) for record in append.batch.control] == [LeaderChange, KRaftVersionRecord, VotersRecord]
    node = driven(0, THREE, append.batch, election=ElectionState(1, None))
    node.elect(to=1)
    assert [type(record) for record in node.of(effects.Append)[0].batch.control] == [LeaderChange], (
        "a later one does not"
    )


def test_an_observer_that_has_caught_up_is_added():
    node = leader()
    catch_up(node, 3)
    assert add(node, 3) is None
    responds_to_versions(node)
    assert node.node.history.current.ids == [0, 1, 2, 3], "in force as soon as it is appended"
    catch_up(node, 1)
    assert node.of(effects.Respond)[-1].response.error is ErrorCode.NONE, "four voters: two are no majority"
    assert not [r for r in node.of(effects.Respond) if isinstance(r.response, ChangeVoterResponse)]
    catch_up(node, 3)
    assert last_response(node).error is ErrorCode.NONE


def test_a_replica_that_does_not_fetch_is_not_added():
    node = leader()
    assert add(node, 3) is None
    responds_to_versions(node)
    assert last_response(node).error is ErrorCode.REQUEST_TIMED_OUT
    assert "lagging" in (last_response(node).message or "")
    assert node.node.history.current.ids == [0, 1, 2]


def test_a_replica_that_supports_another_kraft_version_is_not_added():
    node = leader()
    catch_up(node, 3)
    add(node, 3)
    responds_to_versions(node, 0, 0)
    assert last_response(node).error is ErrorCode.INVALID_REQUEST


def test_a_replica_that_does_not_respond_ends_the_change():
    node = leader()
    catch_up(node, 3)
    add(node, 3)
    node.give(events.SendFailed(node.last_send(ApiVersionsRequest).correlation_id))
    assert last_response(node).error is ErrorCode.REQUEST_TIMED_OUT
    node.wait(100)
    assert add(node, 3) is None, "the next one may begin"


def test_a_replica_that_backs_off_is_refused_at_once():
    """AddVoterHandler: nothing is sent to it, so waiting for its versions would only cost the request timeout."""
    node = leader()
    catch_up(node, 3)
    add(node, 3)
    node.give(events.SendFailed(node.last_send(ApiVersionsRequest).correlation_id))
    response = add(node, 3)
    assert response is not None
    assert response.error is ErrorCode.REQUEST_TIMED_OUT
    assert response.message == "Node 3 is not ready to receive requests."


def test_a_voter_of_the_same_id_is_a_duplicate():
    node = leader()
    response = node.ask(AddVoterRequest(CLUSTER, ReplicaKey(1, b"z" * 16), (endpoint(1),), 30_000))
    assert isinstance(response, ChangeVoterResponse)
    assert response.error is ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("voter", [ReplicaKey(3, bytes(16)), ReplicaKey(3, None)])
def test_a_voter_without_a_directory_is_invalid(voter: ReplicaKey):
    response = leader().ask(AddVoterRequest(CLUSTER, voter, (endpoint(3),), 30_000))
    assert isinstance(response, ChangeVoterResponse)
    assert response.error is ErrorCode.INVALID_REQUEST


def test_a_voter_is_reached_by_the_listener_of_the_leader():
    """KafkaRaftClient.handleAddVoterRequest: another listener's endpoint alone is refused before anything is tried."""
    other = endpoint(3)._replace(listener="INTERNAL", port=1)
    response = leader().ask(AddVoterRequest(CLUSTER, key(3), (other,), 30_000))
    assert isinstance(response, ChangeVoterResponse)
    assert response.error is ErrorCode.INVALID_REQUEST
    node = leader()
    assert node.ask(AddVoterRequest(CLUSTER, key(3), (other, endpoint(3)), 30_000)) is None
    assert node.last_send(ApiVersionsRequest).endpoint == endpoint(3)


def test_only_one_change_at_a_time():
    node = leader()
    assert remove(node, 2) is None
    response = remove(node, 1)
    assert response is not None
    assert response.error is ErrorCode.REQUEST_TIMED_OUT


def test_no_change_before_a_record_of_the_epoch_is_committed():
    """Without this rule two majorities may not overlap (the bug of single-server changes found in 2015)."""
    response = remove(leader(is_committed=False), 2)
    assert response is not None
    assert response.error is ErrorCode.REQUEST_TIMED_OUT


def test_static_voters_cannot_be_changed():
    node = driven(0, static_voters(0, 1, 2))
    node.elect(to=1)
    catch_up(node, 1)
    response = remove(node, 2)
    assert response is not None
    assert response.error is ErrorCode.UNSUPPORTED_VERSION


def test_the_wrong_directory_and_the_last_voter_are_not_removed():
    node = leader()
    response = node.ask(RemoveVoterRequest(CLUSTER, ReplicaKey(2, b"z" * 16)))
    assert isinstance(response, ChangeVoterResponse)
    assert response.error is ErrorCode.VOTER_NOT_FOUND
    alone = driven(0, voters_in_log(0), bootstrap=True)
    while not alone.state.startswith("Leader"):
        alone.wait_for_timer()
    last = remove(alone, 0)
    assert last is not None
    assert last.error is ErrorCode.VOTER_NOT_FOUND


def test_a_leader_that_removes_itself_leads_until_that_is_committed_and_does_not_count_itself():
    node = leader()
    assert remove(node, 0) is None
    assert node.state == "Leader 1"
    catch_up(node, 1)
    assert node.state == "Leader 1", "one of the two voters that are left"
    catch_up(node, 2)
    assert last_response(node).error is ErrorCode.NONE
    node.wait(1)
    assert node.state == "Resigned 1"


def test_a_voter_set_that_is_truncated_is_no_longer_in_force():
    """The leader that appended it was lost before the commit: the set reverts with the log."""
    node = leader()
    catch_up(node, 3)
    add(node, 3)
    responds_to_versions(node)
    assert node.node.history.current.ids == [0, 1, 2, 3]
    end = node.node.log.end_offset - 1
    node.ask(VoteRequest(CLUSTER, key(0), 5, key(1), 3, 99, pre_vote=False))
    node.ask(VoteRequest(CLUSTER, key(0), 5, key(1), 3, 99, pre_vote=False))

    node.ask(BeginQuorumEpochRequest(CLUSTER, key(0), 1, 5, (endpoint(1),)))
    node.fetched(1, diverging=OffsetAndEpoch(end, 1))
    assert node.node.history.current.ids == [0, 1, 2]


def test_a_voter_that_lost_its_disk_does_not_count_as_the_voter_that_it_was():
    """Its directory id is another: its fetches are an observer's, and a Vote that names the old one is refused."""
    node = driven(0, THREE, bootstrap=True)
    node.elect(to=1)
    end, epoch = node.node.log.end
    node.ask(FetchRequest(CLUSTER, ReplicaKey(2, b"new directory id"), 1, end, epoch, 0))
    assert node.node.high_watermark is None
    node.ask(FetchRequest(CLUSTER, key(2), 1, end, epoch, 0))
    assert node.node.high_watermark == end


def test_an_update_is_responded_to_at_once_and_changes_the_entry():
    node = leader()
    request = UpdateVoterRequest(CLUSTER, 1, key(2), (endpoint(9),), 0, 1)
    response = node.ask(request)
    assert isinstance(response, ChangeVoterResponse)
    assert response.error is ErrorCode.NONE
    assert node.node.history.current.voters[2].endpoints == (endpoint(9),)
    unknown = node.ask(UpdateVoterRequest(CLUSTER, 1, key(7), (endpoint(7),), 0, 1))
    assert isinstance(unknown, ChangeVoterResponse)
    assert unknown.error is ErrorCode.REQUEST_TIMED_OUT, "the former update is not committed yet"


def test_static_voters_move_into_the_log_once_all_have_said_where_they_are():
    """LeaderState.maybeAppendUpgradedKRaftVersion: one control batch with the version and the voters."""
    node = driven(0, static_voters(0, 1, 2))
    node.elect(to=1)
    catch_up(node, 1)
    node.give(events.UpgradeKRaftVersion("u", 1))
    [refused] = node.of(effects.NotProposed)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "[1, 2]" in refused.message
    for other in (1, 2):
        node.ask(UpdateVoterRequest(CLUSTER, 1, key(other), (endpoint(other),), 0, 1))
    node.give(events.UpgradeKRaftVersion("u", 1))
    assert node.of(effects.Append)[-1].batch.control == (KRaftVersionRecord(1), VotersRecord(THREE))
    assert (node.node.history.version, node.node.history.current) == (1, THREE)


def test_a_static_follower_says_where_it_is_once_to_each_leader():
    node = driven(0, static_voters(0, 1, 2), election=ElectionState(1, 1))
    node.fetched(1)
    node.wait(1900)
    node.fetched(1)
    node.wait(150)
    node.fetched(1)
    sent = [send for send in node.of(effects.Send) if isinstance(send.request, UpdateVoterRequest)]
    assert len(sent) == 1
    node.respond(sent[0], ChangeVoterResponse(leader_id=1, epoch=1))
    for _ in range(3):
        node.wait(1900)
        node.fetched(1)
    sent = [send for send in node.of(effects.Send) if isinstance(send.request, UpdateVoterRequest)]
    assert len(sent) == 1


def test_a_response_of_another_kind_than_the_request_backs_off():
    node = driven(0, THREE, bootstrap=True)
    send = node.last_send(FetchRequest)
    node.respond(send, FetchSnapshotResponse(epoch=0, snapshot=OffsetAndEpoch(1, 1)))
    assert node.state == "Unattached 0"
