"""The control requests of ZooKeeper mode: each is fenced, and becomes a change of replicas (``replica_changes``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial

from tidegauge.control import ControlHeader, LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.settings import Values
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica import control_requests as requests
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.server.replication.core_steps import CoreSteps
from tidegauge_broker.server.replication.replica_changes import Errors, Loaded, ReplicaChanges, portions


class ControlRequests:
    """Serves the control requests of ZooKeeper mode.

    Args:
        core: of this broker.
        changes: carries out the changes of replicas.
        steps: carries out the core's decisions.
        now_ms: a clock that never goes back.
    """

    def __init__(self, core: BrokerCore, changes: ReplicaChanges, steps: CoreSteps, now_ms: Callable[[], int]) -> None:
        self._requests = requests.ControlRequests(core)
        self._changes = changes
        self._steps = steps
        self._now_ms = now_ms

    def fence(self, request: str, header: ControlHeader) -> ErrorCode:
        """Fence a control request that is no step of the core, and report its refusal."""
        error, effects = self._steps.decided(lambda: self._requests.fence(request, header))
        self._steps.execute(effects)
        return error

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        """Become leader or follower of partitions.

        Args:
            request: the controller's.
            values_of: returns a topic's settings.
        """
        return await self._changes.in_turn(lambda: self._leader_and_isr(request, values_of))

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        errors: Errors = {}
        owed: list[PartitionLog] = []
        whole = ErrorCode.NONE
        for items in portions(request.partitions):
            part = replace(request, partitions=items)

            def decide(loaded: Loaded, part: LeaderAndIsrRequest = part) -> tuple[Errors, list[Effect]]:
                nonlocal whole
                response, effects = self._requests.leader_and_isr(part, loaded, self._now_ms())
                whole = response.error
                return response.partitions, effects

            new = {item.state.topic_partition for item in items if item.is_new}
            states = [item.state for item in items]
            of_part, owed_by_part = await self._changes.take_over(
                states, self._requests.logs_needed(part), new, values_of, decide
            )
            errors |= of_part
            owed += owed_by_part
            if whole is not ErrorCode.NONE:  # fenced: another controller has been heard of
                break
            await asyncio.sleep(0)
        return PartitionsResponse(
            whole, await self._changes.settle([item.state for item in request.partitions], errors, owed)
        )

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas, and perhaps drop them."""
        return await self._changes.in_turn(lambda: self._stop_replica(request))

    async def _stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        whole = ErrorCode.NONE

        def decide(part: StopReplicaRequest) -> tuple[Errors, list[Effect]]:
            nonlocal whole
            response, effects = self._requests.stop_replica(part)
            whole = response.error
            return response.partitions, effects

        def decisions() -> Iterator[Callable[[], tuple[Errors, list[Effect]]]]:
            for items in portions(request.partitions):
                if whole is ErrorCode.NONE:  # else fenced: another controller has been heard of
                    yield partial(decide, replace(request, partitions=items))

        errors = await self._changes.stop(decisions())
        return PartitionsResponse(whole, errors)
