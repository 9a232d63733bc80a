"""DescribeShareGroupOffsets (90), versions 0-1: the start offsets of share groups, from version 1 on with their lag.

Without topics all partitions are described that are initialized; a group that does not exist has none, without an
error.
Source: ``KafkaApis.handleDescribeShareGroupOffsetsRequest``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tidegauge_broker.server.service.share_group_service import ShareOffset, TopicShareOffsets
from tidegauge_broker.server.wire.kafka.authorization import shares
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: DescribeShareGroupOffsetsRequest, context: Context) -> DescribeShareGroupOffsetsResponse:
    """Describe the offsets of groups, each for itself."""
    found = await asyncio.gather(*(_group(one, context) for one in request.groups))
    return DescribeShareGroupOffsetsResponse(groups=found)


async def _group(
    asked: DescribeShareGroupOffsetsRequestGroup, context: Context
) -> DescribeShareGroupOffsetsResponseGroup:
    wanted = None if asked.topics is None else {one.topic_name: one.partitions for one in asked.topics}
    found = await context.service.groups.shares.describe_offsets(asked.group_id, wanted)
    message = None if found.error is ErrorCode.NONE else found.message or ERROR_TABLE[found.error].meaning
    return DescribeShareGroupOffsetsResponseGroup(
        asked.group_id, [_topic(one) for one in found.topics], found.error, message
    )


def _topic(found: TopicShareOffsets) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        found.topic, found.topic_id, [_partition(one) for one in found.partitions]
    )


def _partition(found: ShareOffset) -> Any:
    return DescribeShareGroupOffsetsResponsePartition(
        found.partition, found.start_offset, found.leader_epoch, found.lag, found.error, found.message
    )


API = ServedApi(
    apis.DESCRIBE_SHARE_GROUP_OFFSETS,
    handle,
    guard=shares.describe_offsets,
    form=Form((Part("groups", "groups", same("group_id")),)),
    only_reads=True,
    division=Division("groups", "groups"),
    is_counted=True,
)
