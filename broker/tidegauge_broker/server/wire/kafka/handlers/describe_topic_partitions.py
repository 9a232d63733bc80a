"""DescribeTopicPartitions (75), version 0, in KRaft mode: partitions of topics in pages, with eligible leader replicas.

Topics come by name, from the cursor on; a response has at most ``MOST`` partitions, and the cursor of the next page
where some are left. No topics mean all. Source: ``DescribeTopicPartitionsRequestHandler``,
``KRaftMetadataCache.describeTopicResponse``; KIP-966.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
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
from tidegauge_broker.server.wire.kafka.authorization.asking import Ask
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import TOPIC_OPERATIONS
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

MOST = 2000
"""``max.request.partition.size.limit``."""


async def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    """Return a page of partitions; many topics take several turns."""
    cursor = request.cursor
    if cursor is not None and _is_invalid(cursor, request):
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, one.name) for one in request.topics]
        )
    may_describe = context.may_describe or (lambda _: True)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    left = min(max(request.response_partition_limit, 1), MOST)
    asked = sorted({one.name for one in request.topics})
    for names in _portions(asked or sorted(one.name for one in _views(None, context))):
        allowed = [name for name in names if may_describe(name)]
        if asked and len(allowed) < len(names):
            refused += [_refused(name) for name in names if name not in set(allowed)]
        if cursor is not None:
            allowed = [name for name in allowed if name >= cursor.topic_name]
        if next_cursor is None and allowed:
            left, next_cursor = _add(topics, _views(allowed, context), cursor, left)
        if next_cursor is not None and not asked:
            break
        if len(names) == ITEMS_PER_TURN:
            await asyncio.sleep(0)
    return DescribeTopicPartitionsResponse(topics=[*topics, *refused], next_cursor=next_cursor)


def _is_invalid(cursor: Cursor, request: DescribeTopicPartitionsRequest) -> bool:
    """Return whether a request has an invalid cursor.

    Its partition is negative, or its topic is not requested.
    """
    asked = {one.name for one in request.topics}
    return cursor.partition_index < 0 or (bool(asked) and cursor.topic_name not in asked)


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), ITEMS_PER_TURN):
        yield names[first : first + ITEMS_PER_TURN]


def _views(names: Sequence[str] | None, context: Context) -> Sequence[TopicView]:
    return context.service.metadata(context.caller, names, may_create=False).topics


def _add(
    page: list[DescribeTopicPartitionsResponseTopic], topics: Iterable[TopicView], cursor: Cursor | None, left: int
) -> tuple[int, Cursor | None]:
    """Add topics to a page until it is full.

    Args:
        page: what it has already.
        topics: by name.
        cursor: where the page begins.
        left: how many partitions it has room for.

    Returns:
        how many are left, and where the next page begins; None: all topics are there.
    """
    for topic in topics:
        first = cursor.partition_index if cursor is not None and topic.name == cursor.topic_name else 0
        if left <= 0:
            return 0, Cursor(topic.name, first)
        partitions = [one for one in topic.partitions if one.partition >= first]
        page.append(_topic(topic, partitions[:left]))
        if len(partitions) > left:
            return 0, Cursor(topic.name, partitions[left].partition)
        left -= len(partitions)
    return left, None


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


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
    ask.context.may_describe = ask.topics(Operation.DESCRIBE)
    return handler(request, ask.context)


KRAFT_API = ServedApi(
    DESCRIBE_TOPIC_PARTITIONS,
    handle,
    guard=_guard,
    form=Form((Part("topics", "topics", same("name")),)),
    only_reads=True,
    is_counted=True,
    protocol=KRAFT_BROKER_PROTOCOL,
)
