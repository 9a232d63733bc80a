"""Metadata (3), versions 0-12: this broker's metadata cache, as clients of the request's listener see it.

No topics mean all topics in version 0 and none later; null means all. Versions 10 and 11 respond with topic ids,
version 12 takes them as well; names beside an id are then not looked at. Before it a request with an id, or a topic
without a name, is refused, and nothing else is named; from it on a topic with neither fails the request.
Brokers without the listener are left out; a partition that one of them leads has LISTENER_NOT_FOUND (version 6 on,
LEADER_NOT_AVAILABLE before), one without a leader LEADER_NOT_AVAILABLE.
An unknown topic that client and broker may create is being created: the first response says LEADER_NOT_AVAILABLE.
Source: ``KafkaApis.handleTopicMetadataRequest``, ``ZkMetadataCache.getPartitionMetadata``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from tidegauge.cluster_metadata.access_lists import CLUSTER_NAME, Operation, ResourceType
from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge.partition import INTERNAL_TOPICS
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.service.cluster_view import ClusterView, PartitionView, TopicView, Unreachable
from tidegauge_broker.server.wire.kafka.authorization.asking import BY_TOPIC, Ask
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_FIRST_WITH_LISTENER_NOT_FOUND = 6
_CLUSTER_OPERATIONS_TO = 10
_FIRST_WITH_IDS_IN_REQUESTS = 12
_FIRST_WITH_ERROR = 13


def handle(request: MetadataRequest, context: Context) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Return this broker's view of the cluster, a large one in turns."""
    version = context.version
    asked = request.topics
    refused = refusal(request, version)
    if refused is not None:
        return refused
    wants_all = asked is None or (version == 0 and not asked)
    names, unknown = ([], []) if wants_all else _resolve(asked or (), context)
    view = context.service.metadata(
        context.caller,
        None if wants_all else names,
        may_create=request.allow_auto_topic_creation,
        unreachable=Unreachable.ERROR if version >= _FIRST_WITH_LISTENER_NOT_FOUND else Unreachable.DEAD,
    )
    reachable = {endpoint.broker_id for endpoint in view.brokers} if version == 0 else None
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED_FOR
    if len(view.topics) + sum(len(topic.partitions) for topic in view.topics) > ITEMS_PER_TURN:
        return _in_turns(request, view, reachable, operations, unknown)
    topics = [_topic(topic, reachable, operations) for topic in view.topics]
    return _response(request, view, [*topics, *unknown])


async def _in_turns(
    request: MetadataRequest,
    view: ClusterView,
    reachable: set[int] | None,
    operations: int,
    unknown: Sequence[MetadataResponseTopic],
) -> MetadataResponse:
    """Return the response of ``handle``; the view is of one moment."""
    topics: list[MetadataResponseTopic] = []
    async for topic in with_turns(view.topics, ITEMS_PER_TURN):
        partitions = topic.partitions
        found = _topic(TopicView(topic.name, topic.error, topic.message, topic.topic_id), reachable, operations)
        found.partitions = [_partition(one, reachable) async for one in with_turns(partitions, ITEMS_PER_TURN)]
        topics.append(found)
    return _response(request, view, [*topics, *unknown])


def _response(request: MetadataRequest, view: ClusterView, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(one.broker_id, one.host, one.port, one.rack) for one in view.brokers],
        cluster_id=view.cluster_id,
        controller_id=-1 if view.controller_id is None else view.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def refusal(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """Return the refusal of a request; None: it is served.

    Before version 12 topics have names and no ids. From it on a topic that has neither fails the request, unless
    another one has an id (Kafka's broker fails over it with a NullPointerException).
    """
    asked = request.topics or ()
    if version < _FIRST_WITH_IDS_IN_REQUESTS:
        is_served = all(topic.topic_id == NIL_UUID and topic.name is not None for topic in asked)
        return None if is_served else _refused(asked, ErrorCode.INVALID_REQUEST)
    if all(topic.topic_id != NIL_UUID or topic.name is not None for topic in named_by_id(asked)):
        return None
    response = _refused(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
    if version >= _FIRST_WITH_ERROR:
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return response


def named_by_id(asked: Sequence[MetadataRequestTopic]) -> Sequence[MetadataRequestTopic]:
    """Return the topics requested by id; all, if there are none."""
    return [topic for topic in asked if topic.topic_id != NIL_UUID] or asked


def _resolve(asked: Sequence[MetadataRequestTopic], context: Context) -> tuple[list[str], list[MetadataResponseTopic]]:
    """Return the requested names, and responses for unknown ids.

    If a topic is requested by its id, topics requested by name have no response.
    """
    names: dict[str, None] = {}
    unknown: list[MetadataResponseTopic] = []
    for topic in named_by_id(asked):
        if topic.topic_id == NIL_UUID:
            names[topic.name or ""] = None
        else:
            name = context.service.topic_name(topic_id_text(topic.topic_id))
            if name is None:
                unknown.append(_failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id))
            else:
                names[name] = None
    return list(names), unknown


def _refused(asked: Sequence[MetadataRequestTopic], error: ErrorCode) -> MetadataResponse:
    """Return the response to a request that is refused as a whole (``MetadataRequest.getErrorResponse``)."""
    return MetadataResponse(
        topics=[_failed(error, topic.name or "", topic.topic_id) for topic in asked],
        cluster_authorized_operations=NOT_ASKED_FOR,
    )


def _failed(error: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error, name, topic_id, topic_authorized_operations=NOT_ASKED_FOR)


def _topic(topic: TopicView, reachable: set[int] | None, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        topic.error,
        topic.name,
        topic_id_bytes(topic.topic_id) if topic.topic_id else NIL_UUID,
        topic.name in INTERNAL_TOPICS,
        [_partition(one, reachable) for one in topic.partitions],
        operations,
    )


def _partition(one: PartitionView, reachable: set[int] | None) -> MetadataResponsePartition:
    """Return a partition; ``reachable`` gives it version 0's form.

    That has live replicas only, and an error if some are not.
    """
    error, replicas, isr = one.error, one.replicas, one.isr
    if reachable is not None:
        if error is ErrorCode.NONE and not {*replicas, *isr} <= reachable:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [replica for replica in replicas if replica in reachable]
        isr = [replica for replica in isr if replica in reachable]
    return MetadataResponsePartition(
        error,
        one.partition,
        NO_LEADER if one.leader is None else one.leader,
        one.leader_epoch,
        replicas,
        isr,
        one.offline_replicas,
    )


def _guard(request: Any, ask: Ask, handler: Handler) -> Response:
    """Metadata: DESCRIBE of each topic; of those that are not there CREATE too, if they would be created.

    Whether a topic exists is not said to who may not describe it. Of all topics, those are left out.
    """
    version, asked = ask.context.version, request.topics
    malformed = refusal(request, version)
    if malformed is not None:
        return malformed
    if asked is None or (version == 0 and not asked):
        return _finished(handler(request, ask.context), partial(_without_hidden, ask), request, ask)
    may_create = request.allow_auto_topic_creation and ask.context.service.settings.flag("auto.create.topics.enable")
    allowed: list[MetadataRequestTopic] = []
    refused: list[MetadataResponseTopic] = []
    for item in named_by_id(asked):
        found = _refused_topic(item, ask, may_create=may_create)
        if found is None:
            allowed.append(item)
        else:
            refused.append(found)
    response = handler(dataclasses.replace(request, topics=allowed) if refused else request, ask.context)
    return _finished(response, lambda topics: [*(topics if allowed else ()), *refused], request, ask)


Topics = list[MetadataResponseTopic]


def _without_hidden(ask: Ask, topics: Topics) -> Topics:
    """Return the topics that the caller may describe."""
    return [one for one in topics if ask.topic(Operation.DESCRIBE, one.name or "", logs=False)]


def _finished(response: Any, shown: Callable[[Topics], Topics], request: Any, ask: Ask) -> Response:
    """Return the response with the visible topics, and authorized operations if requested."""
    if asyncio.iscoroutine(response):
        return _finished_later(response, shown, request, ask)
    response.topics = shown(response.topics)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code != BY_TOPIC and topic.name is not None:
                topic.topic_authorized_operations = ask.operations(ResourceType.TOPIC, topic.name)
    if request.include_cluster_authorized_operations and ask.context.version <= _CLUSTER_OPERATIONS_TO:
        may_describe = ask.cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = (
            ask.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_describe else 0
        )
    return response


async def _finished_later(
    response: Coroutine[Any, Any, MetadataResponse], shown: Callable[[Topics], Topics], request: Any, ask: Ask
) -> Any:
    return _finished(await response, shown, request, ask)


def _refused_topic(item: Any, ask: Ask, *, may_create: bool) -> MetadataResponseTopic | None:
    """Return the refusal of a requested topic; None: not refused here."""
    by_id = item.topic_id != NIL_UUID
    name = ask.context.service.topic_name(topic_id_text(item.topic_id)) if by_id else item.name
    if name is None:
        return None
    if not ask.topic(Operation.DESCRIBE, name):
        name, topic_id = (None, item.topic_id) if by_id else (name, NIL_UUID)
    elif by_id or not may_create or _exists(name, ask.context) or _may_be_created(name, ask):
        return None
    else:
        topic_id = NIL_UUID
    return MetadataResponseTopic(BY_TOPIC, name, topic_id, topic_authorized_operations=NOT_ASKED_FOR)


def _exists(name: str, context: Context) -> bool:
    found = context.service.metadata(context.caller, [name], may_create=False).topics[0]
    return found.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _may_be_created(name: str, ask: Ask) -> bool:
    return ask.cluster(Operation.CREATE, logs=False) or ask.topic(Operation.CREATE, name)


API = ServedApi(
    apis.METADATA,
    handle,
    guard=_guard,
    form=Form((Part("topics", "topics", same("name", "topic_id")),)),
    only_reads=True,
    division=Division("topics", "topics", judges_repeats=True),
    is_counted=True,
)
