"""DescribeTransactions (65), version 0: state and partitions of transactional ids (KIP-664), each for itself.

Source: ``KafkaApis.handleDescribeTransactionsRequest``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegauge import transactions
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: DescribeTransactionsRequest, context: Context) -> Any:
    """Describe transactional ids."""
    return begun(_describe(request, context))


async def _describe(request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    found = [await _of(transactional_id, context) for transactional_id in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=found)


async def _of(transactional_id: str, context: Context) -> TransactionState:
    result = await context.service.transactions.ask(transactions.DescribeTransaction(transactional_id))
    if result.error is not ErrorCode.NONE:
        return TransactionState(error_code=result.error, transactional_id=transactional_id)
    return TransactionState(
        0,
        transactional_id,
        result.state,
        result.timeout_ms,
        result.start_time_ms,
        result.producer_id,
        result.producer_epoch,
        _topics(result.partitions),
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[TopicData]:
    return [TopicData(topic, found) for topic, found in partitions_by_topic(sorted(partitions)).items()]


API = ServedApi(
    apis.DESCRIBE_TRANSACTIONS,
    handle,
    guard=listed.describe_transactions,
    form=Form((Part("transaction_states", "transactional_ids", {"transactional_id": ""}),)),
    only_reads=True,
    is_counted=True,
)
