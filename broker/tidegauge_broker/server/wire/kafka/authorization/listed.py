"""Guards of requests whose responses list things: what the principal may not describe is left out, or has an error."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.describe_groups import DescribedGroup
from tidegauge.kafka.messages.describe_transactions import TransactionState
from tidegauge.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidegauge.kafka.messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from tidegauge.kafka.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_CLUSTER,
    BY_GROUP,
    BY_GROUP_MESSAGE,
    BY_TOPIC,
    BY_TRANSACTION,
    Ask,
    changed,
    merged,
    parted,
)
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_ASKED_FOR, is_unknown, name_topics
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.responses import Response

_DESCRIBE = Operation.DESCRIBE
_SEVERAL_KEYS_FROM = 4
_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2
_SHARES_FROM = 6
_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2
_MESSAGES = {BY_GROUP: BY_GROUP_MESSAGE, BY_TRANSACTION: "Transactional Id authorization failed."}


# Groups


def find_coordinator(request: Any, ask: Ask, handler: Handler) -> Response:
    """FindCoordinator: DESCRIBE of the group or of the transactional id, CLUSTER_ACTION for a share partition."""

    def error_of(key: str) -> ErrorCode:
        if request.key_type == _GROUP_KEY and not ask.group(_DESCRIBE, key):
            return BY_GROUP
        if request.key_type == _TRANSACTION_KEY and not ask.transaction(_DESCRIBE, key):
            return BY_TRANSACTION
        is_share = request.key_type == _SHARE_KEY and ask.context.version >= _SHARES_FROM
        if is_share and not ask.cluster(Operation.CLUSTER_ACTION):
            return BY_CLUSTER
        return ErrorCode.NONE

    if ask.context.version < _SEVERAL_KEYS_FROM:
        error = error_of(request.key)
        if error is ErrorCode.NONE:
            return handler(request, ask.context)
        return FindCoordinatorResponse(error_code=error, error_message=_MESSAGES[error], node_id=-1, host="", port=-1)
    errors = {key: error_of(key) for key in request.coordinator_keys}
    verdicts = [not errors[key] for key in request.coordinator_keys]
    refused = [Coordinator(key, -1, "", -1, errors[key]) for key in request.coordinator_keys if errors[key]]
    if not refused:
        return handler(request, ask.context)
    keys = [key for key in request.coordinator_keys if not errors[key]]

    def add(message: Any) -> None:
        message.coordinators = merged(verdicts, message.coordinators, refused)

    return changed(handler(dataclasses.replace(request, coordinator_keys=keys), ask.context), add)


def describe_groups(request: Any, ask: Ask, handler: Handler) -> Response:
    """DescribeGroups: DESCRIBE of each group; the operations are what the caller may do."""
    allowed, refused, _ = parted(request.groups, lambda group: ask.group(_DESCRIBE, group))
    if not refused and not request.include_authorized_operations:
        return handler(request, ask.context)

    def change(message: Any) -> None:
        for group in message.groups:
            if group.authorized_operations != NOT_ASKED_FOR:
                group.authorized_operations = ask.operations(ResourceType.GROUP, group.group_id)
        failed = [DescribedGroup(BY_GROUP, group_id=group, authorized_operations=NOT_ASKED_FOR) for group in refused]
        message.groups = [*failed, *message.groups]

    return changed(handler(dataclasses.replace(request, groups=allowed), ask.context), change)


def list_groups(request: Any, ask: Ask, handler: Handler) -> Response:
    """ListGroups: DESCRIBE of the cluster, else those groups of which DESCRIBE is allowed."""
    response = handler(request, ask.context)
    if ask.cluster(_DESCRIBE, logs=False):
        return response

    def change(message: Any) -> None:
        message.groups = [one for one in message.groups if ask.group(_DESCRIBE, one.group_id, logs=False)]

    return changed(response, change)


def offset_fetch(request: Any, ask: Ask, handler: Handler) -> Response:
    """OffsetFetch: DESCRIBE of the group, then of each topic; of all topics the others are left out.

    A response with an error of the group names no topics (``KafkaApis.fetchOffsetsForGroup``).
    """
    if ask.context.version >= _SEVERAL_GROUPS_FROM:
        return _offset_fetch_of_several(request, ask, handler)
    if not ask.group(_DESCRIBE, request.group_id):
        return _refused_offsets(request, ask)
    may_describe = ask.topics(_DESCRIBE)
    if request.topics is None:

        def keep(message: Any) -> None:
            message.topics = [one for one in message.topics if may_describe(one.name)]

        return changed(handler(request, ask.context), keep)
    allowed, refused, _ = parted(request.topics, lambda topic: may_describe(topic.name))
    if not refused:
        return handler(request, ask.context)
    results = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(one, -1, -1, "", BY_TOPIC) for one in topic.partition_indexes],
        )
        for topic in refused
    ]

    def add(message: Any) -> None:
        if not message.error_code:
            message.topics = [*message.topics, *results]

    return changed(handler(dataclasses.replace(request, topics=allowed), ask.context), add)


def _refused_offsets(request: Any, ask: Ask) -> OffsetFetchResponse:
    if ask.context.version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=BY_GROUP)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(one, -1, -1, "", BY_GROUP) for one in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    )


def _offset_fetch_of_several(request: Any, ask: Ask, handler: Handler) -> Response:
    may_describe = ask.topics(_DESCRIBE)
    wanted: list[OffsetFetchRequestGroup] = []
    failed: list[OffsetFetchResponseGroup] = []
    refusals: list[list[OffsetFetchResponseTopics]] = []
    verdicts: list[bool] = []
    for group in request.groups:
        verdicts.append(ask.group(_DESCRIBE, group.group_id))
        if not verdicts[-1]:
            failed.append(OffsetFetchResponseGroup(group.group_id, [], BY_GROUP))
            continue
        name_topics(group.topics or (), ask.context)
        topics, refused, _ = parted(group.topics or (), lambda one: is_unknown(one) or may_describe(one.name))
        refusals.append([_refused_topics(one) for one in refused])
        wanted.append(dataclasses.replace(group, topics=None if group.topics is None else topics))

    def change(message: Any) -> None:
        for group in message.groups:
            group.topics = [one for one in group.topics if is_unknown(one) or may_describe(one.name)]
        # By position: a request may name a group more than once, with different topics.
        for group, refused in zip(message.groups, refusals, strict=False):
            if not group.error_code:
                group.topics = [*group.topics, *refused]
        message.groups = merged(verdicts, message.groups, failed)

    return changed(handler(dataclasses.replace(request, groups=wanted), ask.context), change)


def _refused_topics(topic: Any) -> OffsetFetchResponseTopics:
    partitions = [OffsetFetchResponsePartitions(one, -1, -1, "", BY_TOPIC) for one in topic.partition_indexes]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def offset_delete(request: Any, ask: Ask, handler: Handler) -> Response:
    """OffsetDelete: DELETE of the group, then READ of each topic."""
    if not ask.group(Operation.DELETE, request.group_id):
        return ask.refused(request, BY_GROUP)
    allowed, refused, _ = parted(request.topics, lambda topic: ask.topic(Operation.READ, topic.name))
    if not refused:
        return handler(request, ask.context)
    results = [
        OffsetDeleteResponseTopic(
            topic.name, [OffsetDeleteResponsePartition(one.partition_index, BY_TOPIC) for one in topic.partitions]
        )
        for topic in refused
    ]

    def add(message: Any) -> None:
        if not message.error_code:
            message.topics = [*results, *message.topics]

    return changed(handler(dataclasses.replace(request, topics=allowed), ask.context), add)


# Transactions


def describe_transactions(request: Any, ask: Ask, handler: Handler) -> Response:
    """DescribeTransactions: DESCRIBE of each transactional id; topics of which it is not allowed are left out."""
    allowed, refused, verdicts = parted(request.transactional_ids, lambda one: ask.transaction(_DESCRIBE, one))
    may_describe = ask.topics(_DESCRIBE)

    def change(message: Any) -> None:
        for state in message.transaction_states:
            state.topics = [one for one in state.topics if may_describe(one.topic)]
        failed = [TransactionState(BY_TRANSACTION, one) for one in refused]
        message.transaction_states = merged(verdicts, message.transaction_states, failed)

    return changed(handler(dataclasses.replace(request, transactional_ids=allowed), ask.context), change)


def list_transactions(request: Any, ask: Ask, handler: Handler) -> Response:
    """ListTransactions: the ids that the caller may DESCRIBE."""

    def change(message: Any) -> None:
        message.transaction_states = [
            one for one in message.transaction_states if ask.transaction(_DESCRIBE, one.transactional_id)
        ]

    return changed(handler(request, ask.context), change)
