"""Produce (0), versions 0-13: append record batches, one for each partition, and respond when acks is fulfilled.

Versions 0 to 2 carry the message formats before RecordBatch v2 (or batches), which the leader converts; nothing is
looked at before it does.
A batch that is refused because of some of its records names them (KIP-467, version 8 on), with a message.
With acks=0 there is no response, and an error closes the connection. NOT_LEADER_OR_FOLLOWER names the leader and its
address from version 10 on (KIP-951). zstd needs version 7. The first batch of a transaction waits until the transaction
coordinator has verified it (KIP-890); clients know TRANSACTION_ABORTABLE from version 11 on. From version 12 on its
partition is added to the transaction instead, from version 13 on topics have ids instead of names. A large batch waits
until it is checked (``produce_preparation``).
A partition that is named twice is refused and is once in the response; Kafka appends the last of its batches, drops
the others without a word, and acknowledges them. A topic of an unknown id gets UNKNOWN_TOPIC_ID.
Source: ``KafkaApis.handleProduceRequest``, ``ProduceRequest.validateRecords``.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidegauge.kafka.records import Buffer
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import (
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from tidegauge_broker.formats.messages import is_message_set
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.service.open_produces import unacknowledged_failure
from tidegauge_broker.server.service.produce_portions import PORTION_BYTES, append, is_one_portion
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import endpoint_of, name_topics, supported_operation
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context
from tidegauge_broker.server.wire.kafka.responses import SILENT, Pending, Silent, settled
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_ADMIN_CLIENT_ID = "__admin_client"
"""A client of this name may write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""
_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_LEADERS = 10
_FIRST_WITH_ABORTABLE = 11
_FIRST_WITH_IDS = 13
_LENGTH_AT = 8
_BATCH = struct.Struct(">i4xb4xh")
"""The part of a batch at ``_LENGTH_AT``: its length, magic and attributes."""
_NONE = ErrorCode.NONE
_ZSTD = COMPRESSION_NAMES.index("zstd")


def handle(
    request: ProduceRequest, context: Context
) -> Pending | ProduceResponse | Silent | Coroutine[Any, Any, ProduceResponse | Silent]:
    """Append now, or when the transaction is verified; the response comes when acks is fulfilled."""
    if context.version >= _FIRST_WITH_IDS:
        name_topics(request.topic_data, context)
    refused: dict[TopicPartition, core.ProduceResult] = {}
    wanted: list[core.ProducePartition] = []
    partitions = _partitions(request)
    of_all = _refuses_transaction(request.transactional_id, partitions)
    twice = _named_twice(partitions)
    for at, records in partitions:
        problem = of_all or (ErrorCode.INVALID_REQUEST if at in twice else _problem(records, context, at))
        if problem is not None:
            refused[at] = core.ProduceResult(at, problem)
        else:
            assert records is not None
            is_old = context.version < _FIRST_WITH_BATCHES and is_message_set(records)
            wanted.append(core.ProducePartition(at, records, is_message_set=is_old))
    is_admin = context.header.client_id == _ADMIN_CLIENT_ID
    asked = core.ProduceRequest(request.acks, request.timeout_ms, wanted, may_be_internal=is_admin)
    verified = context.service.verification.of(
        asked, request.transactional_id, supported_operation(context.version, _FIRST_WITH_ABORTABLE)
    )
    if isinstance(verified, Verified):
        return _append(request, context, verified, refused)
    return _append_later(request, context, verified, refused)


async def _append_later(
    request: ProduceRequest,
    context: Context,
    verification: Coroutine[Any, Any, Verified],
    refused: dict[TopicPartition, core.ProduceResult],
) -> ProduceResponse | Silent:
    """Append when the transaction coordinator has responded; the connection begins no other request meanwhile."""
    response = _append(request, context, await verification, refused)
    return await settled(response)  # type: ignore[no-any-return] # of a Produce


def _append(
    request: ProduceRequest, context: Context, verified: Verified, refused: dict[TopicPartition, core.ProduceResult]
) -> Pending | ProduceResponse | Silent | Coroutine[Any, Any, ProduceResponse | Silent]:
    """Append now; the response comes when acks is fulfilled. A large request that was not divided before is now."""
    if is_one_portion(verified.request):
        return _appended(request, context, verified, refused, context.service.produce(verified.request))
    return _append_in_portions(request, context, verified, refused)


async def _append_in_portions(
    request: ProduceRequest, context: Context, verified: Verified, refused: dict[TopicPartition, core.ProduceResult]
) -> ProduceResponse | Silent:
    future = await append(context.service.produce, verified.request)
    return await settled(_appended(request, context, verified, refused, future))  # type: ignore[no-any-return] # likewise


def _appended(
    request: ProduceRequest,
    context: Context,
    verified: Verified,
    refused: dict[TopicPartition, core.ProduceResult],
    future: asyncio.Future[Sequence[core.ProduceResult]],
) -> Pending | ProduceResponse | Silent:
    """Respond when acks is fulfilled, which the future says."""
    messages: dict[TopicPartition, str] = {}
    if verified.refused:
        refused = refused | {result.topic_partition: result for result in verified.refused}
        messages = {result.topic_partition: result.message for result in verified.refused}

    def respond(results: Sequence[core.ProduceResult]) -> ProduceResponse:
        topics = request.topic_data
        if len(results) == len(topics) == 1 == len(topics[0].partition_data):  # nothing to look up
            return _response_of_one(results[0], topics[0].topic_id, context)
        found = {result.topic_partition: result for result in results}
        found.update(refused)
        response = _response(request, found, context)
        return _with_messages(response, messages) if messages else response

    if request.acks != 0:
        return respond(future.result()) if future.done() else Pending(future, respond)
    failed = unacknowledged_failure([*refused.values(), *future.result()])
    if failed is not None:
        raise CloseConnection(f"a Produce request with acks=0 failed on {failed.topic_partition}: {failed.error.name}")
    return SILENT


def _with_messages(response: ProduceResponse, messages: dict[TopicPartition, str]) -> ProduceResponse:
    """Put the messages of partitions into a response, which has none otherwise."""
    for topic in response.responses:
        for item in topic.partition_responses:
            item.error_message = messages.get(TopicPartition(topic.name, item.index)) or item.error_message
    return response


def _partitions(request: ProduceRequest) -> list[tuple[TopicPartition, Buffer | None]]:
    found: list[tuple[TopicPartition, Buffer | None]] = []
    for topic in request.topic_data:
        for item in topic.partition_data:
            assert not isinstance(item.records, list)  # decoding gives one view
            found.append((TopicPartition(topic.name, item.index), item.records))
    return found


def _named_twice(partitions: Sequence[tuple[TopicPartition, Buffer | None]]) -> Collection[TopicPartition]:
    """Return the partitions that a request repeats, of known topics only."""
    if len({at for at, _ in partitions}) == len(partitions):
        return ()
    named = Counter(at for at, _ in partitions if at.topic)
    return {at for at, count in named.items() if count > 1}


def _problem(records: Buffer | None, context: Context, at: TopicPartition) -> ErrorCode | None:
    """Return why records are refused before the leader, by ``validateRecords``."""
    if not at.topic and context.version >= _FIRST_WITH_IDS:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.service.knows(at):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if records is None:
        return ErrorCode.INVALID_RECORD
    if context.version < _FIRST_WITH_BATCHES:
        return None
    if len(records) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD
    batch_length, magic, attributes = _BATCH.unpack_from(records, _LENGTH_AT)
    if magic != MAGIC or LENGTH_PREFIX_BYTES + batch_length != len(records):
        return ErrorCode.INVALID_RECORD  # of another format, incomplete, or more than one batch
    if attributes & COMPRESSION_MASK == _ZSTD and context.version < _FIRST_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return None


def _refuses_transaction(
    transactional_id: str | None, partitions: Sequence[tuple[TopicPartition, Buffer | None]]
) -> ErrorCode | None:
    """Return the error of a request with transactional batches and no transactional id."""
    if transactional_id is not None:
        return None
    for _, records in partitions:
        if records is not None and len(records) >= HEADER_BYTES:
            _, magic, attributes = _BATCH.unpack_from(records, _LENGTH_AT)
            if magic == MAGIC and attributes & TRANSACTIONAL_BIT:
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _response(
    request: ProduceRequest, results: dict[TopicPartition, core.ProduceResult], context: Context
) -> ProduceResponse:
    leaders: dict[int, NodeEndpoint] = {}
    named: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in request.topic_data:
        named.setdefault((topic.name, topic.topic_id), {}).update((item.index, None) for item in topic.partition_data)
    topics = [
        TopicProduceResponse(
            name, topic_id, [_partition(results[TopicPartition(name, at)], context, leaders) for at in partitions]
        )
        for (name, topic_id), partitions in named.items()
    ]
    return ProduceResponse(topics, node_endpoints=list(leaders.values()))


def _response_of_one(result: core.ProduceResult, topic_id: bytes, context: Context) -> ProduceResponse:
    leaders: dict[int, NodeEndpoint] = {}
    partition = _partition(result, context, leaders)
    topic = TopicProduceResponse(result.topic_partition.topic, topic_id, [partition])
    return ProduceResponse([topic], node_endpoints=list(leaders.values()))


def _partition(
    result: core.ProduceResult, context: Context, leaders: dict[int, NodeEndpoint]
) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        result.topic_partition.partition,
        result.error,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset,
    )
    if result.error is _NONE:
        return response
    if result.record_errors:
        response.error_message = result.message
        response.record_errors = [BatchIndexAndErrorMessage(*one) for one in result.record_errors]
    hint = result.leader_hint
    if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and hint is not None and context.version >= _FIRST_WITH_LEADERS:
        response.current_leader = LeaderIdAndEpoch(hint.leader, hint.leader_epoch)
        at = endpoint_of(context, hint.leader)
        if at is not None:
            leaders[hint.leader] = NodeEndpoint(at.broker_id, at.host, at.port, at.rack)
    return response


def _size_of_records(partition: Any) -> int:
    """Return how many items a partition of a large request counts for."""
    return 1 + len(partition.records or b"") * ITEMS_PER_TURN // PORTION_BYTES


API = ServedApi(
    apis.PRODUCE,
    handle,
    guard=parts.produce,
    form=Form(
        (
            Part(
                "responses",
                "topic_data",
                same("name", "topic_id"),
                Part("partition_responses", "partition_data", same("index"), values={"base_offset": -1}),
            ),
        )
    ),
    divisible=(("topic_data", "partition_data"),),
    division=Division(
        "topic_data",
        "responses",
        ("partition_data", "partition_responses"),
        judges_repeats=True,
        size_of=_size_of_records,
        is_completed=True,
    ),
    is_small=True,
    is_measured_by_service=True,
)
