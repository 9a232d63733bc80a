"""Parts that several handlers share: numbers in responses, and leaders as a client of a listener sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.settings import SettingView
from tidegauge.settings.dynamic import DEFAULT, DYNAMIC_BROKER, DYNAMIC_DEFAULT, DYNAMIC_GROUP, DYNAMIC_TOPIC, STATIC
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_controller.admin import Mutate, unlimited

READ_COMMITTED = 1
"""``IsolationLevel.READ_COMMITTED``: a client reads no records of open transactions."""
NOT_ASKED_FOR = -2147483648
"""Value of authorized operations that the client did not ask for."""
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
"""All operations of a topic and of the cluster as bits of ``AclOperation``: all are allowed without an authorizer."""

_NO_EPOCH = -1
"""``RecordBatch.NO_PARTITION_LEADER_EPOCH``."""

NOT_CONTROLLER_MESSAGE = "This is not the correct controller for this cluster."
"""Kafka's sentence for NOT_CONTROLLER, where a response has it."""

Result = TypeVar("Result")
_writing: set[asyncio.Task[Any]] = set()
"""The tasks that ``to_its_end`` has begun; the event loop alone would not hold on to it."""

SOURCES = {DYNAMIC_TOPIC: 1, DYNAMIC_BROKER: 2, DYNAMIC_DEFAULT: 3, STATIC: 4, DEFAULT: 5, DYNAMIC_GROUP: 8}
"""Numbers of ``DescribeConfigsResponse.ConfigSource``."""


def endpoint_of(context: Context, broker_id: int) -> Endpoint | None:
    """Return a live broker's address on the request's listener, or None."""
    return context.service.endpoint(context.caller, broker_id)


def known_epoch(epoch: int) -> int | None:
    """Return an epoch of a Fetch; None, if unknown: then not checked."""
    return None if epoch < 0 else epoch


def checked_epoch(epoch: int) -> int | None:
    """Return an epoch of ListOffsets or OffsetForLeaderEpoch, where -1 alone is none (RequestUtils.getLeaderEpoch)."""
    return None if epoch == _NO_EPOCH else epoch


def named_once(topics: Iterable[Any]) -> dict[str, list[int]]:
    """Return the named partitions, each once, by topics that have any."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        for item in topic.partitions:
            named.setdefault(topic.name, {})[item.partition_index] = None
    return {name: list(partitions) for name, partitions in named.items()}


def mutate_of(context: Context, first_strict: int) -> Mutate:
    """Return the function that takes tokens for created or deleted partitions (KIP-599).

    From a version on clients know THROTTLING_QUOTA_EXCEEDED and are refused; older ones are throttled and nothing more
    (``ControllerMutationQuotaManager.newQuotaFor``).
    """
    return unlimited if context.quotas is None else context.quotas.mutate(is_strict=context.version >= first_strict)


def supported_operation(version: int, first_with_abortable: int) -> SupportedOperation:
    """Return the operations that a request's version supports.

    The version after the first with TRANSACTION_ABORTABLE adds partitions.

    Source: AddPartitionsToTxnManager (produceRequestVersionToTransactionSupportedOperation and the one of
    TxnOffsetCommit).
    """
    if version < first_with_abortable:
        return SupportedOperation.DEFAULT_ERROR
    if version == first_with_abortable:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.ADD_PARTITION


def name_topics(topics: Iterable[Any], context: Context) -> None:
    """Give the topics of a request that it names by id their names; one that is unknown keeps none."""
    for topic in topics:
        if is_unknown(topic):
            topic.name = context.service.topic_name(topic_id_text(topic.topic_id)) or ""


def is_unknown(topic: Any) -> bool:
    """Whether a request names a topic by an id, and nothing has given it a name."""
    return not topic.name and getattr(topic, "topic_id", NIL_UUID) != NIL_UUID


def known_fence(error: ErrorCode, context: Context, first_version: int) -> ErrorCode:
    """Return a coordinator's error: before a version clients know INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and context.version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


_WITHOUT_MESSAGE = {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
"""The latter's sentence is the error's own in Kafka, which ``ApiError.fromThrowable`` leaves out."""


def message_of(error: ErrorCode, message: str) -> str | None:
    """Return an error's message; None for success and generic messages."""
    return None if error in _WITHOUT_MESSAGE else message or None


def inherited_values(entries: Sequence[SettingView], resource_type: int, name: str) -> dict[str, str]:
    """Return a resource's inherited settings; empty if unknown."""
    source = _own_source(resource_type, name)
    found = {}
    for entry in entries:
        value = entry.value if entry.source != source else None
        value = next((one.value for one in entry.synonyms if one.source != source), value)
        if value is not None:
            found[entry.name] = value
    return found


def _own_source(resource_type: int, name: str) -> str:
    if resource_type == ConfigResourceType.TOPIC:
        return DYNAMIC_TOPIC
    if resource_type == ConfigResourceType.GROUP:
        return DYNAMIC_GROUP
    return DYNAMIC_BROKER if name else DYNAMIC_DEFAULT


async def to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Complete the writes of a request, even if its connection closes meanwhile, as Kafka does.

    Otherwise the handler is cancelled at its next wait, and the rest of the request is left undone.
    """
    task = asyncio.get_running_loop().create_task(work, name="admin-request")
    _writing.add(task)
    task.add_done_callback(_writing.discard)
    return await asyncio.shield(task)
