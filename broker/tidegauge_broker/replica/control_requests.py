"""The control requests of ZooKeeper mode: LeaderAndIsr and StopReplica as the events that the core takes in.

Contract: a request is fenced by broker epoch and controller epoch; then its partitions are states or stops to the core.
Source: ReplicaManager.becomeLeaderOrFollower and stopReplicas, KafkaApis.isBrokerEpochStale.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.control import ControlHeader, LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect, LogLine, Note
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.refusals import LEADER_AND_ISR, STOP_REPLICA, Refusal


class ControlRequests:
    """Control requests of the controller to one core.

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

    def fence(self, request: str, header: ControlHeader) -> tuple[ErrorCode, list[Effect]]:
        """Fence a control request by its name; return the error, and what reports it."""
        error = self.check_controller_epoch(header)
        if error is ErrorCode.NONE or not self._core.settings.emits_diagnostics:
            return error, []
        is_controller = error is ErrorCode.STALE_CONTROLLER_EPOCH
        known = (
            f"controller epoch {self.controller_epoch} is known"
            if is_controller
            else f"this broker is registered with broker epoch {self._core.broker_epoch}"
        )
        return error, _whole_request(request, header, error, known)

    def logs_needed(self, request: LeaderAndIsrRequest) -> list[TopicPartition]:
        """Return the partitions whose logs leader_and_isr needs, opened or created."""
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
        error, out = self.fence(LEADER_AND_ISR, request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), out

        def report(state: PartitionState, outcome: ErrorCode, effects: list[Effect]) -> None:
            self._report(request.header, state, outcome, now_ms, effects)

        states = [item.state for item in request.partitions]
        may_refuse = request.understands_ineligible
        errors, effects = self._core.take_over(
            states, loaded, now_ms, cause=LEADER_AND_ISR, may_refuse=may_refuse, report=report
        )
        return PartitionsResponse(ErrorCode.NONE, errors), effects

    def _report(
        self, header: ControlHeader, state: PartitionState, error: ErrorCode, now_ms: int, out: list[Effect]
    ) -> None:
        """Report the refusal of a partition's state, or that the refusals of before have ended."""
        if not self._core.settings.emits_diagnostics:
            return
        at, refusals = state.topic_partition, self._core.hosted.refusals
        if error is ErrorCode.NONE:
            refusals.accepted(at, LEADER_AND_ISR)
            return
        partition = self._core.hosted.by_name.get(at)
        if partition is not None and partition.leader_epoch == state.leader_epoch:
            return  # a repetition (refusals.py, rule 3)
        own = "" if partition is None else partition.topic_id
        if error is ErrorCode.INCONSISTENT_TOPIC_ID and own:
            level = "error"
            text = (
                f"[Broker id={self._core.broker_id}] Topic ID in memory: {own} does not match the topic ID for "
                f"partition {at} received: {state.topic_id}."
            )
        else:
            level = "warning"
            text = (
                f"[Broker id={self._core.broker_id}] Refused LeaderAndIsr from controller {header.controller_id} epoch "
                f"{header.controller_epoch} for partition {at}, leader epoch {state.leader_epoch}: {error.name}"
            )
        refusal = Refusal(at, LEADER_AND_ISR, error, state.leader_epoch, state.topic_id, own)
        refusals.refused(refusal, now_ms, level, text, out)

    def stop_replica(self, request: StopReplicaRequest) -> tuple[PartitionsResponse, list[Effect]]:
        """Stop replicas, and drop those that are to be deleted. Execute the effects, then respond."""
        error, out = self.fence(STOP_REPLICA, request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), out
        stops = [ReplicaStop(one.topic_partition, one.leader_epoch, one.delete) for one in request.partitions]
        errors, effects = self._core.stop(stops, report=self._report_stop)
        return PartitionsResponse(ErrorCode.NONE, errors), effects

    def _report_stop(self, at: TopicPartition, outcome: ErrorCode, out: list[Effect]) -> None:
        """Report that a replica was not stopped."""
        if outcome is not ErrorCode.NONE and self._core.settings.emits_diagnostics:
            out.append(Note("refusal", at, STOP_REPLICA, {"request": STOP_REPLICA, "error": outcome.name}))
            text = f"[Broker id={self._core.broker_id}] Refused StopReplica for partition {at}: {outcome.name}"
            out.append(LogLine("warning", text, at))


def _whole_request(request: str, header: ControlHeader, error: ErrorCode, known: str) -> list[Effect]:
    """Return the event and log line of a fenced control request.

    Args:
        request: its name.
        header: of the request.
        error: STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH.
        known: the newer epoch that this broker knows, in words.
    """
    fields = {"request": request, "error": error.name}
    text = (
        f"Refused {request} of controller {header.controller_id}, controller epoch {header.controller_epoch}, for "
        f"broker epoch {header.broker_epoch} with {error.name}: {known}"
    )
    return [Note("refusal", None, request, fields), LogLine("warning", text)]
