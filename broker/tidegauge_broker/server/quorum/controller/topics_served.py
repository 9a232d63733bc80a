"""CreateTopics, DeleteTopics and CreatePartitions at the controller.

Source: ``ControllerApis.createTopics``, ``deleteTopics``, ``createPartitions``; KIP-599 (mutation quotas).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import create_partitions, create_topics, delete_topics
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.events import WriteEvent
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


def served(controller: QuorumController, *, may_delete: bool) -> list[Served]:
    """Return the APIs; ``may_delete`` is delete.topic.enable."""
    return [
        Served(
            apis.CREATE_TOPICS,
            partial(_create_topics, controller),
            Form((Part("topics", "topics", same("name")),)),
            is_forwarded=True,
        ),
        Served(
            apis.DELETE_TOPICS,
            partial(_delete_topics, controller, may_delete),
            Form(
                (Part("responses", "topics", same("name", "topic_id")), Part("responses", "topic_names", {"name": ""}))
            ),
            is_forwarded=True,
        ),
        Served(
            apis.CREATE_PARTITIONS,
            partial(_create_partitions, controller),
            Form((Part("results", "topics", same("name")),)),
            is_forwarded=True,
        ),
    ]


def text_of(error: ErrorCode, message: str) -> str | None:
    """Return the message beside an error; None for one that says no more than the error itself (``ApiError``)."""
    return None if error is ErrorCode.NONE or message == ERROR_TABLE[error].meaning else message


def _create_topics(controller: QuorumController, call: Call) -> None:
    message: create_topics.CreateTopicsRequest = call.message
    wanted = [
        topics.TopicToCreate(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
            [(one.name, one.value) for one in topic.configs],
        )
        for topic in message.topics
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.create_topics(active.view, wanted, _RANDOM, validate_only=message.validate_only)

    def done(results: Sequence[topics.TopicResult]) -> None:
        call.respond(create_topics.CreateTopicsResponse(topics=[_created(one) for one in results]))

    deadline_ms = controller.now_ms + message.timeout_ms
    controller.write(WriteEvent("createTopics", decide, done, call.refuse, deadline_ms=deadline_ms))


def _created(one: topics.TopicResult) -> create_topics.CreatableTopicResult:
    return create_topics.CreatableTopicResult(
        name=one.name,
        topic_id=topic_id_bytes(one.topic_id) if one.topic_id else NIL_UUID,
        error_code=one.error,
        error_message=text_of(one.error, one.message),
        num_partitions=one.partition_count,
        replication_factor=one.replication_factor,
    )


def _delete_topics(controller: QuorumController, may_delete: bool, call: Call) -> None:
    message: delete_topics.DeleteTopicsRequest = call.message
    if not may_delete:
        error = ErrorCode.TOPIC_DELETION_DISABLED if call.version >= _WITH_DISABLED else ErrorCode.INVALID_REQUEST
        call.refuse(error, ERROR_TABLE[error].meaning)
        return
    names: list[str] = list(message.topic_names)
    ids: list[str] = []
    if call.version >= _STATES:
        names = [one.name for one in message.topics if one.name is not None]
        ids = [topic_id_text(one.topic_id) for one in message.topics if one.name is None]
        if any(one.name is not None and one.topic_id != NIL_UUID for one in message.topics):
            call.refuse(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
            return

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.delete_topics(active.view, names, ids)

    def done(results: Sequence[topics.TopicResult]) -> None:
        call.respond(delete_topics.DeleteTopicsResponse(responses=[_deleted(one) for one in results]))

    deadline_ms = controller.now_ms + message.timeout_ms
    controller.write(WriteEvent("deleteTopics", decide, done, call.refuse, deadline_ms=deadline_ms))


def _deleted(one: topics.TopicResult) -> delete_topics.DeletableTopicResult:
    return delete_topics.DeletableTopicResult(
        name=None if one.topic_id and not one.name else one.name,  # of an unknown id there is no name
        topic_id=topic_id_bytes(one.topic_id) if one.topic_id else NIL_UUID,
        error_code=one.error,
        error_message=text_of(one.error, one.message),
    )


def _create_partitions(controller: QuorumController, call: Call) -> None:
    message: create_partitions.CreatePartitionsRequest = call.message
    wanted = [
        topics.PartitionsToAdd(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
        )
        for topic in message.topics
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[topics.TopicResult]]:
        return topics.create_partitions(active.view, wanted, _RANDOM, validate_only=message.validate_only)

    def done(results: Sequence[topics.TopicResult]) -> None:
        call.respond(
            create_partitions.CreatePartitionsResponse(
                results=[
                    create_partitions.CreatePartitionsTopicResult(one.name, one.error, text_of(one.error, one.message))
                    for one in results
                ]
            )
        )

    deadline_ms = controller.now_ms + message.timeout_ms
    controller.write(WriteEvent("createPartitions", decide, done, call.refuse, deadline_ms=deadline_ms))
