"""CreateTopics, DeleteTopics and CreatePartitions at the controller.

Source: ``ControllerApis.createTopics``, ``deleteTopics``, ``createPartitions``; KIP-599 (mutation quotas).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import create_partitions, create_topics, delete_topics
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.authorization import Authorization
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.large_requests import prepared
from tidegauge_broker.server.quorum.controller.mutation_quotas import MutationQuotas
from tidegauge_broker.server.quorum.controller.new_topic_settings import NewTopicSettings
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import topics
from tidegauge_controller.metadata.decisions.view import Decision

_RANDOM = random.SystemRandom()
_STATES = 6
"""The version of DeleteTopics from which topics are named by id too."""
_WITH_DISABLED = 3
"""The version of DeleteTopics from which clients know TOPIC_DELETION_DISABLED."""


_STRICT_CREATE, _STRICT_DELETE, _STRICT_PARTITIONS = 6, 5, 3
"""The versions from which clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def served(
    controller: QuorumController, authorization: Authorization, quotas: MutationQuotas, *, may_delete: bool
) -> list[Served]:
    """Return the APIs; ``may_delete`` is delete.topic.enable."""
    return [
        Served(
            apis.CREATE_TOPICS,
            prepared(
                controller, partial(_create_topics, controller, authorization, quotas, NewTopicSettings(controller))
            ),
            Form((Part("topics", "topics", same("name")),)),
            is_forwarded=True,
        ),
        Served(
            apis.DELETE_TOPICS,
            prepared(controller, partial(_delete_topics, controller, authorization, quotas, may_delete)),
            Form(
                (Part("responses", "topics", same("name", "topic_id")), Part("responses", "topic_names", {"name": ""}))
            ),
            is_forwarded=True,
        ),
        Served(
            apis.CREATE_PARTITIONS,
            prepared(controller, partial(_create_partitions, controller, authorization, quotas)),
            Form((Part("results", "topics", same("name")),)),
            is_forwarded=True,
        ),
    ]


def text_of(error: ErrorCode, message: str) -> str | None:
    """Return an error's message; None if generic (``ApiError``)."""
    return None if error is ErrorCode.NONE or message == ERROR_TABLE[error].meaning else message


def _create_topics(
    controller: QuorumController,
    authorization: Authorization,
    quotas: MutationQuotas,
    settings: NewTopicSettings,
    call: Call,
) -> WriteEvent:
    message: create_topics.CreateTopicsRequest = call.message
    mutations = quotas.of(call, _STRICT_CREATE)
    refused: set[str] = set()
    if not authorization.allows_cluster(call, Operation.CREATE):
        refused = authorization.refused_topics(call, Operation.CREATE, [topic.name for topic in message.topics])
    wanted = [
        topics.TopicToCreate(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
            [(one.name, one.value) for one in topic.configs],
        )
        for topic in message.topics
        if topic.name not in refused
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.create_topics(active.view, wanted, _RANDOM, mutations.mutate, validate_only=message.validate_only)

    def done(results: Sequence[topics.TopicResult]) -> None:
        may_describe = partial(authorization.allows, call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
        own = {one.name: {name: value or "" for name, value in one.configs} for one in wanted}
        found = [_created(one) for one in _unauthorized(refused)]
        for one in results:
            result = _created(one)
            if one.error is ErrorCode.NONE and may_describe(one.name):
                result.configs = settings.of(own[one.name])
            elif one.error is ErrorCode.NONE:
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.num_partitions = result.replication_factor = -1
            found.append(result)
        call.respond(create_topics.CreateTopicsResponse(mutations.throttle_ms, found))

    count = sum(max(len(one.assignments), one.num_partitions) for one in message.topics)
    deadline_ms = controller.now_ms + message.timeout_ms
    return WriteEvent("createTopics", decide, done, call.refuse, deadline_ms=deadline_ms, partitions=count)


def _unauthorized(names: Iterable[str]) -> list[topics.TopicResult]:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [topics.TopicResult(name, error, "Authorization failed.") for name in sorted(names)]


def _created(one: topics.TopicResult) -> create_topics.CreatableTopicResult:
    return create_topics.CreatableTopicResult(
        name=one.name,
        topic_id=topic_id_bytes(one.topic_id) if one.topic_id else NIL_UUID,
        error_code=one.error,
        error_message=text_of(one.error, one.message),
        num_partitions=one.partition_count,
        replication_factor=one.replication_factor,
    )


def _delete_topics(
    controller: QuorumController,
    authorization: Authorization,
    quotas: MutationQuotas,
    may_delete: bool,
    call: Call,
) -> WriteEvent | None:
    message: delete_topics.DeleteTopicsRequest = call.message
    mutations = quotas.of(call, _STRICT_DELETE)
    if not may_delete:
        error = ErrorCode.TOPIC_DELETION_DISABLED if call.version >= _WITH_DISABLED else ErrorCode.INVALID_REQUEST
        call.refuse(error, ERROR_TABLE[error].meaning)
        return None
    names: list[str] = list(message.topic_names)
    ids: list[str] = []
    ambiguous: list[delete_topics.DeletableTopicResult] = []
    if call.version >= _STATES:
        ambiguous = [_ambiguous(one) for one in message.topics if (one.name is None) == (one.topic_id == NIL_UUID)]
        names = [one.name for one in message.topics if one.name is not None and one.topic_id == NIL_UUID]
        ids = [topic_id_text(one.topic_id) for one in message.topics if one.name is None and one.topic_id != NIL_UUID]
    of_ids = {one: controller.image.topics[one].name for one in ids if one in controller.image.topics}
    refused = authorization.refused_topics(call, Operation.DELETE, {*names, *of_ids.values()})
    refused_ids = [one for one in ids if of_ids.get(one) in refused]
    unauthorized = _unauthorized({*names} & refused)
    unauthorized += [replace(one, topic_id=topic_id) for topic_id in refused_ids for one in _unauthorized([""])]
    names = [one for one in names if one not in refused]
    ids = [one for one in ids if one not in refused_ids]

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.delete_topics(active.view, names, ids, mutations.mutate)

    def done(results: Sequence[topics.TopicResult]) -> None:
        found = [*ambiguous, *map(_deleted, (*unauthorized, *results))]
        call.respond(delete_topics.DeleteTopicsResponse(mutations.throttle_ms, found))

    deadline_ms = controller.now_ms + message.timeout_ms
    count = len(names) + len(ids)
    return WriteEvent("deleteTopics", decide, done, call.refuse, deadline_ms=deadline_ms, partitions=count)


def _ambiguous(one: delete_topics.DeleteTopicState) -> delete_topics.DeletableTopicResult:
    """Return the refusal of a topic that is named by both or neither."""
    text = "Neither topic name nor id were specified."
    if one.name is not None:
        text = "You may not specify both topic name and topic id."
    return delete_topics.DeletableTopicResult(one.name, one.topic_id, ErrorCode.INVALID_REQUEST, text)


def _deleted(one: topics.TopicResult) -> delete_topics.DeletableTopicResult:
    return delete_topics.DeletableTopicResult(
        name=None if one.topic_id and not one.name else one.name,  # of an unknown id there is no name
        topic_id=topic_id_bytes(one.topic_id) if one.topic_id else NIL_UUID,
        error_code=one.error,
        error_message=text_of(one.error, one.message),
    )


def _create_partitions(
    controller: QuorumController, authorization: Authorization, quotas: MutationQuotas, call: Call
) -> WriteEvent:
    message: create_partitions.CreatePartitionsRequest = call.message
    mutations = quotas.of(call, _STRICT_PARTITIONS)
    refused = authorization.refused_topics(call, Operation.ALTER, [topic.name for topic in message.topics])
    wanted = [
        topics.PartitionsToAdd(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
        )
        for topic in message.topics
        if topic.name not in refused
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.create_partitions(
            active.view, wanted, _RANDOM, mutations.mutate, validate_only=message.validate_only
        )

    def done(results: Sequence[topics.TopicResult]) -> None:
        call.respond(
            create_partitions.CreatePartitionsResponse(
                mutations.throttle_ms,
                [
                    create_partitions.CreatePartitionsTopicResult(one.name, one.error, text_of(one.error, one.message))
                    for one in (*_unauthorized(refused), *results)
                ],
            )
        )

    deadline_ms = controller.now_ms + message.timeout_ms
    count = sum(one.count for one in message.topics)
    return WriteEvent("createPartitions", decide, done, call.refuse, deadline_ms=deadline_ms, partitions=count)
