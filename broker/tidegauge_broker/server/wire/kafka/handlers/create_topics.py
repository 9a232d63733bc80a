"""CreateTopics (19), versions 0-7: at the controller only; elsewhere every topic has NOT_CONTROLLER.

A count of -1 is the broker's default. The response comes when this broker's metadata shows leaders for all partitions,
or with REQUEST_TIMED_OUT, though the topics may still be created. From version 5 on it has the topic's counts and its
settings. Source: ``KafkaApis.handleCreateTopicsRequest``, ``ZkAdminManager.createTopics``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.settings import SettingView
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import SOURCES, message_of, mutate_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.admin import NAMED_TWICE, NewTopic, TopicOutcome, repeated_names
from tidegauge_controller.rules.topics import already_exists

_DEFAULT = -1
_FIRST_WITH_DETAILS = 5
_FIRST_WITH_QUOTA_ERROR = 6


async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """Create topics, each for itself."""
    duplicates = repeated_names(topic.name for topic in request.topics)
    outcomes: dict[str, TopicOutcome] = {}
    wanted: list[NewTopic] = []
    for topic in request.topics:
        if topic.name in outcomes:
            continue
        try:
            wanted.append(_new_topic(topic, duplicates))
        except TidegaugeError as problem:
            outcomes[topic.name] = TopicOutcome(topic.name, problem.code, problem.message)
            if topic.name not in duplicates and context.service.topic_id(topic.name) is not None:
                there = already_exists(topic.name)  # counts before what the request says of the topic
                outcomes[topic.name] = TopicOutcome(topic.name, there.code, there.message)
    if not wanted and not context.service.is_controller:
        return _refused_elsewhere(request)
    mutate = mutate_of(context, _FIRST_WITH_QUOTA_ERROR)
    created = await context.service.create_topics(
        wanted, request.timeout_ms, mutate, validate_only=request.validate_only
    )
    outcomes |= {outcome.name: outcome for outcome in created}
    if any(outcome.error is ErrorCode.NOT_CONTROLLER for outcome in created):
        return _refused_elsewhere(request)
    if request.validate_only and context.version >= _FIRST_WITH_DETAILS:
        checked = {topic.name: topic for topic in wanted}
        return CreateTopicsResponse(
            topics=[_checked(outcomes[topic.name], checked.get(topic.name), context) for topic in request.topics]
        )
    return CreateTopicsResponse(topics=[await _result(outcomes[topic.name], context) for topic in request.topics])


def _refused_elsewhere(request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Return the response of a broker that is not the controller."""
    error = ErrorCode.NOT_CONTROLLER
    return CreateTopicsResponse(topics=[CreatableTopicResult(one.name, NIL_UUID, error, "") for one in request.topics])


def _checked(outcome: TopicOutcome, topic: NewTopic | None, context: Context) -> CreatableTopicResult:
    """Return the result for a topic that was only validated."""
    result = CreatableTopicResult(outcome.name, NIL_UUID, outcome.error, message_of(outcome.error, outcome.message))
    if outcome.error is ErrorCode.NONE and topic is not None:
        settings = context.service.settings
        if topic.assignment:
            result.num_partitions = len(topic.assignment)
            result.replication_factor = len(topic.assignment[0])
        else:
            count, factor = topic.partition_count, topic.replication_factor
            result.num_partitions = settings.integer("num.partitions") if count is None else count
            result.replication_factor = settings.integer("default.replication.factor") if factor is None else factor
        result.configs = _configs(context.service.configs.new_topic(topic.configs))
    return result


def _configs(views: Sequence[SettingView]) -> list[CreatableTopicConfigs]:
    return [CreatableTopicConfigs(one.name, one.value, one.is_read_only, SOURCES[one.source]) for one in views]


def _new_topic(topic: CreatableTopic, duplicates: Collection[str]) -> NewTopic:
    """Return what the controller is asked for.

    Raises:
        TidegaugeError: the request contradicts itself.
    """
    if topic.name in duplicates:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        names = ",".join(without_value)
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {names}")
    if topic.assignments and (topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
            "same time.",
        )
    by_partition = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments}
    if sorted(by_partition) != list(range(len(topic.assignments))):
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return NewTopic(
        topic.name,
        None if topic.num_partitions == _DEFAULT else topic.num_partitions,
        None if topic.replication_factor == _DEFAULT else topic.replication_factor,
        [by_partition[partition] for partition in sorted(by_partition)],
        {config.name: config.value or "" for config in topic.configs},
    )


async def _result(outcome: TopicOutcome, context: Context) -> CreatableTopicResult:
    result = CreatableTopicResult(
        outcome.name,
        topic_id_bytes(outcome.topic_id) if outcome.topic_id else NIL_UUID,
        outcome.error,
        message_of(outcome.error, outcome.message),
    )
    if outcome.error is ErrorCode.NONE and outcome.topic_id and context.version >= _FIRST_WITH_DETAILS:
        view = context.service.metadata(context.caller, [outcome.name], may_create=False).topics[0]
        described = await context.service.describe_configs(ConfigResourceType.TOPIC, outcome.name)
        result.num_partitions = len(view.partitions)
        result.replication_factor = len(view.partitions[0].replicas) if view.partitions else -1
        result.configs = _configs(described.entries)
    return result


API = ServedApi(
    apis.CREATE_TOPICS,
    handle,
    guard=parts.create_topics,
    form=Form((Part("topics", "topics", same("name")),)),
    divisible=(("topics", ""),),
    is_counted=True,
)
