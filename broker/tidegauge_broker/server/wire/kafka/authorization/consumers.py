"""Guards of the APIs of consumer groups (KIP-848).

Source: ``KafkaApis`` (handleConsumerGroupHeartbeat, handleConsumerGroupDescribe) of Kafka 4.3.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.kafka.messages.consumer_group_describe import DescribedGroup
from tidegauge_broker.server.wire.kafka.authorization.asking import BY_GROUP, BY_TOPIC, Ask, changed, if_all, parted
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.responses import Response

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def heartbeat(request: Any, ask: Ask, handler: Handler) -> Response:
    """ConsumerGroupHeartbeat: READ of the group, and DESCRIBE of each topic that is subscribed to by name."""
    if not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP)
    ask.context.may_describe = ask.topics(Operation.DESCRIBE)
    return if_all(
        request.subscribed_topic_names or (),
        partial(ask.topic, Operation.DESCRIBE),
        lambda: handler(request, ask.context),
        lambda: ask.refused(request, BY_TOPIC),
    )


def describe(request: Any, ask: Ask, handler: Handler) -> Response:
    """ConsumerGroupDescribe: DESCRIBE of each group, and of the topics of its members, who are hidden otherwise."""
    allowed, refused, _ = parted(request.group_ids, lambda group: ask.group(Operation.DESCRIBE, group))
    may_describe = ask.topics(Operation.DESCRIBE)

    def change(message: Any) -> None:
        for group in message.groups:
            if group.authorized_operations != NOT_ASKED_FOR:
                group.authorized_operations = ask.operations(ResourceType.GROUP, group.group_id)
            if not all(map(may_describe, _topics(group))):
                group.error_code, group.error_message, group.members = BY_TOPIC, _HIDDEN, []
        failed = [DescribedGroup(BY_GROUP, group_id=group, authorized_operations=NOT_ASKED_FOR) for group in refused]
        message.groups = [*failed, *message.groups]

    return changed(handler(dataclasses.replace(request, group_ids=allowed), ask.context), change)


def _topics(group: DescribedGroup) -> set[str]:
    """Return the topics of members: subscribed, owned and to be owned."""
    found: set[str] = set()
    for member in group.members:
        found.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            if assignment is not None:
                found.update(one.topic_name for one in assignment.topic_partitions)
    return found
