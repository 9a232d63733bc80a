"""DeleteShareGroupOffsets (92), version 0: an administrator has the states of whole topics of a share group forgotten.

The group must have no members.
Source: ``KafkaApis.handleDeleteShareGroupOffsetsRequest``.
"""

from __future__ import annotations

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from tidegauge.share_groups import DeleteShareOffsets
from tidegauge_broker.server.wire.kafka.authorization import shares
from tidegauge_broker.server.wire.kafka.error_forms import Form
from tidegauge_broker.server.wire.kafka.handlers.alter_share_group_offsets import explained
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: DeleteShareGroupOffsetsRequest, context: Context) -> DeleteShareGroupOffsetsResponse:
    """Delete offsets; the response comes when the share coordinators have forgotten the partitions."""
    return await to_its_end(_delete(request, context))


async def _delete(request: DeleteShareGroupOffsetsRequest, context: Context) -> DeleteShareGroupOffsetsResponse:
    names = list(dict.fromkeys(one.topic_name for one in request.topics))
    found = await context.service.groups.ask(DeleteShareOffsets(request.group_id, names))
    if found.error is not ErrorCode.NONE:
        message = found.message or ERROR_TABLE[found.error].meaning
        return DeleteShareGroupOffsetsResponse(error_code=found.error, error_message=message)
    topic_id = context.service.groups.shares.topic_id
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(name, topic_id(name), deleted.error, explained(deleted))
            for name, deleted in found.topics.items()
        ]
    )


API = ServedApi(
    apis.DELETE_SHARE_GROUP_OFFSETS, handle, guard=shares.delete_offsets, form=Form(is_explained=True), is_counted=True
)
