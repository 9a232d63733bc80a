"""CreatePartitions (37), versions 0-3: at the controller only; elsewhere every topic has NOT_CONTROLLER.

The response comes when this broker's metadata shows leaders for all new partitions.
Source: ``KafkaApis.handleCreatePartitionsRequest``, ``ZkAdminManager.createPartitions``.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import message_of, mutate_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.admin import NewPartitions, TopicOutcome

_FIRST_WITH_QUOTA_ERROR = 3


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    """Give topics more partitions, each for itself."""
    named = Counter(topic.name for topic in request.topics)
    wanted = [
        NewPartitions(topic.name, topic.count, [tuple(one.broker_ids) for one in topic.assignments or ()])
        for topic in request.topics
        if named[topic.name] == 1
    ]
    outcomes = {
        name: TopicOutcome(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        for name, times in named.items()
        if times > 1
    }
    mutate = mutate_of(context, _FIRST_WITH_QUOTA_ERROR)
    created = await context.service.create_partitions(
        wanted, request.timeout_ms, mutate, validate_only=request.validate_only
    )
    outcomes |= {outcome.name: outcome for outcome in created}
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name, outcomes[name].error, _message(outcomes[name])) for name in named]
    )


def _message(outcome: TopicOutcome) -> str | None:
    return None if outcome.error is ErrorCode.NOT_CONTROLLER else message_of(outcome.error, outcome.message)


API = ServedApi(
    apis.CREATE_PARTITIONS,
    handle,
    guard=parts.create_partitions,
    form=Form((Part("results", "topics", same("name")),)),
    divisible=(("topics", ""),),
)
