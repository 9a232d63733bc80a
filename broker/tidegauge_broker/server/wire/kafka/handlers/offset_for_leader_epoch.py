"""OffsetForLeaderEpoch (23), versions 0-4: where a leader epoch ends in this leader's log (KIP-101, KIP-279, KIP-320).

The response is the largest epoch not above the one asked for, and its end offset; -1 and -1 without an error where
there is none. From version 2 on the client's own leader epoch is checked first.
Source: ``KafkaApis.handleOffsetForLeaderEpochRequest``, ``Partition.lastOffsetForLeaderEpoch``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import EpochLookup
from tidegauge_broker.server.wire.kafka.handlers.common import checked_epoch
from tidegauge_broker.server.wire.kafka.request import Context


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
