"""What brokers ask each other about transactions: markers for leaders, verifications for coordinators.

A broker asks itself through the same service, without the network but through the same gate, so that faults meet what
it sends itself as in Kafka, where that goes through a socket. No response in ``request.timeout.ms``, or a connection
that fails, is no response: the callers try again.
Source: TransactionMarkerChannelManager, AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge.v1 import transactions_pb2
from tidegauge_broker.coordinator.effects import MarkersOfTransaction, WriteMarkers
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.service.admission import through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError
from tidegauge_controller import wire

if TYPE_CHECKING:
    from tidegauge_broker.server.service.transaction_service import TransactionService

LOG = logging.getLogger("tidegauge.transactions")
Errors = Mapping[TopicPartition, ErrorCode]


class TransactionPeers:
    """See the module.

    Args:
        broker_id: this broker.
        metadata: where the others are reached.
        peers: channels to them.
        settings: this broker's.
        logical_clock: goes with the markers, and is advanced by the responses.
        gate: before what the broker sends to itself; None: there is none.

    Attributes:
        service: this broker's own; set before the first request.
    """

    service: TransactionService

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        peers: Peers,
        settings: Values,
        logical_clock: LogicalClock,
        gate: Gate | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._peers = peers
        self._settings = settings
        self._logical_clock = logical_clock
        self._gate = gate

    @property
    def _timeout_seconds(self) -> float:
        return self._settings.integer("request.timeout.ms") / 1000

    async def send_markers(self, effect: WriteMarkers) -> Mapping[int, Errors] | None:
        """Have a broker write markers; return errors by producer id and partition, None without a response."""
        if effect.broker_id == self._broker_id:
            return await self._write_own(effect.markers)
        endpoint = self._metadata.endpoint(effect.broker_id)
        if endpoint is None:
            return None
        request = transactions_pb2.WriteMarkersRequest(
            markers=[to_marker(one) for one in effect.markers], logical_time=self._logical_clock.value
        )
        try:
            response = await self._peers.transactions(endpoint.address).WriteMarkers(
                request, timeout=self._timeout_seconds
            )
        except grpc.aio.AioRpcError as problem:
            LOG.info("WriteMarkers to broker %d: %s", effect.broker_id, problem.details())
            return None
        self._logical_clock.receive(response.logical_time)
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one in response.markers:
            found.setdefault(one.producer_id, {}).update(errors_of(one.partitions))
        return found

    async def send_verifications(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Ask a coordinator whether partitions are in transactions; return the errors of each, None: no response."""
        if broker_id == self._broker_id:
            return await self._verify_own(wanted)
        endpoint = self._metadata.endpoint(broker_id)
        if endpoint is None:
            return None
        stub = self._peers.transactions(endpoint.address)
        calls = [stub.AddPartitions(_to_verification(one), timeout=self._timeout_seconds) for one in wanted]
        try:
            responses = await asyncio.gather(*calls)
        except grpc.aio.AioRpcError as problem:
            LOG.info("AddPartitions to broker %d: %s", broker_id, problem.details())
            return None
        return [_verified(one, response) for one, response in zip(wanted, responses, strict=True)]

    async def _write_own(self, markers: Sequence[MarkersOfTransaction]) -> Mapping[int, Errors] | None:
        """Write markers here."""
        if self._gate is None or self._gate.is_open:
            return await self.service.write_markers(markers)
        named = [at for one in markers for at in one.partitions]

        def refused(error: ErrorCode) -> Mapping[int, Errors]:
            return {one.marker.producer_id: dict.fromkeys(one.partitions, error) for one in markers}

        asked = GatedRequest("WriteTxnMarkers", self._self, named)
        try:
            found: Mapping[int, Errors] = await through(
                self._gate, asked, _OwnForm(refused), lambda: self.service.write_markers(markers)
            )
        except CallRefused as problem:
            LOG.info("WriteMarkers to this broker: %s", problem)
            return None
        return found

    async def _verify_own(self, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Verify partitions here."""
        return [await self._verify_one(one) for one in wanted]

    async def _verify_one(self, wanted: AddPartitionsToTxn) -> Errors:
        async def handle() -> Errors:
            return (await self.service.add_partitions(wanted, may_be_internal=True)).partitions

        if self._gate is None or self._gate.is_open:
            return await handle()
        named, transactional_id = wanted.partitions, wanted.transactional_id or ""
        asked = GatedRequest(
            "AddPartitionsToTxn", self._self, named, transactional_id, transactional_id=transactional_id
        )
        form = _OwnForm(lambda error: dict.fromkeys(named, error))
        try:
            found: Errors = await through(self._gate, asked, form, handle)
        except CallRefused as problem:
            LOG.info("AddPartitions to this broker: %s", problem)
            return dict.fromkeys(named, ErrorCode.NETWORK_EXCEPTION)
        return found

    @property
    def _self(self) -> Caller:
        return Caller("", "", self._broker_id)


class _OwnForm:
    """The form of a response of a broker to itself.

    Args:
        refused: makes the response in which everything fails with an error.
    """

    def __init__(self, refused: Callable[[ErrorCode], Any]) -> None:
        self._refused = refused

    def refusal(self, injected: InjectedError) -> Any:
        """Return the response that refuses the request."""
        return self._refused(ErrorCode.of(injected.error))

    def with_error(self, response: Any, injected: InjectedError) -> Any:
        """Return the response in which everything fails, in place of the real one."""
        return self._refused(ErrorCode.of(injected.error)) if injected.error else response

    def discard(self, response: Any) -> None:
        """Release nothing: such a response is plain values."""


def _verified(wanted: AddPartitionsToTxn, response: transactions_pb2.AddPartitionsResponse) -> Errors:
    """Return the errors of a verification's partitions; an error of the whole is that of each."""
    error = wire.from_error(response.status.error)
    return errors_of(response.partitions) if error is ErrorCode.NONE else dict.fromkeys(wanted.partitions, error)


def _to_verification(wanted: AddPartitionsToTxn) -> transactions_pb2.AddPartitionsRequest:
    return transactions_pb2.AddPartitionsRequest(
        transactional_id=wanted.transactional_id or "",
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        partitions=[transactions_pb2.TransactionPartition(topic=t, partition=p) for t, p in wanted.partitions],
        verify_only=True,
        forwarded=True,
    )


def to_marker(one: MarkersOfTransaction) -> transactions_pb2.Marker:
    """Convert a marker and its partitions."""
    marker = one.marker
    return transactions_pb2.Marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.outcome is Outcome.COMMIT,
        coordinator_epoch=marker.coordinator_epoch,
        partitions=[transactions_pb2.TransactionPartition(topic=t, partition=p) for t, p in one.partitions],
    )


def errors_of(partitions: Sequence[transactions_pb2.TransactionPartition]) -> dict[TopicPartition, ErrorCode]:
    """Convert the errors of a response."""
    return {TopicPartition(one.topic, one.partition): wire.from_error(one.status.error) for one in partitions}
