"""DescribeGroups (15), versions 0-6: state and members of groups; an unknown group is Dead.

Up to version 5 that is no error; from version 6 on, which KRaft mode has, it is GROUP_ID_NOT_FOUND (KIP-1043).
Source: ``KafkaApis.handleDescribeGroupsRequest``, ``GroupCoordinatorAdapter.describeGroups``;
``GroupMetadataManager.describeGroups`` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

GROUP_OPERATIONS = 328
"""Read, delete and describe as bits of ``AclOperation``: all are allowed without an authorizer."""


_FIRST_WITH_MESSAGES = 6


def handle(request: DescribeGroupsRequest, context: Context) -> Any:
    """Describe groups, each for itself."""
    return begun(_describe(request, context))


async def _describe(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            await _of(group_id, context, with_operations=request.include_authorized_operations)
            for group_id in request.groups
        ]
    )


async def _of(group_id: str, context: Context, *, with_operations: bool) -> DescribedGroup:
    found = await context.service.groups.ask(groups.DescribeGroup(group_id))
    if (
        context.version >= _FIRST_WITH_MESSAGES
        and found.error is ErrorCode.NONE
        and found.state == groups.GroupState.DEAD.value
    ):
        why = "is not a classic group" if found.is_of_another_type else "not found"
        return DescribedGroup(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} {why}.",
            group_id,
            found.state,
            authorized_operations=NOT_ASKED_FOR,
        )
    return DescribedGroup(
        found.error,
        None,
        group_id,
        found.state,
        found.protocol_type,
        found.protocol_name,
        [
            DescribedGroupMember(
                one.member_id, one.group_instance_id, one.client_id, one.client_host, one.metadata, one.assignment
            )
            for one in found.members
        ],
        GROUP_OPERATIONS if with_operations and found.error is ErrorCode.NONE else NOT_ASKED_FOR,
    )


API = ServedApi(
    apis.DESCRIBE_GROUPS,
    handle,
    guard=listed.describe_groups,
    form=Form((Part("groups", "groups", {"group_id": ""}),)),
    only_reads=True,
    division=Division("groups", "groups"),
    is_counted=True,
)
