"""TxnOffsetCommit (28), versions 0-5: offsets of a group that count when the transaction is committed.

Version 3 brings the member and its generation, which fence it (KIP-447). Versions 0 and 1 know
COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296). Version 5 belongs to transactions v2:
the group coordinator adds its partition to the transaction (KIP-890, part 2).
Source: ``KafkaApis.handleTxnOffsetCommitRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import BY_TOPIC
from tidegauge_broker.server.wire.kafka.handlers.common import named_once, supported_operation
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_LOAD = 2
_FIRST_WITH_ABORTABLE = 4


def handle(request: TxnOffsetCommitRequest, context: Context) -> Any:
    """Commit; the response comes when the offsets are in the log of the group's partition."""
    return begun(_commit(request, context))


async def _commit(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    offsets = tuple(
        groups.OffsetToCommit(
            TopicPartition(topic.name, one.partition_index),
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata,
        )
        for topic in request.topics
        for one in topic.partitions
    )
    result = await context.service.groups.commit_offsets_in_transaction(
        groups.TxnOffsetCommit(
            request.transactional_id,
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            offsets,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            operation=supported_operation(context.version, _FIRST_WITH_ABORTABLE),
            is_load_unavailable=context.version < _FIRST_WITH_LOAD,
        )
    )
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name,
                [
                    TxnOffsetCommitResponsePartition(at, result.partitions[TopicPartition(name, at)])
                    for at in partitions
                ],
            )
            for name, partitions in named_once(request.topics).items()
        ]
    )


API = ServedApi(
    apis.TXN_OFFSET_COMMIT,
    handle,
    guard=parts.txn_offset_commit,
    form=BY_TOPIC,
    divisible=(("topics", "partitions"),),
    is_small=True,
)
