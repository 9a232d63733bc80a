"""WriteTxnMarkers (27), versions 0-1: markers for partitions that this broker leads.

They come from transaction coordinators, and from an administrator who aborts a hanging transaction (KIP-664).
Source: ``KafkaApis.handleWriteTxnMarkersRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode
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
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context


def handle(request: WriteTxnMarkersRequest, context: Context) -> Any:
    """Write; the response comes when all markers are committed."""
    return begun(_write(request, context))


async def _write(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    errors = await context.service.transactions.write_markers([_marker(one) for one in request.markers])
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                one.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(
                                partition, _error(errors[one.producer_id], topic.name, partition)
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.markers
        ]
    )


def _error(errors: Any, topic: str, partition: int) -> ErrorCode:
    found: ErrorCode = errors[TopicPartition(topic, partition)]
    return found


def _marker(one: WritableTxnMarker) -> MarkersOfTransaction:
    outcome = Outcome.COMMIT if one.transaction_result else Outcome.ABORT
    marker = TransactionMarker(one.producer_id, one.producer_epoch, outcome, one.coordinator_epoch)
    return MarkersOfTransaction(
        marker, tuple(TopicPartition(topic.name, at) for topic in one.topics for at in topic.partition_indexes)
    )
