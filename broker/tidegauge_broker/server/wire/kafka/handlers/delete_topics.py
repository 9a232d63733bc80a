"""DeleteTopics (20), versions 0-6: at the controller only; elsewhere every topic has NOT_CONTROLLER.

Topics are named, or from version 6 on given by id; one with both gets INVALID_REQUEST. With
``delete.topic.enable=false`` every topic has TOPIC_DELETION_DISABLED (before version 3 INVALID_REQUEST).
The response comes when this broker's metadata no longer has the topics. Errors have no messages, as in ZooKeeper mode.
Source: ``KafkaApis.handleDeleteTopicsRequest``.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import mutate_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_IDS = 6
_FIRST_WITH_DELETION_DISABLED = 3
_FIRST_WITH_QUOTA_ERROR = 5


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Delete topics, each for itself."""
    service = context.service
    states = request.topics
    if context.version < _FIRST_WITH_IDS:
        states = [DeleteTopicState(name) for name in request.topic_names]
    if any(state.name is not None and state.topic_id != NIL_UUID for state in states):
        return _all(states, ErrorCode.INVALID_REQUEST)
    if not service.is_controller:
        return _all(states, ErrorCode.NOT_CONTROLLER)
    if not service.settings.flag("delete.topic.enable"):
        has_code = context.version >= _FIRST_WITH_DELETION_DISABLED
        return _all(states, ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST)
    names = [
        service.topic_name(topic_id_text(state.topic_id)) if state.name is None else state.name for state in states
    ]
    named = Counter(names)
    ids = {name: service.topic_id(name) for name in names if name is not None}
    wanted = [name for name, times in named.items() if name is not None and times == 1]
    mutate = mutate_of(context, _FIRST_WITH_QUOTA_ERROR)
    outcomes = {outcome.name: outcome for outcome in await service.delete_topics(wanted, request.timeout_ms, mutate)}
    results = []
    for state, name in zip(states, names, strict=True):
        if name is None:
            results.append(DeletableTopicResult(None, state.topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        if named[name] == 1:
            error = outcomes[name].error
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ids[name] is None else ErrorCode.INVALID_REQUEST
        topic_id = ids[name]
        results.append(DeletableTopicResult(name, topic_id_bytes(topic_id) if topic_id else NIL_UUID, error))
    return DeleteTopicsResponse(responses=results)


def _all(states: object, error: ErrorCode) -> DeleteTopicsResponse:
    assert isinstance(states, list | tuple)
    return DeleteTopicsResponse(responses=[DeletableTopicResult(state.name, state.topic_id, error) for state in states])


API = ServedApi(
    apis.DELETE_TOPICS,
    handle,
    guard=parts.delete_topics,
    form=Form((Part("responses", "topics", same("name", "topic_id")), Part("responses", "topic_names", {"name": ""}))),
    divisible=(("topics", ""), ("topic_names", "")),
)
