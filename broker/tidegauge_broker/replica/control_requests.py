"""The control requests of ZooKeeper mode: LeaderAndIsr and StopReplica as the events that the core takes in.

Contract: a request is fenced by broker epoch and controller epoch; then its partitions are states or stops to the core.
Source: ReplicaManager.becomeLeaderOrFollower and stopReplicas, KafkaApis.isBrokerEpochStale.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.control import ControlHeader, LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import ReplicaStop
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.ports import LoadedLog

_CAUSE = "LeaderAndIsr"


class ControlRequests:
    """See the module.

    Args:
        core: of this broker.

    Attributes:
        controller_epoch: the newest that a request carried.
    """

    def __init__(self, core: BrokerCore) -> None:
        self.controller_epoch = 0
        self._core = core

    def check_controller_epoch(self, header: ControlHeader) -> ErrorCode:
        """Fence a control request, and adopt a newer controller epoch. UpdateMetadata is fenced here too."""
        if header.broker_epoch != -1 and header.broker_epoch < self._core.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if header.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = header.controller_epoch
        return ErrorCode.NONE

    def logs_needed(self, request: LeaderAndIsrRequest) -> list[TopicPartition]:
        """Return the partitions whose log must be opened or created before leader_and_isr may be called."""
        if (
            request.header.controller_epoch < self.controller_epoch
            or -1 < request.header.broker_epoch < self._core.broker_epoch
        ):
            return []
        return self._core.logs_needed(item.state for item in request.partitions)

    def leader_and_isr(
        self,
        request: LeaderAndIsrRequest,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
    ) -> tuple[PartitionsResponse, list[Effect]]:
        """Become leader or follower of partitions. Execute the effects, then respond."""
        error = self.check_controller_epoch(request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), []
        states = [item.state for item in request.partitions]
        may_refuse = request.understands_ineligible
        errors, effects = self._core.take_over(states, loaded, now_ms, cause=_CAUSE, may_refuse=may_refuse)
        return PartitionsResponse(ErrorCode.NONE, errors), effects

    def stop_replica(self, request: StopReplicaRequest) -> tuple[PartitionsResponse, list[Effect]]:
        """Stop replicas, and drop those that are to be deleted. Execute the effects, then respond."""
        error = self.check_controller_epoch(request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), []
        stops = [ReplicaStop(one.topic_partition, one.leader_epoch, one.delete) for one in request.partitions]
        errors, effects = self._core.stop(stops)
        return PartitionsResponse(ErrorCode.NONE, errors), effects
