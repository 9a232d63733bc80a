"""OffsetFetch (9), versions 0-10: committed offsets of groups; a partition without one has offset -1 and no error.

Versions 0 to 7 ask for one group, later ones for several, each with its own error (KIP-709). Null topics, from version
2 on, mean all that the group has. Versions 0 and 1 have no error of the group: each partition has it. From
version 7 on a client may require stable offsets (KIP-447). Version 0 belongs to offsets in ZooKeeper, which are not
kept here. From version 10 on topics have ids instead of names: one of an unknown id gets UNKNOWN_TOPIC_ID, and
among all that a group has a topic without an id is left out.
Source: ``KafkaApis.handleOffsetFetchRequest``, ``OffsetFetchResponse``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge import groups
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.fields import NIL_UUID, Versions
from tidegauge.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import name_topics
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_OF_ZOOKEEPER = 0
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_WITH_IDS = 10
_Topics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


def handle(request: OffsetFetchRequest, context: Context) -> Any:
    """Return the offsets."""
    if context.version >= _FIRST_WITH_IDS:
        for group in request.groups:
            name_topics(group.topics or (), context)
    if context.version >= _FIRST_WITH_SEVERAL_GROUPS:
        return begun(_of_several(request, context))
    return begun(_of_one(request, context))


async def _of_several(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    asked = [
        context.service.groups.fetch_offsets(
            groups.OffsetFetch(
                group.group_id,
                _partitions(group.topics, names_ids=context.version >= _FIRST_WITH_IDS),
                request.require_stable,
                group.member_id,
                group.member_epoch,
                {topic.name: topic.topic_id for topic in group.topics or ()},
            )
        )
        for group in request.groups
    ]
    # Together, because proofs of leadership wait; of one group without a task.
    results = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
    groups_found = []
    for group, result in zip(request.groups, results, strict=True):
        by_topic = await _by_topic(result, OffsetFetchResponsePartitions)
        if context.version < _FIRST_WITH_IDS:
            topics = [OffsetFetchResponseTopics(name, partitions=found) for name, found in by_topic.items()]
        else:
            topics = _with_ids(group, by_topic, context)
        groups_found.append(
            OffsetFetchResponseGroup(group.group_id, () if result.error is not ErrorCode.NONE else topics, result.error)
        )
    return OffsetFetchResponse(groups=groups_found)


def _with_ids(
    group: OffsetFetchRequestGroup, by_topic: Mapping[str, list[Any]], context: Context
) -> list[OffsetFetchResponseTopics]:
    """Return a group's offsets by topic id, with errors for unknown ids."""
    asked = {topic.name: topic.topic_id for topic in group.topics or ()}
    topics = []
    for name, partitions in by_topic.items():
        topic_id = asked.get(name) or topic_id_bytes(context.service.topic_id(name) or "")
        if topic_id != NIL_UUID:
            topics.append(OffsetFetchResponseTopics(name, topic_id, partitions))
    unknown = [topic for topic in group.topics or () if not topic.name]
    return topics + [OffsetFetchResponseTopics("", one.topic_id, _unknown_offsets(one)) for one in unknown]


def _unknown_offsets(topic: OffsetFetchRequestTopics) -> list[OffsetFetchResponsePartitions]:
    """Return the results of partitions of a topic whose id is unknown."""
    return [
        OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
        for index in topic.partition_indexes
    ]


async def _of_one(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.version
    if version == _OF_ZOOKEEPER:
        result = groups.OffsetFetchResult(ErrorCode.UNSUPPORTED_VERSION)
    else:
        wanted = groups.OffsetFetch(request.group_id, _partitions(request.topics), request.require_stable)
        result = await context.service.groups.fetch_offsets(wanted)
    if result.error is not ErrorCode.NONE and version < _FIRST_WITH_GROUP_ERROR:
        of_all = groups.FetchedOffset(error=result.error)
        result = groups.OffsetFetchResult(offsets=dict.fromkeys(_partitions(request.topics) or (), of_all))
    by_topic = await _by_topic(result, OffsetFetchResponsePartition)
    return OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name, partitions) for name, partitions in by_topic.items()],
        error_code=result.error,
    )


def _partitions(topics: _Topics, *, names_ids: bool = False) -> tuple[TopicPartition, ...] | None:
    """Return the requested partitions; None: all of the group.

    A topic of an unknown id has no name.
    """
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, index)
        for topic in topics
        if topic.name or not names_ids
        for index in topic.partition_indexes
    )


async def _by_topic(result: groups.OffsetFetchResult, make: Any) -> dict[str, list[Any]]:
    """Return the offsets as messages of the class ``make``, by topic."""
    found: dict[str, list[Any]] = {}
    async for at, one in with_turns(result.offsets.items(), ITEMS_PER_TURN):
        message = make(at.partition, one.offset, one.leader_epoch, one.metadata, one.error)
        found.setdefault(at.topic, []).append(message)
    return found


API = ServedApi(
    apis.OFFSET_FETCH,
    handle,
    guard=listed.offset_fetch,
    form=Form(
        (
            Part(
                "topics",
                "topics",
                same("name"),
                Part("partitions", "partition_indexes", NUMBER, values={"committed_offset": -1, "metadata": ""}),
                Versions.of("0-1"),
            ),
            Part("groups", "groups", same("group_id")),
        )
    ),
    only_reads=True,
    is_counted=True,
)
