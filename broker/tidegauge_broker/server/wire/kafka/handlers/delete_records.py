"""DeleteRecords (21), versions 0-2: raise log start offsets; -1 is the high watermark.

Of a partition that is named twice the last offset counts, and it has one result.
The response comes when all live replicas have followed, or with REQUEST_TIMED_OUT.
Source: ``KafkaApis.handleDeleteRecordsRequest``, ``ReplicaManager.deleteRecords``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.replica.messages import DeleteRecordsResult, RecordsToDelete
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import named_once
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_HIGH_WATERMARK = -1


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Delete the records below offsets."""
    results: dict[TopicPartition, DeleteRecordsResult] = {}
    wanted: dict[TopicPartition, RecordsToDelete] = {}
    named = ((topic.name, item) for topic in request.topics for item in topic.partitions)
    async for name, item in with_turns(named, ITEMS_PER_TURN):
        at = TopicPartition(name, item.partition_index)
        if not context.service.knows(at):
            results[at] = DeleteRecordsResult(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, low_watermark=-1)
        else:
            wanted[at] = RecordsToDelete(at, None if item.offset == _HIGH_WATERMARK else item.offset)
    found = await context.service.delete_records(list(wanted.values()), request.timeout_ms)
    results |= {result.topic_partition: result for result in found}
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name, [_result(results[TopicPartition(name, at)]) for at in partitions])
            for name, partitions in named_once(request.topics).items()
        ]
    )


def _result(result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(result.topic_partition.partition, result.low_watermark, result.error)


API = ServedApi(
    apis.DELETE_RECORDS,
    handle,
    guard=parts.DELETE_RECORDS,
    form=Form(
        (
            Part(
                "topics",
                "topics",
                same("name"),
                Part("partitions", "partitions", same("partition_index"), values={"low_watermark": -1}),
            ),
        )
    ),
    divisible=(("topics", "partitions"),),
    is_counted=True,
)
