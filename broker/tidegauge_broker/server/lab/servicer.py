"""The Lab service: messages in and out, nothing decided.

A wish that can't be fulfilled ends the call with FAILED_PRECONDITION and a sentence.
"""

# ruff: noqa: N802 - the names come from the .proto file

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.messages import describe_fault
from tidegauge.faults.table import BY_MESSAGE
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc, metadata_pb2
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_broker.server.lab.held_fetches import METADATA, HeldFetches
from tidegauge_broker.server.lab.holds import Describe, Holds
from tidegauge_broker.server.lab.membership import LabMembership
from tidegauge_broker.server.lab.metadata_round import metadata_round
from tidegauge_broker.server.lab.observed_groups import to_observed_group
from tidegauge_broker.server.lab.observed_shares import observed_shares
from tidegauge_broker.server.lab.rule_messages import from_rule, to_request
from tidegauge_broker.server.lab.rules import RuleTable
from tidegauge_broker.server.lab.stepped_round import stepped_round
from tidegauge_broker.server.seams import Parts
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer

LOG = logging.getLogger("tidegauge.lab")
Context = grpc.aio.ServicerContext[Any, Any]
Result = TypeVar("Result")


def held_from_start(settings: Values) -> list[TopicPartition]:
    """Return the partitions that ``lab.held`` names.

    Raises:
        TidegaugeError: INVALID_CONFIG, one has another form.
    """
    try:
        return [TopicPartition.parse(text) for text in settings["lab.held"]]
    except ValueError as problem:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Invalid value for configuration lab.held: {problem}") from None


def describing(parts: Parts) -> Describe:
    """Return a function that describes this broker's replicas, as ObserveReplicas does."""

    def describe(at: TopicPartition) -> metadata_pb2.ReplicaDescription | None:
        found = parts.service.describe_replicas(parts.now_ms(), {at.topic})
        return next((convert.to_replica(view, on_disk) for view, on_disk in found if view.topic_partition == at), None)

    return describe


class LabServicer(lab_service_pb2_grpc.LabServiceServicer):
    """The methods of ``lab_service.proto``."""

    def __init__(
        self,
        parts: Parts,
        holds: Holds,
        faults: FaultTable,
        rules: RuleTable,
        replication: ReplicationServicer,
        membership: LabMembership,
        held: HeldFetches,
        node_at: Callable[[str], int | None],
    ) -> None:
        self._held = held
        self._node_at = node_at
        self._parts = parts
        self._holds = holds
        self._faults = faults
        self._rules = rules
        self._replication = replication
        self._membership = membership
        self._setting_rules = asyncio.Lock()

    async def SetRules(self, request: lab_pb2.SetRulesRequest, context: Context) -> lab_pb2.SetRulesResponse:
        """Put the rules in force, and no others."""

        async def set_rules() -> None:
            async with self._setting_rules:  # in their order, though each takes several turns
                self._rules.set([from_rule(one) async for one in with_turns(request.rules)])

        await _or_abort(set_rules(), context)
        return lab_pb2.SetRulesResponse()

    async def ListRules(self, request: lab_pb2.ListRulesRequest, context: Context) -> lab_pb2.ListRulesResponse:
        """Return the rules in force."""
        del request, context
        return lab_pb2.ListRulesResponse(
            rules=[
                lab_pb2.RuleState(rule_id=one.rule_id, rule_json=one.text, held=one.held, hits=one.hits)
                for one in self._rules.states()
            ]
        )

    async def ListRequests(
        self, request: lab_pb2.ListRequestsRequest, context: Context
    ) -> lab_pb2.ListRequestsResponse:
        """Return the journal of requests after a number."""
        del context
        return lab_pb2.ListRequestsResponse(requests=[to_request(one) for one in self._rules.after(request.after)])

    async def HoldFetch(self, request: lab_pb2.HoldFetchRequest, context: Context) -> lab_pb2.HoldFetchResponse:
        """Hold or release a follower."""
        at = _from_partition(request.partition)
        if at == METADATA:
            changed = self._held.release() if request.release else await _or_abort(self._hold_metadata(), context)
        else:
            changed = await _or_abort(self._holds.release(at) if request.release else self._holds.hold(at), context)
        if changed:
            self._note("release-fetch" if request.release else "hold-fetch", at)
        return lab_pb2.HoldFetchResponse(changed=changed)

    async def _hold_metadata(self) -> bool:
        """Hold the fetches of the metadata log; return whether that changed anything.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such log.
        """
        if self._faults.place is Place.BROKER:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, "the cluster is not in KRaft mode, so that there is no metadata log"
            )
        return await self._held.hold()

    async def StepFetch(self, request: lab_pb2.StepFetchRequest, context: Context) -> lab_pb2.StepFetchResponse:
        """Step a held follower by one round."""
        at = _from_partition(request.partition)
        hold_response = request.until == lab_pb2.STEP_UNTIL_REQUEST
        self._note("step-fetch", at, until="request" if hold_response else "answer")
        if at == METADATA:
            return await _or_abort(metadata_round(self._held, request.until, self._node_at), context)
        return await _or_abort(self._holds.step(at, hold_response=hold_response), context)

    async def SteppedRound(
        self, request_iterator: AsyncIterator[lab_pb2.SteppedRoundRequest], context: Context
    ) -> AsyncIterator[lab_pb2.SteppedRoundResponse]:
        """Serve the leader's side of a step."""
        async for message in stepped_round(self._replication, describing(self._parts), request_iterator, context):
            yield message

    async def SyncLog(self, request: lab_pb2.SyncLogRequest, context: Context) -> lab_pb2.SyncLogResponse:
        """Bring logs to the disk."""
        wanted = _from_partition(request.partition) if request.HasField("partition") else None
        logs = {at: log for at, log in self._parts.logs.logs.items() if wanted in (None, at)}
        if wanted is not None and not logs:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"broker {self._parts.service.broker_id} has no replica of {wanted}",
            )

        def flush() -> None:
            for log in logs.values():
                log.flush()

        self._note("sync", wanted)
        await self._parts.in_log_pool(flush)
        return lab_pb2.SyncLogResponse(
            logs=[
                lab_pb2.SyncedLog(partition=_to_partition(at), recovery_point=log.recovery_point)
                for at, log in sorted(logs.items())
            ]
        )

    async def ObserveReplicas(
        self, request: lab_pb2.ObserveReplicasRequest, context: Context
    ) -> lab_pb2.ObserveReplicasResponse:
        """Describe this broker's replicas, under any partition."""
        del context
        replicas = self._parts.service.describe_replicas(self._parts.now_ms(), set(request.topics))
        return lab_pb2.ObserveReplicasResponse(
            broker_id=self._parts.service.broker_id,
            replicas=[convert.to_replica(view, on_disk) async for view, on_disk in with_turns(replicas)],
        )

    async def ObserveGroups(
        self, request: lab_pb2.ObserveGroupsRequest, context: Context
    ) -> lab_pb2.ObserveGroupsResponse:
        """Describe the groups that this broker coordinates, under any fault."""
        del context
        runner = self._parts.service.groups.runner
        async with runner.at_rest:
            wanted = request.group_ids or runner.coordinator.group_ids()
            groups = [to_observed_group(runner, one) for one in wanted]
        return lab_pb2.ObserveGroupsResponse(broker_id=self._parts.service.broker_id, groups=groups)

    async def ObserveShares(
        self, request: lab_pb2.ObserveSharesRequest, context: Context
    ) -> lab_pb2.ObserveSharesResponse:
        """Describe the share partitions that this broker leads, and the states that it keeps of share partitions."""
        del context
        return await observed_shares(self._parts, request)

    async def ObserveTransactions(
        self, request: lab_pb2.ObserveTransactionsRequest, context: Context
    ) -> lab_pb2.ObserveTransactionsResponse:
        """Describe the transactional ids that this broker coordinates, under any fault."""
        del context
        coordinator = self._parts.service.transactions.runner.coordinator
        wanted = set(request.transactional_ids)
        return lab_pb2.ObserveTransactionsResponse(
            broker_id=self._parts.service.broker_id,
            transactions=[
                lab_pb2.ObservedTransaction(
                    transactional_id=one.transactional_id,
                    state=one.state.value,
                    transactions_version=one.transactions_version,
                )
                for one in coordinator.transaction_views()
                if not wanted or one.transactional_id in wanted
            ],
        )

    async def ListFaults(self, request: lab_pb2.ListFaultsRequest, context: Context) -> lab_pb2.ListFaultsResponse:
        """List the faults in force and the held partitions."""
        del request, context
        return lab_pb2.ListFaultsResponse(
            broker_id=self._parts.service.broker_id,
            faults=self._faults.listed(),
            held=[
                lab_pb2.HeldPartition(partition=_to_partition(at), response_withheld_by=leader)
                for at, leader in (self._holds.held() | self._held_metadata()).items()
            ],
        )

    def _held_metadata(self) -> dict[TopicPartition, int | None]:
        return {METADATA: None} if self._held.is_held else {}

    async def SetFault(self, request: lab_pb2.SetFaultRequest, context: Context) -> lab_pb2.SetFaultResponse:
        """Put a fault in force."""
        try:
            fault = self._faults.set(request.fault)
        except TidegaugeError as problem:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem.message)
        LOG.warning("Lab: fault %d is in force: %s", fault.fault_id, describe_fault(fault))
        self._note(BY_MESSAGE[fault.WhichOneof("kind") or ""].command, fault=fault.fault_id, text=describe_fault(fault))
        return lab_pb2.SetFaultResponse(fault=fault)

    async def ClearFaults(self, request: lab_pb2.ClearFaultsRequest, context: Context) -> lab_pb2.ClearFaultsResponse:
        """End faults, and holds."""
        del context
        ended = self._faults.clear(request.fault_ids, network_only=request.network_only)
        for fault in ended:
            LOG.warning("Lab: fault %d has ended", fault.fault_id)
            self._note("clear-fault", fault=fault.fault_id, text=describe_fault(fault))
        released = list(self._holds.held()) if request.holds else []
        for at in released:
            await self._holds.release(at)
            self._note("release-fetch", at)
        if request.holds and self._held.release():
            released.append(METADATA)
            self._note("release-fetch", METADATA)
        return lab_pb2.ClearFaultsResponse(faults=ended, released=[_to_partition(at) for at in released])

    async def ExpireSession(
        self, request: lab_pb2.ExpireSessionRequest, context: Context
    ) -> lab_pb2.ExpireSessionResponse:
        """End the membership of the cluster at once."""
        del request
        number = self._membership.identity()
        LOG.warning("Lab: the membership of the cluster (0x%x) is ended", number)
        self._note("expire-session", membership=f"0x{number:x}")
        await _or_abort(self._membership.end(), context)
        if self._membership.is_session:
            return lab_pb2.ExpireSessionResponse(session_id=number)
        return lab_pb2.ExpireSessionResponse(broker_epoch=number)

    def _note(self, action: str, at: TopicPartition | None = None, **more: Any) -> None:
        """Record what the lab did here in the event log."""
        broker_id = self._parts.service.broker_id
        where = {} if at is None else {"topic": at.topic, "partition": at.partition}
        fields = {"action": action, "broker": broker_id, "process": f"broker-{broker_id}", **where, **more}
        self._parts.note("fault", "Lab", fields)


async def _or_abort(work: Awaitable[Result], context: Context) -> Result:
    try:
        return await work
    except TidegaugeError as problem:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, problem.message)
        raise


def _from_partition(message: lab_pb2.LabPartition) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def _to_partition(at: TopicPartition) -> lab_pb2.LabPartition:
    return lab_pb2.LabPartition(topic=at.topic, partition=at.partition)
