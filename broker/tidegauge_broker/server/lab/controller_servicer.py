"""The Lab service of a controller: faults, and holds and rounds of its fetches; what brokers alone have is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio

from tidegauge.errors import TidegaugeError
from tidegauge.faults.messages import describe_fault
from tidegauge.faults.table import BY_MESSAGE
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.held_fetches import METADATA, HeldFetches
from tidegauge_broker.server.lab.metadata_round import metadata_round
from tidegauge_broker.server.quorum.node_lab import Note

LOG = logging.getLogger("tidegauge.lab")
Context = grpc.aio.ServicerContext[Any, Any]


class ControllerLabServicer(lab_service_pb2_grpc.LabServiceServicer):
    """The methods of ``lab_service.proto`` that a controller has.

    Args:
        node_id: the controller's.
        faults: those in force.
        held: the hold of its fetches.
        node_at: returns the controller that listens at an address.
        note: writes a fault into its event log.
    """

    def __init__(
        self, node_id: int, faults: FaultTable, held: HeldFetches, node_at: Callable[[str], int | None], note: Note
    ) -> None:
        self._node_id = node_id
        self._faults = faults
        self._held = held
        self._node_at = node_at
        self._write = note

    async def HoldFetch(self, request: lab_pb2.HoldFetchRequest, context: Context) -> lab_pb2.HoldFetchResponse:
        """Hold or release the node's fetches of the metadata log."""
        at = await self._checked(request.partition, context)
        changed = self._held.release() if request.release else await self._held.hold()
        if changed:
            action = "release-fetch" if request.release else "hold-fetch"
            self._note(action, {"topic": at.topic, "partition": at.partition})
        return lab_pb2.HoldFetchResponse(changed=changed)

    async def StepFetch(self, request: lab_pb2.StepFetchRequest, context: Context) -> lab_pb2.StepFetchResponse:
        """Let the node do one round."""
        at = await self._checked(request.partition, context)
        until = "request" if request.until == lab_pb2.STEP_UNTIL_REQUEST else "answer"
        try:
            response = await metadata_round(self._held, request.until, self._node_at)
        except TidegaugeError as problem:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"controller {self._node_id} can't be stepped: {problem.message}"
            )
        self._note("step-fetch", {"topic": at.topic, "partition": at.partition, "until": until})
        return response

    async def _checked(self, partition: lab_pb2.LabPartition, context: Context) -> TopicPartition:
        """Return a request's partition; it must be the metadata log."""
        at = TopicPartition(partition.topic, partition.partition)
        if at != METADATA:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"controller {self._node_id} replicates {METADATA} alone, not {at}",
            )
        return at

    async def SetFault(self, request: lab_pb2.SetFaultRequest, context: Context) -> lab_pb2.SetFaultResponse:
        """Put a fault in force."""
        try:
            fault = self._faults.set(request.fault)
        except TidegaugeError as problem:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem.message)
        text = describe_fault(fault)
        LOG.warning("Lab: fault %d is in force: %s", fault.fault_id, text)
        self._note(BY_MESSAGE[fault.WhichOneof("kind") or ""].command, {"fault": fault.fault_id, "text": text})
        return lab_pb2.SetFaultResponse(fault=fault)

    async def ClearFaults(self, request: lab_pb2.ClearFaultsRequest, context: Context) -> lab_pb2.ClearFaultsResponse:
        """End faults, and the hold."""
        del context
        ended = self._faults.clear(request.fault_ids, network_only=request.network_only)
        for fault in ended:
            LOG.warning("Lab: fault %d has ended", fault.fault_id)
            self._note("clear-fault", {"fault": fault.fault_id, "text": describe_fault(fault)})
        released = request.holds and self._held.release()
        if released:
            self._note("release-fetch", METADATA._asdict())
        return lab_pb2.ClearFaultsResponse(faults=ended, released=[self._partition()] if released else [])

    async def ListFaults(self, request: lab_pb2.ListFaultsRequest, context: Context) -> lab_pb2.ListFaultsResponse:
        """List the faults in force, and the hold."""
        del request, context
        held = [lab_pb2.HeldPartition(partition=self._partition())] if self._held.is_held else []
        return lab_pb2.ListFaultsResponse(broker_id=self._node_id, faults=self._faults.listed(), held=held)

    async def ListRules(self, request: lab_pb2.ListRulesRequest, context: Context) -> lab_pb2.ListRulesResponse:
        """Return no rules: those are for requests of Kafka's clients to brokers."""
        del request, context
        return lab_pb2.ListRulesResponse()

    async def SetRules(self, request: lab_pb2.SetRulesRequest, context: Context) -> lab_pb2.SetRulesResponse:
        """Take the end of all rules, and refuse others: clients' requests go to brokers."""
        if request.rules:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"controller {self._node_id} has no requests of Kafka's clients, for which rules are; name a broker",
            )
        return lab_pb2.SetRulesResponse()

    async def ExpireSession(
        self, request: lab_pb2.ExpireSessionRequest, context: Context
    ) -> lab_pb2.ExpireSessionResponse:
        """Refuse: only brokers register with the controllers."""
        del request
        await self._refuse("membership that could end: brokers have one, by their heartbeats", context)

    async def SyncLog(self, request: lab_pb2.SyncLogRequest, context: Context) -> lab_pb2.SyncLogResponse:
        """Refuse: a controller flushes its log before it counts a record or fetches on."""
        del request
        await self._refuse(f"log that waits to be flushed: it flushes {METADATA} by itself", context)

    async def _refuse(self, what: str, context: Context) -> NoReturn:
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION, f"controller {self._node_id} has no {what}; name a broker"
        )

    def _partition(self) -> lab_pb2.LabPartition:
        return lab_pb2.LabPartition(topic=METADATA.topic, partition=METADATA.partition)

    def _note(self, action: str, more: Mapping[str, Any]) -> None:
        self._write({"action": action, "broker": None, "process": f"controller-{self._node_id}", **more})
