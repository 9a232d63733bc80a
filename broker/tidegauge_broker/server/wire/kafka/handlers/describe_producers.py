"""DescribeProducers (61), version 0: what a leader knows of the idempotent producers of its partitions (KIP-664).

There are no transactions: ``current_txn_start_offset`` and ``coordinator_epoch`` are -1.
Source: ``KafkaApis.handleDescribeProducersRequest``, ``ReplicaManager.activeProducerState``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.request import Context


def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    """Describe producers, each partition for itself."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_partition(TopicPartition(topic.name, partition), context) for partition in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(at: TopicPartition, context: Context) -> PartitionResponse:
    producers = context.service.describe_producers(at)
    if isinstance(producers, ErrorCode):
        return PartitionResponse(at.partition, producers)
    return PartitionResponse(
        at.partition,
        0,
        None,
        [
            ProducerState(one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp_ms, -1)
            for one in producers
        ],
    )
