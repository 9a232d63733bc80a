"""Requests between brokers about transactions: markers for leaders, verifications for coordinators.

A broker asks itself through the same service, without the network but through the same gate, so that faults meet
requests to itself as in Kafka, which sends them through a socket. No response in ``request.timeout.ms``, or a
connection that fails, is no response: the callers try again. The others are asked over gRPC or over Kafka's protocol:
``grpc_transactions``, ``kafka_transactions``.
Source: TransactionMarkerChannelManager, AddPartitionsToTxnManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge_broker.coordinator.effects import MarkersOfTransaction, WriteMarkers
from tidegauge_broker.server.service.admission import through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError

if TYPE_CHECKING:
    from tidegauge_broker.server.service.transaction_service import TransactionService

LOG = logging.getLogger("tidegauge.transactions")
Errors = Mapping[TopicPartition, ErrorCode]


class OtherBrokers(Protocol):
    """Asks other brokers about transactions."""

    async def write_markers(
        self, broker_id: int, markers: Sequence[MarkersOfTransaction]
    ) -> Mapping[int, Errors] | None:
        """Have a leader write markers; return errors by producer id and partition, None without a response."""
        ...

    async def verify(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Ask a coordinator whether partitions are in transactions, or to add them (``AddPartitionsToTxn``).

        Returns:
            The errors of each; None: no response.
        """
        ...


class TransactionPeers:
    """The requests about transactions to other brokers and to this one.

    Args:
        broker_id: this broker.
        others: asks the other brokers.
        gate: before requests to this broker itself; None: there is none.

    Attributes:
        service: this broker's own; set before the first request.
    """

    service: TransactionService

    def __init__(self, broker_id: int, others: OtherBrokers, gate: Gate | None = None) -> None:
        self._broker_id = broker_id
        self._others = others
        self._gate = gate

    async def send_markers(self, effect: WriteMarkers) -> Mapping[int, Errors] | None:
        """Have a broker write markers; return errors by producer id and partition, None without a response."""
        if effect.broker_id == self._broker_id:
            return await self._write_own(effect.markers)
        return await self._others.write_markers(effect.broker_id, effect.markers)

    async def send_verifications(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Ask a coordinator whether partitions are in transactions; return the errors of each, None: no response."""
        if broker_id == self._broker_id:
            return await self._verify_own(wanted)
        return await self._others.verify(broker_id, wanted)

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
