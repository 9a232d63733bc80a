"""Requests that name another cluster are refused before all other checks (KafkaRaftClient.hasValidClusterId)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoterResponse,
    DescribeQuorumRequest,
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


def refusal(core: Core, request: Request) -> Response | None:
    """Return the response to another cluster's request; None: not another's."""
    if isinstance(request, DescribeQuorumRequest | ApiVersionsRequest):
        return None
    if request.cluster_id is None or request.cluster_id == core.config.cluster_id:
        return None
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    match request:
        case VoteRequest():
            return VoteResponse(top_level_error=error)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(top_level_error=error)
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(top_level_error=error)
        case FetchRequest():
            return FetchResponse(top_level_error=error)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(top_level_error=error, snapshot=request.snapshot)
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest():
            message = f"The request is for cluster {request.cluster_id}; this is cluster {core.config.cluster_id}."
            return ChangeVoterResponse(top_level_error=error, error=error, message=message)
