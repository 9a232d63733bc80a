"""Requests and responses of a quorum's node, from its own values to Kafka's bytes and back (KIP-595, KIP-853)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import API_VERSIONS, FETCH
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import api_versions, fetch, fetch_snapshot, vote
from tidegauge_broker.metadata_log.batches import data_batch
from tidegauge_broker.server.quorum.requests_in import READERS, Read, Refused, read_request, write_response
from tidegauge_broker.server.quorum.requests_out import read_response, unsupported, write_request
from tidegauge_controller.raft import messages as raft
from tidegauge_controller.raft.values import Endpoint, OffsetAndEpoch, ReplicaKey

ME, OTHER = ReplicaKey(3000, bytes([1]) * 16), ReplicaKey(3001, bytes([2]) * 16)
AT = Endpoint("CONTROLLER", "127.0.0.1", 9393)
COMMON: dict[str, Any] = {"leader_id": 3001, "epoch": 7, "endpoints": {3001: AT}}
REQUESTS: list[raft.Request] = [
    raft.VoteRequest("c", OTHER, 7, ME, 6, 100, pre_vote=True),
    raft.VoteRequest("c", OTHER, 7, ME, 6, 100, pre_vote=False),
    raft.BeginQuorumEpochRequest("c", OTHER, 3000, 7, (AT,)),
    raft.EndQuorumEpochRequest("c", 3000, 7, (OTHER, ME), (AT,)),
    raft.FetchRequest("c", ME, 7, 100, 6, 500, 99, 4096),
    raft.FetchRequest("c", ME, 7, 100, 6, 500, -1, 4096),
    raft.FetchSnapshotRequest("c", ME, 7, OffsetAndEpoch(100, 6), 10, 4096),
    raft.UpdateVoterRequest("c", 7, ME, (AT,), 0, 1),
]
RESPONSES: list[tuple[int, raft.Request, raft.Response]] = [
    (apis.VOTE, REQUESTS[0], raft.VoteResponse(granted=True, **COMMON)),
    (apis.VOTE, REQUESTS[0], raft.VoteResponse(top_level_error=ErrorCode.INCONSISTENT_CLUSTER_ID)),
    (apis.BEGIN_QUORUM_EPOCH, REQUESTS[2], raft.BeginQuorumEpochResponse(error=ErrorCode.INVALID_VOTER_KEY, **COMMON)),
    (apis.END_QUORUM_EPOCH, REQUESTS[3], raft.EndQuorumEpochResponse(**COMMON)),
    (FETCH, REQUESTS[4], raft.FetchResponse(high_watermark=90, log_start_offset=5, **COMMON)),
    (FETCH, REQUESTS[4], raft.FetchResponse(diverging=OffsetAndEpoch(50, 4), **COMMON)),
    (FETCH, REQUESTS[4], raft.FetchResponse(snapshot=OffsetAndEpoch(50, 4), **COMMON)),
    (FETCH, REQUESTS[4], raft.FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=3)),
    (FETCH, REQUESTS[4], raft.FetchResponse(top_level_error=ErrorCode.INVALID_REQUEST)),
    (apis.FETCH_SNAPSHOT, REQUESTS[6], raft.FetchSnapshotResponse(snapshot=OffsetAndEpoch(9, 6), position=1, **COMMON)),
    (apis.UPDATE_RAFT_VOTER, REQUESTS[7], raft.ChangeVoterResponse(error=ErrorCode.VOTER_NOT_FOUND, **COMMON)),
]


def over_the_wire(key: int, message: Any, *, response: bool = False, version: int | None = None) -> Any:
    """A message after it was written and read in the highest version, or another one."""
    at = KRAFT_APIS[key].last if version is None else version
    codec = codec_of(key, at, KRAFT_PROTOCOL)
    data = memoryview(joined(codec.encode(message)))
    return (codec.decode_response(data) if response else codec.decode_request(data))[0]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_arrives_as_it_was_sent(request_: raft.Request):
    """All that a node says of itself and of the voter that it asks is on the wire."""
    out = write_request(request_)
    assert read_request(out.key, KRAFT_APIS[out.key].last, over_the_wire(out.key, out.message)) == request_


@pytest.mark.parametrize(("key", "request_", "response"), RESPONSES, ids=lambda one: type(one).__name__)
def test_a_response_arrives_as_it_was_given(key: int, request_: raft.Request, response: raft.Response):
    """Errors, epoch, leader and its endpoint, and what the API adds."""
    message = over_the_wire(key, write_response(key, response), response=True)
    assert read_response(request_, message, "CONTROLLER") == response


def test_only_a_pre_vote_needs_a_version_that_has_it():
    """KIP-996: a peer without version 2 of Vote would take a pre-vote for a vote; it is UNSUPPORTED_VERSION instead."""
    assert [write_request(one).at_least for one in REQUESTS[:2]] == [2, 0]
    response = unsupported(REQUESTS[0])
    assert response is not None
    assert (response.error, response.epoch) == (ErrorCode.UNSUPPORTED_VERSION, 7)
    assert unsupported(REQUESTS[4]) is None


def test_fetched_batches_keep_their_bytes():
    """Byte-equal logs: a follower appends what the leader sent, whatever its own encoder would write."""
    data = data_batch([b"one", b"two"], 100, 6, 5) + data_batch([b"three"], 102, 7, 6)
    message = write_response(FETCH, raft.FetchResponse(**COMMON), Read(data))
    found = read_response(REQUESTS[4], over_the_wire(FETCH, message, response=True), "CONTROLLER")
    assert isinstance(found, raft.FetchResponse)
    assert b"".join(batch.payload for batch in found.batches) == data  # type: ignore[misc]
    assert [(one.base_offset, one.end_offset, one.epoch) for one in found.batches] == [(100, 102, 6), (102, 103, 7)]


def test_nothing_behind_a_damaged_batch_is_taken_in():
    """KafkaRaftClient.appendAsFollower logs a CRC that is wrong, and the fetch is repeated."""
    data = bytearray(data_batch([b"one"], 100, 6, 5) + data_batch([b"two"], 101, 6, 5) + data_batch([b"x"], 102, 6, 5))
    data[len(data) // 2] ^= 1
    message = write_response(FETCH, raft.FetchResponse(**COMMON), Read(bytes(data)))
    found = read_response(REQUESTS[4], message, "CONTROLLER")
    assert isinstance(found, raft.FetchResponse)
    assert [one.base_offset for one in found.batches] == [100]


def test_a_slice_of_a_snapshot_has_its_bytes_and_the_size_of_the_whole():
    """KIP-630."""
    response = raft.FetchSnapshotResponse(snapshot=OffsetAndEpoch(100, 6), position=10, **COMMON)
    message = over_the_wire(
        apis.FETCH_SNAPSHOT, write_response(apis.FETCH_SNAPSHOT, response, Read(b"abc", 13)), response=True
    )
    found = read_response(REQUESTS[6], message, "CONTROLLER")
    assert found == dataclasses.replace(response, size_bytes=13, data=b"abc")


def test_what_could_not_be_read_is_the_error_of_the_partition():
    response = raft.FetchSnapshotResponse(snapshot=OffsetAndEpoch(100, 6), **COMMON)
    message = write_response(apis.FETCH_SNAPSHOT, response, Read(error=ErrorCode.SNAPSHOT_NOT_FOUND))
    assert message.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND


@pytest.mark.parametrize("key", [apis.VOTE, apis.BEGIN_QUORUM_EPOCH, apis.END_QUORUM_EPOCH, FETCH])
def test_another_topic_is_an_invalid_request(key: int):
    """RaftUtil.hasValidTopicPartition: refused at the top level, before the node sees it."""
    message = KRAFT_PROTOCOL.message_class(key, response=False)(topics=[])
    with pytest.raises(Refused) as refused:
        read_request(key, KRAFT_APIS[key].last, message)
    assert refused.value.response.error_code == ErrorCode.INVALID_REQUEST


def test_a_snapshot_of_another_topic_is_unknown():
    """KafkaRaftClient.handleFetchSnapshotRequest: UNKNOWN_TOPIC_OR_PARTITION in the partition."""
    partition = fetch_snapshot.PartitionSnapshot(0, 1, fetch_snapshot.SnapshotId(1, 1), 0)
    message = fetch_snapshot.FetchSnapshotRequest(topics=[fetch_snapshot.TopicSnapshot("other", [partition])])
    with pytest.raises(Refused) as refused:
        read_request(apis.FETCH_SNAPSHOT, 1, message)
    response = over_the_wire(apis.FETCH_SNAPSHOT, refused.value.response, response=True)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_vote_before_version_1_names_no_voter_and_no_directory():
    """Kafka 3.8 and before: keys are ids alone."""
    message = write_request(REQUESTS[1]).message
    found = read_request(apis.VOTE, 0, over_the_wire(apis.VOTE, message, version=0))
    assert isinstance(found, raft.VoteRequest)
    assert (found.voter, found.candidate) == (None, ReplicaKey(3000))


def test_the_range_of_kraft_versions_is_a_supported_feature():
    """AddVoterHandler asks the new voter for it; a software without the feature supports static voters alone."""
    feature = api_versions.SupportedFeatureKey("kraft.version", 0, 1)
    for features, expected in (([feature], (0, 1)), ([], (0, 0))):
        message = api_versions.ApiVersionsResponse(supported_features=features)
        found = read_response(raft.ApiVersionsRequest(), message, "CONTROLLER")
        assert isinstance(found, raft.ApiVersionsResponse)
        assert (found.lowest_version, found.highest_version) == expected
    assert write_request(raft.ApiVersionsRequest()).key == API_VERSIONS


def test_every_api_of_the_raft_node_is_read():
    """A row of the table that no reader has would be advertised by no one and served by no one."""
    assert set(READERS) <= set(KRAFT_APIS)
    assert vote.VoteRequest in {KRAFT_PROTOCOL.message_class(key, response=False) for key in READERS}
    assert fetch.FetchRequest in {KRAFT_PROTOCOL.message_class(key, response=False) for key in READERS}
