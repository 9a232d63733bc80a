"""OffsetForLeaderEpoch (23), versions 0-4: where a leader epoch ends in this leader's log (KIP-101, KIP-279, KIP-320).

The response is the largest epoch not above the requested one, and its end offset; -1 and -1 without an error if
there is none. From version 2 on the client's own leader epoch is checked first.
Source: ``KafkaApis.handleOffsetForLeaderEpochRequest``, ``Partition.lastOffsetForLeaderEpoch``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import EpochLookup
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, by_topic
from tidegauge_broker.server.wire.kafka.handlers.common import checked_epoch
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    """Return the end of an epoch for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_partition(topic.topic, item, context) for item in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, item: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    lookup = EpochLookup(
        TopicPartition(topic, item.partition), item.leader_epoch, checked_epoch(item.current_leader_epoch)
    )
    result = context.service.offset_for_leader_epoch(lookup)
    if result.error is not ErrorCode.NONE:
        return EpochEndOffset(result.error, item.partition)
    return EpochEndOffset(0, item.partition, result.end.epoch, result.end.end_offset)


API = ServedApi(
    apis.OFFSET_FOR_LEADER_EPOCH,
    handle,
    guard=parts.offset_for_leader_epoch,
    form=Form((by_topic("topic", partition="partition"),)),
    only_reads=True,
    division=Division("topics", "topics", ("partitions", "partitions")),
)
