"""OffsetCommit (8), versions 0-10: store offsets of a group; the response comes when they are committed.

Version 0 belongs to offsets in ZooKeeper, which are not kept here: its partitions get UNSUPPORTED_VERSION. Version 1
brings a timestamp of the commit, versions 2 to 4 a retention time. From version 10 on topics have ids instead of names.
Source: ``KafkaApis.handleOffsetCommitRequest``, ``GroupCoordinatorAdapter.commitOffsets``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, by_topic
from tidegauge_broker.server.wire.kafka.handlers.common import name_topics
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_OF_ZOOKEEPER = 0
_WITH_TIMESTAMP = 1
_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_IDS = 10


def handle(request: OffsetCommitRequest, context: Context) -> Any:
    """Commit."""
    if context.version >= _FIRST_WITH_IDS:
        name_topics(request.topics, context)
    if context.version == _OF_ZOOKEEPER:
        return response_to(request, lambda _: ErrorCode.UNSUPPORTED_VERSION)
    return begun(_commit(request, context))


async def _commit(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    offsets = tuple(
        _offset(TopicPartition(topic.name, one.partition_index), topic_id, one, context.version)
        for topic in request.topics
        if topic.name or context.version < _FIRST_WITH_IDS
        for topic_id in (_id_of(topic, context),)
        for one in topic.partitions
    )
    result = await context.service.groups.commit_offsets(
        groups.OffsetCommit(
            group_id=request.group_id,
            offsets=offsets,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            knows_member_epochs=context.version >= _FIRST_WITH_MEMBER_EPOCH,
        )
    )
    if context.version < _FIRST_WITH_IDS:
        return response_to(request, result.partitions.__getitem__)
    return response_to(request, lambda at: result.partitions[at] if at.topic else ErrorCode.UNKNOWN_TOPIC_ID)


def _id_of(topic: OffsetCommitRequestTopic, context: Context) -> bytes:
    """Return a topic's id, which older requests do not name."""
    return topic.topic_id if topic.topic_id != NIL_UUID else topic_id_bytes(context.service.topic_id(topic.name) or "")


def _offset(
    at: TopicPartition, topic_id: bytes, one: OffsetCommitRequestPartition, version: int
) -> groups.OffsetToCommit:
    return groups.OffsetToCommit(
        at,
        one.committed_offset,
        one.committed_leader_epoch,
        one.committed_metadata,
        one.commit_timestamp if version == _WITH_TIMESTAMP else groups.NO_TIMESTAMP_MS,
        topic_id,
    )


def response_to(request: OffsetCommitRequest, error_of: Any) -> OffsetCommitResponse:
    """Return a response with an error for each partition, repeated ones too.

    Args:
        request: names the partitions.
        error_of: gives the error of a TopicPartition.
    """
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name,
                topic_id,
                [OffsetCommitResponsePartition(at, error_of(TopicPartition(name, at))) for at in partitions],
            )
            for (name, topic_id), partitions in _named_once(request).items()
        ]
    )


def _named_once(request: OffsetCommitRequest) -> dict[tuple[str, bytes], dict[int, None]]:
    """Return the named partitions, each once, by topic name and id."""
    named: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in request.topics:
        for item in topic.partitions:
            named.setdefault((topic.name, topic.topic_id), {})[item.partition_index] = None
    return named


API = ServedApi(
    apis.OFFSET_COMMIT,
    handle,
    guard=parts.offset_commit,
    form=Form((by_topic("name", "topic_id"),)),
    divisible=(("topics", "partitions"),),
    is_small=True,
)
