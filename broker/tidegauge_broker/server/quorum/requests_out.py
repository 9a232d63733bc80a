"""The requests of a quorum's node to others, as messages of Kafka's protocol, and their responses for the node. Pure.

Source: ``KafkaRaftClient``, ``RaftUtil``, ``KafkaNetworkChannel``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import API_VERSIONS, FETCH
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.features import KRAFT_VERSION
from tidegauge.kafka.kraft.messages import (
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from tidegauge_broker.metadata_log.batches import read_batches
from tidegauge_broker.metadata_log.raft_records import to_batch
from tidegauge_broker.server.quorum.requests_in import TOPIC, TOPIC_ID
from tidegauge_controller.raft import messages as raft
from tidegauge_controller.raft.values import Batch, Endpoint, OffsetAndEpoch, ReplicaKey

LOG = logging.getLogger("tidegauge.quorum")
_PRE_VOTE = 2
"""The version of Vote that has pre-votes (KIP-996)."""
_OF_EPOCHS = 12
"""The version of Fetch from which a follower says the epoch of its last record (KIP-595)."""


class Outgoing(NamedTuple):
    """A request as a message; ``at_least`` is the lowest version that can say it."""

    key: int
    message: Any
    at_least: int = 0


def write_request(request: raft.Request) -> Outgoing:
    """Return the message of a node's request.

    Raises:
        TypeError: nodes send no such request.
    """
    match request:
        case raft.VoteRequest():
            return _vote(request)
        case raft.BeginQuorumEpochRequest():
            return _begin(request)
        case raft.EndQuorumEpochRequest():
            return _end(request)
        case raft.FetchRequest():
            return _fetch(request)
        case raft.FetchSnapshotRequest():
            return _fetch_snapshot(request)
        case raft.UpdateVoterRequest():
            return _update(request)
        case raft.ApiVersionsRequest():
            return Outgoing(API_VERSIONS, api_versions.ApiVersionsRequest("tidegauge", "1"))
        case _:
            raise TypeError(f"a node sends no {type(request).__name__}")


def _directory(key: ReplicaKey | None) -> bytes:
    return NIL_UUID if key is None or key.directory_id is None else key.directory_id


def _vote(request: raft.VoteRequest) -> Outgoing:
    data = vote.PartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=_directory(request.candidate),
        voter_directory_id=_directory(request.voter),
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    voter_id = -1 if request.voter is None else request.voter.id
    message = vote.VoteRequest(request.cluster_id, voter_id, [vote.TopicData(TOPIC, [data])])
    return Outgoing(apis.VOTE, message, _PRE_VOTE if request.pre_vote else 0)


def _begin(request: raft.BeginQuorumEpochRequest) -> Outgoing:
    data = begin_quorum_epoch.PartitionData(
        voter_directory_id=_directory(request.voter), leader_id=request.leader_id, leader_epoch=request.epoch
    )
    message = begin_quorum_epoch.BeginQuorumEpochRequest(
        request.cluster_id,
        -1 if request.voter is None else request.voter.id,
        [begin_quorum_epoch.TopicData(TOPIC, [data])],
        [begin_quorum_epoch.LeaderEndpoint(*one) for one in request.endpoints],
    )
    return Outgoing(apis.BEGIN_QUORUM_EPOCH, message)


def _end(request: raft.EndQuorumEpochRequest) -> Outgoing:
    data = end_quorum_epoch.PartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.preferred],
        preferred_candidates=[end_quorum_epoch.ReplicaInfo(key.id, _directory(key)) for key in request.preferred],
    )
    message = end_quorum_epoch.EndQuorumEpochRequest(
        request.cluster_id,
        [end_quorum_epoch.TopicData(TOPIC, [data])],
        [end_quorum_epoch.LeaderEndpoint(*one) for one in request.endpoints],
    )
    return Outgoing(apis.END_QUORUM_EPOCH, message)


def _fetch(request: raft.FetchRequest) -> Outgoing:
    data = fetch.FetchPartition(
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        log_start_offset=-1,
        replica_directory_id=_directory(request.replica),
        high_watermark=raft.UNKNOWN_OFFSET if request.high_watermark is None else request.high_watermark,
    )
    message = fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        replica_state=fetch.ReplicaState(request.replica.id, -1),
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(TOPIC, TOPIC_ID, [data])],
    )
    return Outgoing(FETCH, message, _OF_EPOCHS)


def _fetch_snapshot(request: raft.FetchSnapshotRequest) -> Outgoing:
    data = fetch_snapshot.PartitionSnapshot(
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(request.snapshot.offset, request.snapshot.epoch),
        position=request.position,
        replica_directory_id=_directory(request.replica),
    )
    message = fetch_snapshot.FetchSnapshotRequest(
        request.cluster_id, request.replica.id, request.max_bytes, [fetch_snapshot.TopicSnapshot(TOPIC, [data])]
    )
    return Outgoing(apis.FETCH_SNAPSHOT, message)


def _update(request: raft.UpdateVoterRequest) -> Outgoing:
    message = update_raft_voter.UpdateRaftVoterRequest(
        request.cluster_id,
        request.epoch,
        request.voter.id,
        _directory(request.voter),
        [update_raft_voter.Listener(*one) for one in request.endpoints],
        update_raft_voter.KRaftVersionFeature(request.lowest_version, request.highest_version),
    )
    return Outgoing(apis.UPDATE_RAFT_VOTER, message)


# --- responses


def read_response(request: raft.Request, message: Any, listener: str) -> raft.Response:
    """Return a response as the Raft node takes it.

    Args:
        request: the request.
        message: the response.
        listener: the name of the controllers' listener, for endpoints.

    Raises:
        TidegaugeError: the message is not about ``__cluster_metadata-0``.
    """
    match request:
        case raft.VoteRequest():
            data, common = _of_epoch(message, listener)
            return raft.VoteResponse(granted=data is not None and data.vote_granted, **common)
        case raft.BeginQuorumEpochRequest():
            return raft.BeginQuorumEpochResponse(**_of_epoch(message, listener)[1])
        case raft.EndQuorumEpochRequest():
            return raft.EndQuorumEpochResponse(**_of_epoch(message, listener)[1])
        case raft.FetchRequest():
            return _fetched(message, listener)
        case raft.FetchSnapshotRequest():
            return _snapshot_fetched(request, message, listener)
        case raft.UpdateVoterRequest():
            return _updated(message, listener)
        case raft.ApiVersionsRequest():
            return _versions(message)
        case _:
            raise TypeError(f"a node sends no {type(request).__name__}")


def unsupported(request: raft.Request) -> raft.Response | None:
    """Return the response to a pre-vote without a common version, or None."""
    if isinstance(request, raft.VoteRequest):
        return raft.VoteResponse(error=ErrorCode.UNSUPPORTED_VERSION, epoch=request.epoch)
    return None


def _endpoints(nodes: Sequence[Any], listener: str) -> dict[int, Endpoint]:
    return {one.node_id: Endpoint(listener, one.host, one.port) for one in nodes}


def _known(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _of_epoch(message: Any, listener: str) -> tuple[Any, dict[str, Any]]:
    """Return the partition of a response, and what all quorum responses say."""
    error = ErrorCode.of(message.error_code)
    if error is not ErrorCode.NONE:
        return None, {"top_level_error": error}
    data = _partition(message.topics)
    return data, {
        "error": ErrorCode.of(data.error_code),
        "leader_id": _known(data.leader_id),
        "epoch": data.leader_epoch,
        "endpoints": _endpoints(message.node_endpoints, listener),
    }


def _partition(topics: Sequence[Any]) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "a response is not about __cluster_metadata-0 alone")
    return topics[0].partitions[0]


def _fetched(message: fetch.FetchResponse, listener: str) -> raft.FetchResponse:
    error = ErrorCode.of(message.error_code)
    if error is not ErrorCode.NONE:
        return raft.FetchResponse(top_level_error=error)
    data = _partition(message.responses)
    leader, diverging, snapshot = data.current_leader, data.diverging_epoch, data.snapshot_id
    return raft.FetchResponse(
        error=ErrorCode.of(data.error_code),
        leader_id=None if leader is None else _known(leader.leader_id),
        epoch=-1 if leader is None else leader.leader_epoch,
        endpoints=_endpoints(message.node_endpoints, listener),
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
        diverging=None if not _is_set(diverging) else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        snapshot=None if not _is_set(snapshot) else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        batches=tuple(_batches(_joined(data.records))),
    )


def _joined(records: Any) -> bytes:
    return b"".join(records) if isinstance(records, list) else bytes(records or b"")


def _is_set(value: Any) -> bool:
    return value is not None and value.epoch >= 0 and value.end_offset >= 0


def _batches(data: bytes) -> Iterator[Batch]:
    """Yield the batches of a response with their bytes; nothing behind one that can't be read is taken in."""
    try:
        for read in read_batches(data):
            header = read.header
            raw = data[header.position : header.position + header.size_bytes]
            yield replace(to_batch(read), payload=raw)
    except TidegaugeError as problem:
        LOG.error("Fetched records are not appended from here on: %s", problem.message)  # noqa: TRY400 - it says all


def _snapshot_fetched(
    request: raft.FetchSnapshotRequest, message: fetch_snapshot.FetchSnapshotResponse, listener: str
) -> raft.FetchSnapshotResponse:
    error = ErrorCode.of(message.error_code)
    if error is not ErrorCode.NONE:
        return raft.FetchSnapshotResponse(top_level_error=error, snapshot=request.snapshot)
    data = _partition(message.topics)
    leader, snapshot = data.current_leader, data.snapshot_id
    return raft.FetchSnapshotResponse(
        error=ErrorCode.of(data.error_code),
        leader_id=None if leader is None else _known(leader.leader_id),
        epoch=-1 if leader is None else leader.leader_epoch,
        endpoints=_endpoints(message.node_endpoints, listener),
        snapshot=OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        position=data.position,
        size_bytes=data.size,
        data=_joined(data.unaligned_records),
    )


def _updated(message: update_raft_voter.UpdateRaftVoterResponse, listener: str) -> raft.ChangeVoterResponse:
    leader = message.current_leader
    leader_id = None if leader is None else _known(leader.leader_id)
    endpoints = {}
    if leader is not None and leader_id is not None and leader.host:
        endpoints = {leader_id: Endpoint(listener, leader.host, leader.port)}
    return raft.ChangeVoterResponse(
        error=ErrorCode.of(message.error_code),
        leader_id=leader_id,
        epoch=-1 if leader is None else leader.leader_epoch,
        endpoints=endpoints,
    )


def _versions(message: api_versions.ApiVersionsResponse) -> raft.ApiVersionsResponse:
    ranges = {one.name: (one.min_version, one.max_version) for one in message.supported_features}
    lowest, highest = ranges.get(KRAFT_VERSION, (0, 0))
    return raft.ApiVersionsResponse(
        error=ErrorCode.of(message.error_code), lowest_version=lowest, highest_version=highest
    )
