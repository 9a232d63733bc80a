"""Guards that refuse the parts of a request that the principal may not do, and hand the rest on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidegauge.kafka.messages.create_partitions import CreatePartitionsTopicResult
from tidegauge.kafka.messages.create_topics import CreatableTopicResult
from tidegauge.kafka.messages.delete_groups import DeletableGroupResult
from tidegauge.kafka.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from tidegauge.kafka.messages.delete_topics import DeletableTopicResult
from tidegauge.kafka.messages.describe_producers import PartitionResponse, TopicResponse
from tidegauge.kafka.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from tidegauge.kafka.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka import partial_errors
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_CLUSTER,
    BY_GROUP,
    BY_TOPIC,
    BY_TOPIC_MESSAGE,
    BY_TRANSACTION,
    Ask,
    Guard,
    Parts,
    changed,
    merged,
    parted,
)
from tidegauge_broker.server.wire.kafka.handlers.common import is_unknown, name_topics
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Handler
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_controller.admin import NAMED_TWICE, repeated_names


def _by_known_name(ask: Ask, operation: Operation, topics: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a predicate for allowed topics; the handler refuses unknown ids."""
    name_topics(topics, ask.context)
    may = ask.topics(operation)
    return lambda item: is_unknown(item) or may(item.name)


def _by_name(ask: Ask, operation: Operation) -> Callable[[Any], bool]:
    """Return what says whether a topic of a request is allowed."""
    may = ask.topics(operation)
    return lambda item: may(item.name)


def _appended(field: str, results: Sequence[Any]) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        setattr(message, field, [*getattr(message, field), *results])

    return change


def _in_order(field: str, verdicts: Sequence[bool], results: Sequence[Any]) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        setattr(message, field, merged(verdicts, getattr(message, field), results))

    return change


def of_topics(
    operation: Operation, items: str, results: str, refuse: Callable[[Any], Any], *, in_order: bool = False
) -> Guard:
    """Return a guard of requests whose topics are judged one by one.

    Args:
        operation: that is needed with each topic.
        items: field of the request with its topics.
        results: field of the response with theirs.
        refuse: returns the result for a topic that is refused.
        in_order: whether results have the order of the request; else those that are refused come last.
    """

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        allowed, refused, verdicts = parted(getattr(request, items), _by_name(ask, operation))
        if not refused:
            return handler(request, ask.context)
        rest = handler(dataclasses.replace(request, **{items: allowed}), ask.context)
        refusals = [refuse(item) for item in refused]
        return changed(rest, _in_order(results, verdicts, refusals) if in_order else _appended(results, refusals))

    return guard


def _list_offsets(topic: Any) -> Any:
    partitions = [ListOffsetsPartitionResponse(one.partition_index, BY_TOPIC) for one in topic.partitions]
    return ListOffsetsTopicResponse(topic.name, partitions)


def _delete_records(topic: Any) -> Any:
    partitions = [DeleteRecordsPartitionResult(one.partition_index, -1, BY_TOPIC) for one in topic.partitions]
    return DeleteRecordsTopicResult(topic.name, partitions)


def _describe_producers(topic: Any) -> Any:
    partitions = [PartitionResponse(one, BY_TOPIC, BY_TOPIC_MESSAGE) for one in topic.partition_indexes]
    return TopicResponse(topic.name, partitions)


LIST_OFFSETS = of_topics(Operation.DESCRIBE, "topics", "topics", _list_offsets)
DELETE_RECORDS = of_topics(Operation.DELETE, "topics", "topics", _delete_records)
DESCRIBE_PRODUCERS = of_topics(Operation.READ, "topics", "topics", _describe_producers, in_order=True)


def offset_for_leader_epoch(request: Any, ask: Ask, handler: Handler) -> Response:
    """OffsetForLeaderEpoch: CLUSTER_ACTION of the cluster, else DESCRIBE of each topic."""
    if ask.cluster(Operation.CLUSTER_ACTION, logs=False):
        return handler(request, ask.context)
    allowed, refused, _ = parted(request.topics, lambda item: ask.topic(Operation.DESCRIBE, item.topic))
    if not refused:
        return handler(request, ask.context)
    results = [
        OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(BY_TOPIC, one.partition) for one in topic.partitions])
        for topic in refused
    ]
    rest = handler(dataclasses.replace(request, topics=allowed), ask.context)
    return changed(rest, _appended("topics", results))


def _joined(
    ask: Ask, request: Any, handler: Handler, field: str, parts: Parts, *, refused_first: bool = False
) -> Response:
    """Handle the allowed part, and join the results of the refused part with TOPIC_AUTHORIZATION_FAILED."""
    allowed, refused, _ = parts
    if not refused:
        return handler(request, ask.context)
    response = ask.refused(dataclasses.replace(request, **{field: refused}), BY_TOPIC)
    if not allowed:
        return response
    rest = handler(dataclasses.replace(request, **{field: allowed}), ask.context)

    def change(message: Any) -> None:
        if refused_first:
            partial_errors.join(response, message)
            setattr(message, field, getattr(response, field))
        else:
            partial_errors.join(message, response)

    return changed(rest, change)


def produce(request: Any, ask: Ask, handler: Handler) -> Response:
    """Produce: WRITE of the transactional id where a batch is transactional, then WRITE of each topic."""
    if _has_transactional(request) and not ask.transaction(Operation.WRITE, request.transactional_id):
        return _unless_silent(request, ask.refused(request, BY_TRANSACTION))
    parts = parted(request.topic_data, _by_known_name(ask, Operation.WRITE, request.topic_data))
    if parts.refused and request.acks == 0:
        return _unless_silent(request, None)
    return _joined(ask, request, handler, "topic_data", parts)


def _has_transactional(request: Any) -> bool:
    """Return whether a partition's first batch is transactional (``RequestUtils.hasTransactionalRecords``)."""
    return any(
        one.records is not None
        and len(one.records) > _ATTRIBUTES_AT
        and one.records[_MAGIC_AT] == _WITH_ATTRIBUTES
        and one.records[_ATTRIBUTES_AT] & _TRANSACTIONAL
        for topic in request.topic_data
        for one in topic.partition_data
    )


_MAGIC_AT, _ATTRIBUTES_AT = 16, 22
"""The position of a batch's magic, and of the lower byte of its attributes."""
_WITH_ATTRIBUTES = 2
_TRANSACTIONAL = 0x10


def _unless_silent(request: Any, response: Any) -> Any:
    """Return a response; raise for acks=0, which has no other sign."""
    if request.acks == 0:
        raise CloseConnection("a Produce with acks=0 was not allowed; nothing else could notify the client")
    return response


def offset_commit(request: Any, ask: Ask, handler: Handler) -> Response:
    """OffsetCommit: READ of the group, then READ of each topic."""
    if not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP)
    parts = parted(request.topics, _by_known_name(ask, Operation.READ, request.topics))
    return _joined(ask, request, handler, "topics", parts, refused_first=True)


def txn_offset_commit(request: Any, ask: Ask, handler: Handler) -> Response:
    """TxnOffsetCommit: WRITE of the transactional id, READ of the group, then READ of each topic."""
    if not ask.transaction(Operation.WRITE, request.transactional_id):
        return ask.refused(request, BY_TRANSACTION)
    return offset_commit(request, ask, handler)


def create_topics(request: Any, ask: Ask, handler: Handler) -> Response:
    """CreateTopics: CREATE of the cluster or of each topic; the settings are shown to who may DESCRIBE_CONFIGS."""
    if not ask.context.service.is_controller:
        return ask.refused(request, ErrorCode.NOT_CONTROLLER, "")
    may_all = ask.cluster(Operation.CREATE, logs=False)
    repeated = repeated_names(topic.name for topic in request.topics)
    may = ask.topics(Operation.CREATE)
    allowed, refused, _ = parted(request.topics, lambda one: may_all or may(one.name))
    response = handler(dataclasses.replace(request, topics=allowed) if refused else request, ask.context)
    results = [_not_created(one.name, is_repeated=one.name in repeated) for one in refused]

    position = {one.name: at for at, one in enumerate(request.topics)}
    judged_by_name = repeated | {one.name for one in refused}

    def change(message: Any) -> None:
        message.topics = sorted([*message.topics, *results], key=lambda one: position.get(one.name, len(position)))
        for topic in message.topics:
            if ask.topic(Operation.DESCRIBE_CONFIGS, topic.name, logs=False):
                continue
            _leave_out_details(topic)
            # Kafka clears this error where the creation itself failed (KafkaApis, handleCreateTopicsResults).
            if topic.error_code == ErrorCode.NONE or topic.name in judged_by_name:
                topic.topic_config_error_code = BY_TOPIC

    return changed(response, change)


def _not_created(name: str, *, is_repeated: bool) -> CreatableTopicResult:
    """Return the result for a topic that may not be created.

    A repeated name has the same error for every principal.
    """
    if is_repeated:
        return CreatableTopicResult(name, error_code=ErrorCode.INVALID_REQUEST, error_message=NAMED_TWICE)
    return CreatableTopicResult(name, error_code=BY_TOPIC, error_message="Authorization failed.")


def _leave_out_details(topic: CreatableTopicResult) -> None:
    """Remove what CreateTopics says of a topic to those alone who may DESCRIBE_CONFIGS, its id included.

    Source: ``ZkAdminManager.createTopics``, ``includeConfigsAndMetadata``.
    """
    topic.topic_id, topic.configs, topic.num_partitions, topic.replication_factor = NIL_UUID, (), -1, -1


def create_partitions(request: Any, ask: Ask, handler: Handler) -> Response:
    """CreatePartitions: ALTER of each topic."""
    if not ask.context.service.is_controller:
        return ask.refused(request, ErrorCode.NOT_CONTROLLER)

    def refuse(topic: Any) -> Any:
        return CreatePartitionsTopicResult(topic.name, BY_TOPIC, "The topic authorization is failed.")

    return of_topics(Operation.ALTER, "topics", "results", refuse)(request, ask, handler)


def delete_topics(request: Any, ask: Ask, handler: Handler) -> Response:
    """DeleteTopics: DELETE of each topic; who names an id and may not DESCRIBE it does not learn the name."""
    if not ask.context.service.is_controller:
        return ask.refused(request, ErrorCode.NOT_CONTROLLER)
    refusals: list[Any] = []
    topics: list[Any] = []
    verdicts: list[bool] = []
    for topic in request.topics:
        by_id = topic.name is None
        name = ask.context.service.topic_name(topic_id_text(topic.topic_id)) if by_id else topic.name
        if name is not None and by_id and not ask.topic(Operation.DESCRIBE, name):
            refusals.append(DeletableTopicResult(None, topic.topic_id, BY_TOPIC))
        elif name is not None and not ask.topic(Operation.DELETE, name):
            refusals.append(DeletableTopicResult(name, topic.topic_id, BY_TOPIC))
        else:
            topics.append(topic)  # also the id of no topic: the handler says so
        verdicts.append(bool(topics) and topics[-1] is topic)
    names = parted(request.topic_names, ask.topics(Operation.DELETE))
    refusals += [DeletableTopicResult(name, error_code=BY_TOPIC) for name in names.refused]
    if not refusals:
        return handler(request, ask.context)
    rest = handler(dataclasses.replace(request, topics=topics, topic_names=names.allowed), ask.context)
    return changed(rest, _in_order("responses", [*verdicts, *names.verdicts], refusals))


def delete_groups(request: Any, ask: Ask, handler: Handler) -> Response:
    """DeleteGroups: DELETE of each group."""
    allowed, refused, _ = parted(request.groups_names, lambda name: ask.group(Operation.DELETE, name))
    if not refused:
        return handler(request, ask.context)
    rest = handler(dataclasses.replace(request, groups_names=allowed), ask.context)
    return changed(rest, _appended("results", [DeletableGroupResult(name, BY_GROUP) for name in refused]))


def add_partitions_to_txn(request: Any, ask: Ask, handler: Handler) -> Response:
    """AddPartitionsToTxn: WRITE of the transactional id and of each topic, or none; from brokers CLUSTER_ACTION."""
    if ask.context.version >= _BY_BROKERS:
        if not ask.cluster(Operation.CLUSTER_ACTION):
            return ask.refused(request, BY_CLUSTER)
        return handler(request, ask.context)
    topics = request.v3_and_below_topics
    if not ask.transaction(Operation.WRITE, request.v3_and_below_transactional_id):
        return _of_transaction(topics, lambda _: BY_TRANSACTION)
    allowed, refused, _ = parted(topics, _by_name(ask, Operation.WRITE))
    if not refused:
        return handler(request, ask.context)
    names = {topic.name for topic in allowed}
    return _of_transaction(topics, lambda topic: ErrorCode.OPERATION_NOT_ATTEMPTED if topic.name in names else BY_TOPIC)


_BY_BROKERS = 4
"""Version from which on AddPartitionsToTxn is a broker's, for several transactions."""


def _of_transaction(topics: Sequence[Any], error: Callable[[Any], ErrorCode]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(one, error(topic)) for one in topic.partitions]
            )
            for topic in topics
        ]
    )


_CONFIG_REFUSALS = {ConfigResourceType.TOPIC: BY_TOPIC, ConfigResourceType.GROUP: BY_GROUP}


def of_configs(
    operation: Operation, field: str, refuse: Callable[[Any, ErrorCode], Any], *, in_order: bool = False
) -> Guard:
    """Return a guard of settings requests: by topic, group, or cluster (brokers).

    Args:
        operation: that is needed.
        field: of the response, with a result for each resource.
        refuse: returns the result for a resource that is refused.
        in_order: whether results have the order of the request; else those that are refused come last.
    """

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        def may(resource: Any) -> bool:
            if resource.resource_type == ConfigResourceType.TOPIC:
                return ask.topic(operation, resource.resource_name)
            if resource.resource_type == ConfigResourceType.GROUP:
                return ask.group(operation, resource.resource_name)
            return ask.cluster(operation)

        allowed, refused, verdicts = parted(request.resources, may)
        if not refused:
            return handler(request, ask.context)
        results = [refuse(one, _CONFIG_REFUSALS.get(one.resource_type, BY_CLUSTER)) for one in refused]
        rest = handler(dataclasses.replace(request, resources=allowed), ask.context)
        return changed(rest, _in_order(field, verdicts, results) if in_order else _appended(field, results))

    return guard
