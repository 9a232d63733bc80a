"""What brokers ask each other about transactions: markers for leaders, verifications for coordinators.

A broker asks itself through the same service, without the network. No response in ``request.timeout.ms``, or a
connection that fails, is no response: the callers try again.
Source: TransactionMarkerChannelManager, AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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

    Attributes:
        service: this broker's own; set before the first request.
    """

    service: TransactionService

    def __init__(
        self, broker_id: int, metadata: MetadataCache, peers: Peers, settings: Values, logical_clock: LogicalClock
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._peers = peers
        self._settings = settings
        self._logical_clock = logical_clock

    @property
    def _timeout_seconds(self) -> float:
        return self._settings.integer("request.timeout.ms") / 1000

    async def send_markers(self, effect: WriteMarkers) -> Mapping[int, Errors] | None:
        """Have a broker write markers; return errors by producer id and partition, None without a response."""
        if effect.broker_id == self._broker_id:
            return await self.service.write_markers(effect.markers)
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
            found = [await self.service.add_partitions(one, may_be_internal=True) for one in wanted]
            return [one.partitions for one in found]
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
        return [errors_of(response.partitions) for response in responses]


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
