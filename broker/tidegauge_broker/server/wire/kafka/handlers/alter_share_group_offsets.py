"""AlterShareGroupOffsets (91), version 0: an administrator begins share partitions at other offsets.

The group must have no members; one that does not exist is made. Any offset is taken.
Source: ``KafkaApis.handleAlterShareGroupOffsetsRequest``.
"""

from __future__ import annotations

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from tidegauge.share_groups import AlteredOffset, AlterShareOffsets
from tidegauge_broker.server.wire.kafka.authorization import shares
from tidegauge_broker.server.wire.kafka.error_forms import Form
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_UNKNOWN = AlteredOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


async def handle(request: AlterShareGroupOffsetsRequest, context: Context) -> AlterShareGroupOffsetsResponse:
    """Alter offsets; the response comes when the share coordinators have begun the partitions."""
    return await to_its_end(_alter(request, context))


async def _alter(request: AlterShareGroupOffsetsRequest, context: Context) -> AlterShareGroupOffsetsResponse:
    topic_id = context.service.groups.shares.topic_id
    offsets = {
        topic.topic_name: {one.partition_index: one.start_offset for one in topic.partitions}
        for topic in request.topics
    }
    unknown = {
        name: dict.fromkeys(partitions, _UNKNOWN) for name, partitions in offsets.items() if not any(topic_id(name))
    }
    wanted = AlterShareOffsets(
        request.group_id, {name: partitions for name, partitions in offsets.items() if name not in unknown}
    )
    found = await context.service.groups.ask(wanted)
    if found.error is not ErrorCode.NONE:
        message = found.message or ERROR_TABLE[found.error].meaning
        return AlterShareGroupOffsetsResponse(error_code=found.error, error_message=message)
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                name, topic_id(name), [_partition(partition, altered) for partition, altered in partitions.items()]
            )
            for name, partitions in {**unknown, **found.partitions}.items()
        ]
    )


def _partition(partition: int, altered: AlteredOffset) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(partition, altered.error, explained(altered))


def explained(altered: AlteredOffset) -> str | None:
    """Return an error's message: its own, or else its general meaning."""
    if altered.error is ErrorCode.NONE:
        return None
    return altered.message or ERROR_TABLE[altered.error].meaning


API = ServedApi(
    apis.ALTER_SHARE_GROUP_OFFSETS, handle, guard=shares.alter_offsets, form=Form(is_explained=True), is_counted=True
)
