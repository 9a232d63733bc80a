"""DescribeProducers (61), version 0: a replica's view of the producers of its partitions (KIP-664).

Any replica responds, as in Kafka 3.9.1, though KIP-664 asks for the leader.
``current_txn_start_offset`` is -1 if no transaction is open, ``coordinator_epoch`` if no marker was written.
Source: ``KafkaApis.handleDescribeProducersRequest``, ``ReplicaManager.activeProducerState``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge_broker.replica.producer_state import ProducerEntry
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted

_UNKNOWN = "This server does not host this topic-partition."


async def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    """Describe producers, each partition for itself."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    await _partition(TopicPartition(topic.name, partition), context)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _partition(at: TopicPartition, context: Context) -> PartitionResponse:
    problem = topic_name_problem(at.topic)
    if problem is not None:
        return PartitionResponse(at.partition, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    producers = context.service.describe_producers(at)
    if isinstance(producers, ErrorCode):
        return PartitionResponse(
            at.partition, producers, _UNKNOWN if context.service.topic_id(at.topic) is None else None
        )
    return PartitionResponse(
        at.partition,
        0,
        None,
        await converted(_state, producers),
    )


def _state(one: ProducerEntry) -> ProducerState:
    return ProducerState(
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp_ms,
        one.coordinator_epoch,
        -1 if one.transaction_start is None else one.transaction_start,
    )


API = ServedApi(
    apis.DESCRIBE_PRODUCERS,
    handle,
    guard=parts.DESCRIBE_PRODUCERS,
    form=Form((Part("topics", "topics", same("name"), Part("partitions", "partition_indexes", NUMBER)),)),
    only_reads=True,
    division=Division("topics", "topics", ("partition_indexes", "partitions")),
    is_counted=True,
)
