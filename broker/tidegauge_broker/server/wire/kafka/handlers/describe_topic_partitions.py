"""DescribeTopicPartitions (75), version 0, in KRaft mode: partitions of topics in pages, with eligible leader replicas.

Topics come by name, from the cursor on; a response has at most ``MOST`` partitions, and the cursor of the next page
where some are left. No topics mean all. Source: ``DescribeTopicPartitionsRequestHandler``,
``KRaftMetadataCache.describeTopicResponse``; KIP-966.
"""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft.apis import DESCRIBE_TOPIC_PARTITIONS
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.kraft.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import INTERNAL_TOPICS
from tidegauge_broker.server.service.cluster_view import PartitionView, TopicView
from tidegauge_broker.server.wire.kafka.authorization.asking import Ask, parted
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import TOPIC_OPERATIONS
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

MOST = 2000
"""``max.request.partition.size.limit``."""


def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    """Return a page of partitions as this broker knows them."""
    cursor = request.cursor
    if cursor is not None and request.topics and cursor.topic_name not in {one.name for one in request.topics}:
        refused = [DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, one.name) for one in request.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    may_describe = context.may_describe or (lambda _: True)
    asked = sorted({one.name for one in request.topics}) or None
    view = context.service.metadata(context.caller, asked, may_create=False)
    names = [topic for topic in view.topics if asked is not None or may_describe(topic.name)]
    left = min(max(request.response_partition_limit, 1), MOST)
    response = DescribeTopicPartitionsResponse()
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for topic in sorted(names, key=lambda one: one.name):
        if cursor is not None and topic.name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and topic.name == cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = Cursor(topic.name, first)
            break
        partitions = [one for one in topic.partitions if one.partition >= first]
        topics.append(_topic(topic, partitions[:left]))
        if len(partitions) > left:
            response.next_cursor = Cursor(topic.name, partitions[left].partition)
            break
        left -= len(partitions)
    response.topics = topics
    return response


def _topic(topic: TopicView, partitions: list[PartitionView]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        topic.error,
        topic.name,
        topic_id_bytes(topic.topic_id) if topic.topic_id else NIL_UUID,
        topic.name in INTERNAL_TOPICS,
        [_partition(one) for one in partitions],
        TOPIC_OPERATIONS,
    )


def _partition(one: PartitionView) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        one.error,
        one.partition,
        NO_LEADER if one.leader is None else one.leader,
        one.leader_epoch,
        one.replicas,
        one.isr,
        one.elr,
        one.last_known_elr,
        one.offline_replicas,
    )


def _guard(request: Any, ask: Ask, handler: Handler) -> Response:
    """DescribeTopicPartitions: DESCRIBE of each topic; of all topics those are left out that may not be described."""
    may_describe = ask.topics(Operation.DESCRIBE)
    if not request.topics:
        ask.context.may_describe = may_describe
        return handler(request, ask.context)
    parts = parted(request.topics, lambda one: may_describe(one.name))
    refused = [
        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, one.name) for one in parts.refused
    ]
    if not parts.allowed:
        return DescribeTopicPartitionsResponse(topics=refused)
    request.topics = parts.allowed
    response: Any = handler(request, ask.context)
    response.topics = [*response.topics, *refused]
    return response


KRAFT_API = ServedApi(
    DESCRIBE_TOPIC_PARTITIONS,
    handle,
    guard=_guard,
    form=Form((Part("topics", "topics", same("name")),)),
    only_reads=True,
    is_counted=True,
    protocol=KRAFT_BROKER_PROTOCOL,
)
