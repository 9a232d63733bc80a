"""Requests of Kafka's protocol to a quorum's node, as the Raft node takes them, and its responses as messages. Pure.

The metadata log has one partition, ``__cluster_metadata-0``; a request that names another one is refused here.
Source: ``KafkaRaftClient.handleRequest``, ``RaftUtil``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tidegauge.settings.model import LONG_MAX
from tidegauge_controller.raft import messages as raft
from tidegauge_controller.raft.values import Endpoint, OffsetAndEpoch, ReplicaKey

NOT_HOSTED = "This server does not host this topic-partition."
_WITH_MESSAGES = 2
"""The version of DescribeQuorum from which errors have sentences."""
TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"
LONGEST_WAIT_MS = 30_000
"""Upper bound on how long a Fetch is parked; nodes of a quorum ask for 500 ms."""
_WITH_IDS = 13
"""The version of Fetch from which topics have ids."""


class Refused(Exception):
    """The request names another topic or partition; ``response`` is the message to respond with."""

    def __init__(self, response: Any) -> None:
        super().__init__("the request is not about __cluster_metadata-0")
        self.response = response


class Read(NamedTuple):
    """The data that the shell has read for a response.

    Attributes:
        records: batches of the log, or bytes of a snapshot.
        size_bytes: the size of the snapshot.
        error: why nothing could be read.
    """

    records: bytes = b""
    size_bytes: int = 0
    error: ErrorCode = ErrorCode.NONE


NOTHING_READ = Read()


def key_of(node_id: int, directory: bytes = NIL_UUID) -> ReplicaKey:
    """Return a replica's key; the zero UUID stands for an unknown directory."""
    return ReplicaKey(node_id, None if directory == NIL_UUID else bytes(directory))


def _voter(message: Any, partition: Any) -> ReplicaKey | None:
    return None if message.voter_id < 0 else key_of(message.voter_id, partition.voter_directory_id)


def _endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listeners)


def _only_partition(topics: Sequence[Any]) -> Any:
    """Return a request's partition, if it names only the metadata's, by name."""
    if len(topics) != 1 or topics[0].topic_name != TOPIC or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if partition.partition_index == 0 else None


def read_request(key: int, version: int, message: Any) -> raft.Request:
    """Return a request as the Raft node takes it.

    Args:
        key: the API's; one of ``READERS``.
        version: of the message.
        message: the request.

    Raises:
        Refused: it names another topic or partition.
    """
    return READERS[key](version, message)


def _read_vote(_version: int, message: vote.VoteRequest) -> raft.Request:
    partition = _only_partition(message.topics)
    if partition is None:
        raise Refused(vote.VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
    return raft.VoteRequest(
        message.cluster_id,
        _voter(message, partition),
        partition.replica_epoch,
        key_of(partition.replica_id, partition.replica_directory_id),
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
    )


def _read_begin(_version: int, message: begin_quorum_epoch.BeginQuorumEpochRequest) -> raft.Request:
    partition = _only_partition(message.topics)
    if partition is None:
        raise Refused(begin_quorum_epoch.BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
    return raft.BeginQuorumEpochRequest(
        message.cluster_id,
        _voter(message, partition),
        partition.leader_id,
        partition.leader_epoch,
        _endpoints(message.leader_endpoints),
    )


def _read_end(version: int, message: end_quorum_epoch.EndQuorumEpochRequest) -> raft.Request:
    partition = _only_partition(message.topics)
    if partition is None:
        raise Refused(end_quorum_epoch.EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
    if version == 0:
        preferred = tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)
    else:
        candidates = partition.preferred_candidates
        preferred = tuple(key_of(one.candidate_id, one.candidate_directory_id) for one in candidates)
    return raft.EndQuorumEpochRequest(
        message.cluster_id,
        partition.leader_id,
        partition.leader_epoch,
        preferred,
        _endpoints(message.leader_endpoints),
    )


def _read_fetch(version: int, message: fetch.FetchRequest) -> raft.Request:
    topics = message.topics
    is_it = len(topics) == 1 and len(topics[0].partitions) == 1 and topics[0].partitions[0].partition == 0
    is_named = is_it and (bytes(topics[0].topic_id) == TOPIC_ID if version >= _WITH_IDS else topics[0].topic == TOPIC)
    if not is_named:
        raise Refused(fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    partition = topics[0].partitions[0]
    state = message.replica_state
    replica_id = message.replica_id if state is None else state.replica_id
    knows = partition.high_watermark != LONG_MAX
    return raft.FetchRequest(
        message.cluster_id,
        key_of(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        min(message.max_wait_ms, LONGEST_WAIT_MS),
        partition.high_watermark if knows else None,
        message.max_bytes,
    )


def _read_snapshot(_version: int, message: fetch_snapshot.FetchSnapshotRequest) -> raft.Request:
    topics = message.topics
    is_it = len(topics) == 1 and topics[0].name == TOPIC and len(topics[0].partitions) == 1
    if not is_it or topics[0].partitions[0].partition != 0:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(
            fetch_snapshot.FetchSnapshotResponse(
                topics=[
                    fetch_snapshot.ResponseTopicSnapshot(
                        topic.name,
                        [
                            fetch_snapshot.ResponsePartitionSnapshot(
                                index=one.partition,
                                error_code=unknown,
                                snapshot_id=one.snapshot_id,
                                unaligned_records=b"",
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in topics
                ]
            )
        )
    partition = topics[0].partitions[0]
    assert partition.snapshot_id is not None  # not nullable on the wire
    return raft.FetchSnapshotRequest(
        message.cluster_id,
        key_of(message.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        message.max_bytes,
    )


def _read_describe(version: int, message: describe_quorum.DescribeQuorumRequest) -> raft.Request:
    if _only_partition(message.topics) is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics = [
            describe_quorum.ResponseTopicData(
                topic.topic_name,
                [
                    describe_quorum.ResponsePartitionData(
                        one.partition_index, unknown, NOT_HOSTED if version >= _WITH_MESSAGES else None
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        raise Refused(describe_quorum.DescribeQuorumResponse(topics=topics))
    return raft.DescribeQuorumRequest()


def _read_add(_version: int, message: add_raft_voter.AddRaftVoterRequest) -> raft.Request:
    return raft.AddVoterRequest(
        message.cluster_id,
        key_of(message.voter_id, message.voter_directory_id),
        _endpoints(message.listeners),
        message.timeout_ms,
        message.ack_when_committed,
    )


def _read_remove(_version: int, message: remove_raft_voter.RemoveRaftVoterRequest) -> raft.Request:
    return raft.RemoveVoterRequest(message.cluster_id, key_of(message.voter_id, message.voter_directory_id))


def _read_update(_version: int, message: update_raft_voter.UpdateRaftVoterRequest) -> raft.Request:
    feature = message.kraft_version_feature
    assert feature is not None  # not nullable on the wire
    return raft.UpdateVoterRequest(
        message.cluster_id,
        message.current_leader_epoch,
        key_of(message.voter_id, message.voter_directory_id),
        _endpoints(message.listeners),
        feature.min_supported_version,
        feature.max_supported_version,
    )


READERS: Mapping[int, Callable[[int, Any], raft.Request]] = {
    apis.VOTE: _read_vote,
    apis.BEGIN_QUORUM_EPOCH: _read_begin,
    apis.END_QUORUM_EPOCH: _read_end,
    FETCH: _read_fetch,
    apis.FETCH_SNAPSHOT: _read_snapshot,
    apis.DESCRIBE_QUORUM: _read_describe,
    apis.ADD_RAFT_VOTER: _read_add,
    apis.REMOVE_RAFT_VOTER: _read_remove,
    apis.UPDATE_RAFT_VOTER: _read_update,
}
"""The readers, by the API's key."""


# --- responses


def write_response(key: int, response: raft.Response, read: Read = NOTHING_READ) -> Any:
    """Return the message of a node's response.

    Args:
        key: the API's; one of ``READERS``.
        response: the node's.
        read: records or bytes of a snapshot, which the node leaves out.
    """
    return WRITERS[key](response, read)


def _leader(response: raft.QuorumResponse) -> int:
    return -1 if response.leader_id is None else response.leader_id


def _epoch_response(module: Any, names: tuple[str, str], response: Any, **more: Any) -> Any:
    """Return the response to a Vote, BeginQuorumEpoch or EndQuorumEpoch; only names differ."""
    topics = []
    if response.top_level_error is ErrorCode.NONE:
        data = module.ResponsePartitionData(
            error_code=response.error, leader_id=_leader(response), leader_epoch=response.epoch, **more
        )
        topics = [module.ResponseTopicData(TOPIC, [data])]
    nodes = [getattr(module, names[1])(one, at.host, at.port) for one, at in response.endpoints.items()]
    return getattr(module, names[0])(error_code=response.top_level_error, topics=topics, node_endpoints=nodes)


def _write_vote(response: raft.VoteResponse, _read: Read) -> Any:
    return _epoch_response(vote, ("VoteResponse", "NodeEndpoint"), response, vote_granted=response.granted)


def _write_begin(response: raft.BeginQuorumEpochResponse, _read: Read) -> Any:
    return _epoch_response(begin_quorum_epoch, ("BeginQuorumEpochResponse", "NodeEndpoint"), response)


def _write_end(response: raft.EndQuorumEpochResponse, _read: Read) -> Any:
    return _epoch_response(end_quorum_epoch, ("EndQuorumEpochResponse", "NodeEndpoint"), response)


def _write_fetch(response: raft.FetchResponse, read: Read) -> Any:
    if response.top_level_error is not ErrorCode.NONE:
        return fetch.FetchResponse(error_code=response.top_level_error)
    diverging, snapshot = response.diverging, response.snapshot
    data = fetch.PartitionData(
        error_code=response.error if read.error is ErrorCode.NONE else read.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging_epoch=None if diverging is None else fetch.EpochEndOffset(diverging.epoch, diverging.offset),
        current_leader=fetch.LeaderIdAndEpoch(_leader(response), response.epoch),
        snapshot_id=None if snapshot is None else fetch.SnapshotId(snapshot.offset, snapshot.epoch),
        records=read.records,
    )
    nodes = [fetch.NodeEndpoint(one, at.host, at.port) for one, at in response.endpoints.items()]
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(TOPIC, TOPIC_ID, [data])], node_endpoints=nodes)


def _write_snapshot(response: raft.FetchSnapshotResponse, read: Read) -> Any:
    if response.top_level_error is not ErrorCode.NONE:
        return fetch_snapshot.FetchSnapshotResponse(error_code=response.top_level_error)
    data = fetch_snapshot.ResponsePartitionSnapshot(
        error_code=response.error if read.error is ErrorCode.NONE else read.error,
        snapshot_id=fetch_snapshot.SnapshotId(response.snapshot.offset, response.snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(_leader(response), response.epoch),
        size=read.size_bytes,
        position=response.position,
        unaligned_records=read.records,
    )
    nodes = [fetch_snapshot.NodeEndpoint(one, at.host, at.port) for one, at in response.endpoints.items()]
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.ResponseTopicSnapshot(TOPIC, [data])], node_endpoints=nodes
    )


def _write_describe(response: raft.DescribeQuorumResponse, _read: Read) -> Any:
    is_error = response.error is not ErrorCode.NONE
    data = describe_quorum.ResponsePartitionData(
        error_code=response.error,
        error_message=response.error.name if is_error else None,
        leader_id=-1 if is_error else _leader(response),
        leader_epoch=-1 if is_error else response.epoch,
        high_watermark=response.high_watermark,
        current_voters=[_replica_state(one) for one in response.voters],
        observers=[_replica_state(one) for one in response.observers],
    )
    return describe_quorum.DescribeQuorumResponse(
        topics=[describe_quorum.ResponseTopicData(TOPIC, [data])],
        nodes=[
            describe_quorum.Node(node_id, [describe_quorum.Listener(*endpoint) for endpoint in endpoints])
            for node_id, endpoints in response.nodes.items()
        ],
    )


def _replica_state(status: raft.ReplicaStatus) -> describe_quorum.ReplicaState:
    return describe_quorum.ReplicaState(
        status.key.id,
        status.key.directory_id or NIL_UUID,
        status.end_offset,
        status.last_fetch_ms,
        status.last_caught_up_ms,
    )


def _error_of(response: raft.QuorumResponse) -> ErrorCode:
    return response.error if response.top_level_error is ErrorCode.NONE else response.top_level_error


def _write_add(response: raft.ChangeVoterResponse, _read: Read) -> Any:
    return add_raft_voter.AddRaftVoterResponse(error_code=_error_of(response), error_message=response.message)


def _write_remove(response: raft.ChangeVoterResponse, _read: Read) -> Any:
    return remove_raft_voter.RemoveRaftVoterResponse(error_code=_error_of(response), error_message=response.message)


def _write_update(response: raft.ChangeVoterResponse, _read: Read) -> Any:
    at = response.endpoints.get(_leader(response))
    leader = update_raft_voter.CurrentLeader(
        _leader(response), response.epoch, "" if at is None else at.host, 0 if at is None else at.port
    )
    return update_raft_voter.UpdateRaftVoterResponse(error_code=_error_of(response), current_leader=leader)


WRITERS: Mapping[int, Callable[[Any, Read], Any]] = {
    apis.VOTE: _write_vote,
    apis.BEGIN_QUORUM_EPOCH: _write_begin,
    apis.END_QUORUM_EPOCH: _write_end,
    FETCH: _write_fetch,
    apis.FETCH_SNAPSHOT: _write_snapshot,
    apis.DESCRIBE_QUORUM: _write_describe,
    apis.ADD_RAFT_VOTER: _write_add,
    apis.REMOVE_RAFT_VOTER: _write_remove,
    apis.UPDATE_RAFT_VOTER: _write_update,
}
"""The writers, by the API's key."""
