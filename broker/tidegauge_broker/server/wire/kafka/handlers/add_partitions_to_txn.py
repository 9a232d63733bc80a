"""AddPartitionsToTxn (24), versions 0-5: partitions that a transaction writes to.

Versions 0 to 3 are clients', for one transaction. Later ones are brokers', for several: they may ask only whether the
partitions are in the transaction, or add them for a producer of transactions v2 (KIP-890). Versions 0 and 1 know
INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
A partition that is named twice is twice in the response to versions 0 to 3, but once if the coordinator was not asked,
since a partition is unknown or internal, and in later versions; there a topic without partitions is not named.
Source: ``KafkaApis.handleAddPartitionsToTxnRequest``, ``AddPartitionsToTxnResponse.resultForTransaction``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge import transactions
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import known_fence
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_OF_BROKERS = 4
_FIRST_WITH_FENCED = 2
_NOT_ASKED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""One of these is in the response if the coordinator was not asked."""


def handle(request: AddPartitionsToTxnRequest, context: Context) -> Any:
    """Add, or verify; the response comes when the transaction's record is committed."""
    return begun(_of_one(request, context) if context.version < _FIRST_OF_BROKERS else _of_several(request, context))


async def _of_one(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    wanted = transactions.AddPartitionsToTxn(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _partitions(request.v3_and_below_topics),
    )
    result = await context.service.transactions.add_partitions(wanted, may_be_internal=False)
    errors = {at: known_fence(error, context, _FIRST_WITH_FENCED) for at, error in result.partitions.items()}
    topics = request.v3_and_below_topics
    was_asked = _NOT_ASKED.isdisjoint(errors.values())
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_as_named(topics, errors) if was_asked else _named_once(topics, errors)
    )


async def _of_several(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    found = []
    for one in request.transactions:
        wanted = transactions.AddPartitionsToTxn(
            one.transactional_id,
            one.producer_id,
            one.producer_epoch,
            _partitions(one.topics),
            one.verify_only,
            is_implicit=not one.verify_only,
        )
        result = await context.service.transactions.add_partitions(wanted, may_be_internal=True)
        found.append(AddPartitionsToTxnResult(one.transactional_id, _named_once(one.topics, result.partitions)))
    return AddPartitionsToTxnResponse(results_by_transaction=found)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(dict.fromkeys(TopicPartition(topic.name, at) for topic in topics for at in topic.partitions))


def _as_named(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(partition, errors[TopicPartition(topic.name, partition)])
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _named_once(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    found: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for at in _partitions(topics):
        found.setdefault(at.topic, []).append(AddPartitionsToTxnPartitionResult(at.partition, errors[at]))
    return [AddPartitionsToTxnTopicResult(name, results) for name, results in found.items()]


API = ServedApi(
    apis.ADD_PARTITIONS_TO_TXN,
    handle,
    guard=parts.add_partitions_to_txn,
    form=Form(
        (
            Part(
                "results_by_topic_v3_and_below",
                "v3_and_below_topics",
                same("name"),
                Part("results_by_partition", "partitions", NUMBER),
            ),
        )
    ),
    is_small=True,
)
