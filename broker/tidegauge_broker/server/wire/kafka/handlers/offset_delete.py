"""OffsetDelete (47), version 0: delete committed offsets of a group (KIP-496).

A partition that this broker does not know gets UNKNOWN_TOPIC_OR_PARTITION, one that a member subscribes to
GROUP_SUBSCRIBED_TO_TOPIC.
Source: ``KafkaApis.handleOffsetDeleteRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: OffsetDeleteRequest, context: Context) -> Any:
    """Delete the offsets."""
    return begun(_delete(request, context))


async def _delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    wanted = tuple(
        TopicPartition(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    result = await context.service.groups.delete_offsets(groups.OffsetDelete(request.group_id, wanted))
    if result.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=result.error)
    found: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for at, error in result.partitions.items():
        found.setdefault(at.topic, []).append(OffsetDeleteResponsePartition(at.partition, error))
    return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name, items) for name, items in found.items()])


API = ServedApi(apis.OFFSET_DELETE, handle, guard=listed.offset_delete)
