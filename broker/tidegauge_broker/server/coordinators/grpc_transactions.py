"""Markers and verifications for other brokers, over gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge.v1 import transaction_markers_pb2
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.server.coordinators.transaction_peers import Errors
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_controller import wire

LOG = logging.getLogger("tidegauge.transactions")


class GrpcTransactions:
    """See ``OtherBrokers``.

    Args:
        address_of: returns a broker's address for brokers; None: it is not alive.
        peers: channels.
        settings: this broker's.
        logical_clock: goes with the markers, and is advanced by the responses.
    """

    def __init__(
        self, address_of: Callable[[int], str | None], peers: Peers, settings: Values, logical_clock: LogicalClock
    ) -> None:
        self._address_of = address_of
        self._peers = peers
        self._settings = settings
        self._logical_clock = logical_clock

    @property
    def _timeout_seconds(self) -> float:
        return self._settings.integer("request.timeout.ms") / 1000

    async def write_markers(
        self, broker_id: int, markers: Sequence[MarkersOfTransaction]
    ) -> Mapping[int, Errors] | None:
        """Send WriteMarkers."""
        address = self._address_of(broker_id)
        if address is None:
            return None
        request = transaction_markers_pb2.WriteMarkersRequest(
            markers=[to_marker(one) for one in markers], logical_time=self._logical_clock.value
        )
        try:
            response = await self._peers.replication(address).WriteMarkers(request, timeout=self._timeout_seconds)
        except grpc.aio.AioRpcError as problem:
            LOG.info("WriteMarkers to broker %d: %s", broker_id, problem.details())
            return None
        self._logical_clock.receive(response.logical_time)
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one in response.markers:
            found.setdefault(one.producer_id, {}).update(errors_of(one.partitions))
        return found

    async def verify(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Send a VerifyPartitions for each, all at once."""
        address = self._address_of(broker_id)
        if address is None:
            return None
        stub = self._peers.replication(address)
        calls = [stub.VerifyPartitions(_to_verification(one), timeout=self._timeout_seconds) for one in wanted]
        try:
            responses = await asyncio.gather(*calls)
        except grpc.aio.AioRpcError as problem:
            LOG.info("VerifyPartitions to broker %d: %s", broker_id, problem.details())
            return None
        return [_verified(one, response) for one, response in zip(wanted, responses, strict=True)]


def _verified(wanted: AddPartitionsToTxn, response: transaction_markers_pb2.VerifyPartitionsResponse) -> Errors:
    """Return a verification's errors by partition; a top-level error is each one's."""
    error = wire.from_error(response.status.error)
    return errors_of(response.partitions) if error is ErrorCode.NONE else dict.fromkeys(wanted.partitions, error)


def _to_verification(wanted: AddPartitionsToTxn) -> transaction_markers_pb2.VerifyPartitionsRequest:
    return transaction_markers_pb2.VerifyPartitionsRequest(
        transactional_id=wanted.transactional_id or "",
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        partitions=[transaction_markers_pb2.TransactionPartition(topic=t, partition=p) for t, p in wanted.partitions],
        adds=not wanted.verify_only,
    )


def to_marker(one: MarkersOfTransaction) -> transaction_markers_pb2.Marker:
    """Convert a marker and its partitions."""
    marker = one.marker
    return transaction_markers_pb2.Marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.outcome is Outcome.COMMIT,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        partitions=[transaction_markers_pb2.TransactionPartition(topic=t, partition=p) for t, p in one.partitions],
    )


def errors_of(partitions: Sequence[transaction_markers_pb2.TransactionPartition]) -> dict[TopicPartition, ErrorCode]:
    """Convert the errors of a response."""
    return {TopicPartition(one.topic, one.partition): wire.from_error(one.status.error) for one in partitions}
