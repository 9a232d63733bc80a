"""ConsumerGroupDescribe (69), versions 0-1: epochs, members and assignments of consumer groups (KIP-848).

An extension of ZooKeeper mode, as ConsumerGroupHeartbeat is. A group that is unknown, or of another type, gets
GROUP_ID_NOT_FOUND: clients then try DescribeGroups.
Source: ``KafkaApis.handleConsumerGroupDescribe``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegauge import consumer_groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tidegauge_broker.server.wire.kafka.authorization import consumers
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.handlers.describe_groups import GROUP_OPERATIONS
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_CLASSIC, _CONSUMER = 0, 1


def handle(request: ConsumerGroupDescribeRequest, context: Context) -> Any:
    """Describe groups, each for itself."""
    return begun(_describe(request, context))


async def _describe(request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    described = [
        response_of(
            await context.service.groups.ask(consumer_groups.DescribeConsumerGroup(group_id)),
            with_operations=request.include_authorized_operations,
        )
        for group_id in request.group_ids
    ]
    return ConsumerGroupDescribeResponse(groups=described)


def response_of(result: consumer_groups.DescribeConsumerGroupResult, *, with_operations: bool) -> DescribedGroup:
    """Return the coordinator's result as part of a response."""
    return DescribedGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=result.group_id,
        group_state=result.state,
        group_epoch=result.group_epoch,
        assignment_epoch=result.assignment_epoch,
        assignor_name=result.assignor,
        members=[_member(one) for one in result.members],
        authorized_operations=GROUP_OPERATIONS if with_operations and not result.error else NOT_ASKED_FOR,
    )


def _member(one: consumer_groups.DescribedConsumer) -> Member:
    return Member(
        member_id=one.member_id,
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        member_epoch=one.member_epoch,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=one.topic_names,
        subscribed_topic_regex=one.topic_regex,
        assignment=_assignment(one.assignment),
        target_assignment=_assignment(one.target),
        member_type=_CLASSIC if one.is_classic else _CONSUMER,
    )


def _assignment(partitions: Iterable[consumer_groups.NamedPartitions]) -> Assignment:
    return Assignment([TopicPartitions(one.topic_id, one.topic, one.partitions) for one in partitions])


API = ServedApi(
    apis.CONSUMER_GROUP_DESCRIBE,
    handle,
    guard=consumers.describe,
    form=Form((Part("groups", "group_ids", {"group_id": ""}),)),
    only_reads=True,
    division=Division("group_ids", "groups"),
    is_counted=True,
)
