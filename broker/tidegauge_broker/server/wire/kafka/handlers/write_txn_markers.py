"""WriteTxnMarkers (27), versions 0-2: markers for partitions that this broker leads.

Version 2 says the version of the transaction, by which the leader judges the epoch (KIP-890, part 2).

They come from transaction coordinators, and from an administrator who aborts a hanging transaction (KIP-664).
Source: ``KafkaApis.handleWriteTxnMarkersRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: WriteTxnMarkersRequest, context: Context) -> Any:
    """Write; the response comes when all markers are committed."""
    return begun(_write(request, context))


async def _write(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    errors = await context.service.transactions.write_markers([_marker(one) for one in request.markers])
    return WriteTxnMarkersResponse(
        [WritableTxnMarkerResult(producer_id, _topics(found)) for producer_id, found in errors.items() if found]
    )


def _topics(errors: Mapping[TopicPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    """Return the outcomes of one marker; a request may have several."""
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, partition), error in errors.items():
        by_topic.setdefault(topic, []).append(WritableTxnMarkerPartitionResult(partition, error))
    return [WritableTxnMarkerTopicResult(topic, found) for topic, found in by_topic.items()]


def _marker(one: WritableTxnMarker) -> MarkersOfTransaction:
    outcome = Outcome.COMMIT if one.transaction_result else Outcome.ABORT
    marker = TransactionMarker(
        one.producer_id, one.producer_epoch, outcome, one.coordinator_epoch, one.transaction_version
    )
    return MarkersOfTransaction(
        marker, tuple(TopicPartition(topic.name, at) for topic in one.topics for at in topic.partition_indexes)
    )


API = ServedApi(
    apis.WRITE_TXN_MARKERS,
    handle,
    guard=whole.write_txn_markers,
    form=Form(
        (
            Part(
                "markers",
                "markers",
                same("producer_id"),
                Part("topics", "topics", same("name"), Part("partitions", "partition_indexes", NUMBER)),
            ),
        )
    ),
    is_exempt=True,
)
