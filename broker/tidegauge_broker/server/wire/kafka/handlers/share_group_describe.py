"""ShareGroupDescribe (77), version 1: epochs, members and assignments of share groups (KIP-932).

A group that is unknown, or of another type, gets GROUP_ID_NOT_FOUND.
Source: ``KafkaApis.handleShareGroupDescribe``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import share_groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from tidegauge_broker.server.wire.kafka.authorization import shares
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.handlers.describe_groups import GROUP_OPERATIONS
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: ShareGroupDescribeRequest, context: Context) -> Any:
    """Describe groups, each for itself."""
    return begun(_describe(request, context))


async def _describe(request: ShareGroupDescribeRequest, context: Context) -> ShareGroupDescribeResponse:
    described = [
        response_of(
            await context.service.groups.ask(share_groups.DescribeShareGroup(group_id)),
            with_operations=request.include_authorized_operations,
        )
        for group_id in request.group_ids
    ]
    return ShareGroupDescribeResponse(groups=described)


def response_of(result: share_groups.DescribeShareGroupResult, *, with_operations: bool) -> DescribedGroup:
    """Return the coordinator's result as part of a response."""
    return DescribedGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=result.group_id,
        group_state="" if result.error else result.state,
        group_epoch=result.group_epoch,
        assignment_epoch=result.assignment_epoch,
        assignor_name=result.assignor,
        members=[_member(one) for one in result.members],
        authorized_operations=GROUP_OPERATIONS if with_operations and not result.error else NOT_ASKED_FOR,
    )


def _member(one: share_groups.DescribedShareMember) -> Member:
    return Member(
        one.member_id,
        one.rack_id,
        one.member_epoch,
        one.client_id,
        one.client_host,
        one.topic_names,
        Assignment([TopicPartitions(held.topic_id, held.topic, held.partitions) for held in one.assignment]),
    )


API = ServedApi(
    apis.SHARE_GROUP_DESCRIBE,
    handle,
    guard=shares.describe,
    form=Form((Part("groups", "group_ids", {"group_id": ""}),)),
    only_reads=True,
    division=Division("group_ids", "groups"),
    is_counted=True,
)
