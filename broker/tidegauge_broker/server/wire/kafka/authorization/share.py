"""Guards of the APIs by which members of share groups fetch and acknowledge (KIP-932).

Source: ``KafkaApis`` (handleShareFetchRequest, handleShareAcknowledgeRequest) of Kafka 4.3.
"""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge_broker.server.wire.kafka.authorization.asking import BY_GROUP, Ask
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.responses import Response


def group_and_topics(request: Any, ask: Ask, handler: Handler) -> Response:
    """ShareFetch, ShareAcknowledge: READ of the group, and of each topic; without a group the request is invalid."""
    if request.group_id is not None and not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP)
    ask.context.may_read = ask.topics(Operation.READ)
    return handler(request, ask.context)
