"""DescribeQuorum (KIP-642, KIP-836): the leader's view of every replica's log."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.core import Core
from tidegauge_controller.raft.leading import own_high_watermark
from tidegauge_controller.raft.messages import UNKNOWN_OFFSET, DescribeQuorumResponse, ReplicaStatus
from tidegauge_controller.raft.states import Leader, Progress


def describe(core: Core) -> DescribeQuorumResponse:
    """Return the quorum as its leader sees it; NOT_LEADER_OR_FOLLOWER anywhere else.

    Source: KafkaRaftClient.handleDescribeQuorumRequest, LeaderState.describeReplicaState.
    """
    leader = core.state
    if not isinstance(leader, Leader):
        return DescribeQuorumResponse(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader_id=core.state.leader_id,
            epoch=core.state.epoch,
            endpoints=core.leader_endpoints(),
        )
    return DescribeQuorumResponse(
        leader_id=core.me.id,
        epoch=leader.epoch,
        endpoints=core.leader_endpoints(),
        high_watermark=own_high_watermark(core, leader),
        voters=tuple(_status(core, progress) for progress in leader.voters.values()),
        observers=tuple(_status(core, progress) for progress in leader.observers.values()),
        nodes={voter_id: voter.endpoints for voter_id, voter in core.voters.voters.items()},
    )


def _status(core: Core, progress: Progress) -> ReplicaStatus:
    if progress.key.id == core.me.id:
        return ReplicaStatus(progress.key, core.log.end_offset, core.now_ms, core.now_ms)
    end = UNKNOWN_OFFSET if progress.end_offset is None else progress.end_offset
    return ReplicaStatus(progress.key, end, progress.last_fetch_ms, progress.last_caught_up_ms)
