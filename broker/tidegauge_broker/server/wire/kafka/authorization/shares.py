"""Guards of the APIs of share groups (KIP-932).

Source: ``KafkaApis`` (handleShareGroupHeartbeat, handleShareGroupDescribe, handleDescribeShareGroupOffsetsRequest,
handleAlterShareGroupOffsetsRequest, handleDeleteShareGroupOffsetsRequest) of Kafka 4.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from tidegauge.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from tidegauge.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tidegauge.kafka.messages.share_group_describe import DescribedGroup
from tidegauge_broker.coordinator.share_group.checks import is_member_id
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_GROUP,
    BY_GROUP_MESSAGE,
    BY_TOPIC,
    BY_TOPIC_MESSAGE,
    Ask,
    changed,
    if_all,
    merged,
    parted,
)
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.responses import Response

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def heartbeat(request: Any, ask: Ask, handler: Handler) -> Response:
    """ShareGroupHeartbeat: READ of the group, and DESCRIBE of each topic that is subscribed to.

    A member id that is none is refused between the two, by the handler.
    """
    if not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP)
    names = (request.subscribed_topic_names or ()) if is_member_id(request.member_id) else ()
    return if_all(
        names,
        partial(ask.topic, Operation.DESCRIBE),
        lambda: handler(request, ask.context),
        lambda: ask.refused(request, BY_TOPIC),
    )


def describe(request: Any, ask: Ask, handler: Handler) -> Response:
    """ShareGroupDescribe: DESCRIBE of each group, and of the topics that its members have."""
    allowed, refused, _ = parted(request.group_ids, lambda group: ask.group(Operation.DESCRIBE, group))
    may_describe = ask.topics(Operation.DESCRIBE)

    def change(message: Any) -> None:
        for group in message.groups:
            if group.authorized_operations != NOT_ASKED_FOR:
                group.authorized_operations = ask.operations(ResourceType.GROUP, group.group_id)
        failed = [DescribedGroup(BY_GROUP, group_id=group) for group in refused]
        message.groups = [*failed, *(_visible(group, may_describe) for group in message.groups)]

    return changed(handler(dataclasses.replace(request, group_ids=allowed), ask.context), change)


def _visible(group: DescribedGroup, may_describe: Any) -> DescribedGroup:
    """Return a group, or its refusal if a member's topic is hidden."""
    held = (one for member in group.members if member.assignment for one in member.assignment.topic_partitions)
    if all(may_describe(one.topic_name) for one in held):
        return group
    return DescribedGroup(BY_TOPIC, _HIDDEN, group.group_id)


def describe_offsets(request: Any, ask: Ask, handler: Handler) -> Response:
    """DescribeShareGroupOffsets: DESCRIBE of each group and topic; without topics those that may be described."""
    allowed, refused, verdicts = parted(request.groups, lambda group: ask.group(Operation.DESCRIBE, group.group_id))
    may_describe = ask.topics(Operation.DESCRIBE)
    hidden = [[one for one in group.topics or () if not may_describe(one.topic_name)] for group in allowed]
    if not refused and not any(hidden):
        return changed(handler(request, ask.context), partial(_hide_topics, may_describe, allowed))
    asked = [
        dataclasses.replace(group, topics=[one for one in group.topics if may_describe(one.topic_name)])
        if missing
        else group
        for group, missing in zip(allowed, hidden, strict=True)
    ]

    def change(message: Any) -> None:
        _hide_topics(may_describe, asked, message)
        for group, missing in zip(message.groups, hidden, strict=False):
            if not group.error_code:
                group.topics = [*group.topics, *map(_hidden_topic, missing)]
        failed = [DescribeShareGroupOffsetsResponseGroup(group.group_id, error_code=BY_GROUP) for group in refused]
        message.groups = merged(verdicts, message.groups, failed)

    return changed(handler(dataclasses.replace(request, groups=asked), ask.context), change)


def _hide_topics(may_describe: Callable[[str], bool], asked: Sequence[Any], message: Any) -> None:
    """Leave out the topics that may not be described where all of a group are asked for."""
    for group, wanted in zip(message.groups, asked, strict=False):
        if wanted.topics is None:
            group.topics = [one for one in group.topics if may_describe(one.topic_name)]


def _hidden_topic(topic: Any) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(one, -1, 0, -1, BY_TOPIC, BY_TOPIC_MESSAGE)
        for one in topic.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic.topic_name, NIL_UUID, partitions)


def alter_offsets(request: Any, ask: Ask, handler: Handler) -> Response:
    """AlterShareGroupOffsets: READ of the group, then of each topic; those refused come first."""
    if not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP, BY_GROUP_MESSAGE)

    def refusal(topic: Any) -> AlterShareGroupOffsetsResponseTopic:
        topic_id = ask.context.service.groups.shares.topic_id
        partitions = [
            AlterShareGroupOffsetsResponsePartition(one.partition_index, BY_TOPIC, BY_TOPIC_MESSAGE)
            for one in topic.partitions
        ]
        return AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id(topic.topic_name), partitions)

    return _by_topic(request, ask, handler, refusal)


def delete_offsets(request: Any, ask: Ask, handler: Handler) -> Response:
    """DeleteShareGroupOffsets: DELETE of the group, then READ of each topic; those refused come first."""
    if not ask.group(Operation.DELETE, request.group_id):
        return ask.refused(request, BY_GROUP, BY_GROUP_MESSAGE)

    def refusal(topic: Any) -> DeleteShareGroupOffsetsResponseTopic:
        return DeleteShareGroupOffsetsResponseTopic(topic.topic_name, NIL_UUID, BY_TOPIC, BY_TOPIC_MESSAGE)

    return _by_topic(request, ask, handler, refusal)


def _by_topic(request: Any, ask: Ask, handler: Handler, refusal: Any) -> Response:
    allowed, refused, _ = parted(request.topics, lambda one: ask.topic(Operation.READ, one.topic_name))
    if not refused:
        return handler(request, ask.context)
    refusals: Sequence[Any] = [refusal(one) for one in refused]

    def change(message: Any) -> None:
        if not message.error_code:
            message.responses = [*refusals, *message.responses]

    return changed(handler(dataclasses.replace(request, topics=allowed), ask.context), change)
