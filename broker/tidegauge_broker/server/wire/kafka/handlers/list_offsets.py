"""ListOffsets (2), versions 0-9: offsets by time.

-1 is the high watermark, -2 the log start offset, -3 (version 7 on) the largest timestamp's, -4 (8 on) the first
offset that is not in tiered storage, -5 (9 on) the last one that is; there is no tiered storage. A time or a special
value that the version does not have gets UNSUPPORTED_VERSION; a partition that is named twice INVALID_REQUEST. Right
after an election, until the high watermark has passed the new epoch's start, the response is OFFSET_NOT_AVAILABLE,
before version 5 LEADER_NOT_AVAILABLE. For a reader of committed records, the last stable offset takes the
high watermark's place (version 2 on). A replica id other than -1 sees the log up to its end; -2 may ask a follower.
Version 0 has a list of offsets: where the segments begin whose files were last written by the time that is asked for.
Source: ``KafkaApis.handleListOffsetRequestV0``, ``handleListOffsetRequestV1AndAbove``, ``ListOffsetsRequest``.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import OffsetLookup
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import BY_TOPIC
from tidegauge_broker.server.wire.kafka.handlers.common import READ_COMMITTED, checked_epoch
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_FIRST_VERSIONS = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5


def handle(request: ListOffsetsRequest, context: Context) -> Response:
    """Return each partition's offset; at once, unless a batch needs a search."""
    return begun(_handle(request, context))


async def _handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    named = Counter((topic.name, item.partition_index) for topic in request.topics for item in topic.partitions)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    await _partition(TopicPartition(topic.name, item.partition_index), item, context, named, request)
                    for item in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _partition(
    at: TopicPartition,
    item: ListOffsetsPartition,
    context: Context,
    named: Counter[tuple[str, int]],
    request: ListOffsetsRequest,
) -> ListOffsetsPartitionResponse:
    version = context.version
    if version > 0 and named[at] > 1:
        return ListOffsetsPartitionResponse(at.partition, ErrorCode.INVALID_REQUEST)
    if item.timestamp < 0 and version < _FIRST_VERSIONS.get(item.timestamp, version + 1):
        return ListOffsetsPartitionResponse(at.partition, ErrorCode.UNSUPPORTED_VERSION)
    if version == 0:
        return _old_style(at, item, context, request.replica_id)
    timestamp = EARLIEST if item.timestamp in {EARLIEST_LOCAL, LATEST_TIERED} else item.timestamp
    epoch = checked_epoch(item.current_leader_epoch)
    reads_committed = request.isolation_level == READ_COMMITTED
    lookup = OffsetLookup(at, timestamp, epoch, request.replica_id, reads_committed)
    result, found_ms = await context.service.list_offset(lookup)
    error = result.error
    if error is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    if error is not ErrorCode.NONE or item.timestamp == LATEST_TIERED:
        return ListOffsetsPartitionResponse(at.partition, error)
    return ListOffsetsPartitionResponse(
        at.partition,
        timestamp=found_ms,
        offset=result.offset,
        leader_epoch=-1 if result.offset < 0 else result.leader_epoch,
    )


def _old_style(
    at: TopicPartition, item: ListOffsetsPartition, context: Context, replica_id: int
) -> ListOffsetsPartitionResponse:
    lookup = OffsetLookup(at, item.timestamp, replica_id=replica_id)
    error, offsets = context.service.old_style_offsets(lookup, max(item.max_num_offsets, 0))
    if error is ErrorCode.NONE and item.max_num_offsets < 0:  # Kafka fails to make an array of that size
        return ListOffsetsPartitionResponse(at.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    return ListOffsetsPartitionResponse(at.partition, error, offsets)


API = ServedApi(
    apis.LIST_OFFSETS,
    handle,
    guard=parts.LIST_OFFSETS,
    form=BY_TOPIC,
    only_reads=True,
    division=Division("topics", "topics", ("partitions", "partitions"), judges_repeats=True),
    is_counted=True,
)
