"""Markers and verifications for other brokers, over Kafka's protocol: WriteTxnMarkers 1, 2, AddPartitionsToTxn 4, 5.

Each kind has a connection of its own to each broker, as in Kafka.
Source: ``TransactionMarkerChannelManager``, ``AddPartitionsToTxnManager``, ``AddPartitionsToTxnRequest.forBroker``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import ADD_PARTITIONS_TO_TXN, APIS, WRITE_TXN_MARKERS
from tidegauge.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidegauge.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge.settings import Values
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.server.coordinators.transaction_peers import Errors
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers

LOG = logging.getLogger("tidegauge.transactions")
_FIRST_OF_BROKERS = 4


class KafkaTransactions:
    """See ``OtherBrokers``.

    Args:
        address_of: returns a broker's address for brokers; None: it is not alive.
        peers: channels.
        settings: this broker's.
    """

    def __init__(self, address_of: Callable[[int], str | None], peers: KafkaPeers, settings: Values) -> None:
        self._address_of = address_of
        self._peers = peers
        self._settings = settings

    async def write_markers(
        self, broker_id: int, markers: Sequence[MarkersOfTransaction]
    ) -> Mapping[int, Errors] | None:
        """Send WriteTxnMarkers."""
        request = WriteTxnMarkersRequest([_marker(one) for one in markers])
        response: WriteTxnMarkersResponse | None = await self._ask(
            broker_id, "txn-marker-sender", WRITE_TXN_MARKERS, request
        )
        if response is None:
            return None
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one in response.markers:
            errors = found.setdefault(one.producer_id, {})
            for topic in one.topics:
                for result in topic.partitions:
                    errors[TopicPartition(topic.name, result.partition_index)] = ErrorCode.of(result.error_code)
        return found

    async def verify(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Sequence[Errors] | None:
        """Send one AddPartitionsToTxn for all; a top-level error is each partition's."""
        request = AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    one.transactional_id or "",
                    one.producer_id,
                    one.producer_epoch,
                    one.verify_only,
                    [AddPartitionsToTxnTopic(*topic) for topic in partitions_by_topic(one.partitions).items()],
                )
                for one in wanted
            ]
        )
        response: AddPartitionsToTxnResponse | None = await self._ask(
            broker_id, "add-partitions", ADD_PARTITIONS_TO_TXN, request, at_least=_FIRST_OF_BROKERS
        )
        if response is None:
            return None
        if response.error_code:
            return [dict.fromkeys(one.partitions, ErrorCode.of(response.error_code)) for one in wanted]
        found = {
            one.transactional_id: {
                TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
                for topic in one.topic_results
                for result in topic.results_by_partition
            }
            for one in response.results_by_transaction
        }
        lost = ErrorCode.NETWORK_EXCEPTION
        return [found.get(one.transactional_id or "") or dict.fromkeys(one.partitions, lost) for one in wanted]

    async def _ask(self, broker_id: int, purpose: str, key: int, request: Any, *, at_least: int = 0) -> Any:
        """Return a broker's response; None: there is none."""
        address = self._address_of(broker_id)
        if address is None:
            return None
        channel = self._peers.channel(address, purpose)
        timeout_seconds = self._settings.integer("request.timeout.ms") / 1000
        try:
            return await channel.request(key, request, timeout_seconds, at_least=at_least)
        except TidegaugeError as problem:
            LOG.info("%s to broker %d: %s", APIS[key].name, broker_id, problem.message)
            return None


def _marker(one: MarkersOfTransaction) -> WritableTxnMarker:
    marker = one.marker
    return WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.outcome is Outcome.COMMIT,
        [WritableTxnMarkerTopic(*topic) for topic in partitions_by_topic(one.partitions).items()],
        marker.coordinator_epoch,
        marker.transaction_version,
    )
