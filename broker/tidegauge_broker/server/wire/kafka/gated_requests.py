"""The service's gate before Kafka's requests: delays and losses, and errors in Kafka's form of the response.

Rules:
    1. A request that is lost, or whose caller is partitioned from this broker, closes its connection; so does an
       injected gRPC status.
    2. An error stands in each item of a response that has one (partitions, topics, resources), else at its top.
    3. Before its effect, a Produce gets the error for each of its partitions, and any other request that changes
       something gets it at the top of its response; one whose response has no such place is not
       handled, and its connection is closed. A request that only reads is handled, and its response carries the error.
    4. Faults name APIs as gRPC does; ``API_NAMES`` has those that Kafka calls otherwise.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tidegauge.kafka.apis import APIS, FETCH, PRODUCE, message_class
from tidegauge.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service import Caller
from tidegauge_broker.server.service.admission import INJECTED, through
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError
from tidegauge_broker.server.wire.kafka.handlers.common import topic_id_text
from tidegauge_broker.server.wire.kafka.named_partitions import named_group, named_partitions
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context, Encoded, Held, Pending, Silent

API_NAMES = {
    "OffsetForLeaderEpoch": "OffsetsForLeaderEpoch",
    "IncrementalAlterConfigs": "AlterConfigs",
    "OffsetCommit": "CommitOffsets",
    "OffsetFetch": "FetchOffsets",
    "OffsetDelete": "DeleteOffsets",
    "DescribeGroups": "DescribeGroup",
    "DeleteGroups": "DeleteGroup",
}
_READS = frozenset(
    {
        "ApiVersions",
        "DescribeCluster",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeLogDirs",
        "DescribeTopicPartitions",
        "Fetch",
        "FindCoordinator",
        "ListOffsets",
        "ListGroups",
        "ListPartitionReassignments",
        "Metadata",
        "OffsetFetch",
        "OffsetForLeaderEpoch",
    }
)
_CLEARED = {"base_offset": -1, "high_watermark": -1, "records": None, "offset": -1}
"""What a partition's result does not say beside an error."""


async def gated(gate: Gate, key: int, caller: Caller, request: Any, context: Context, handle: Callable[[], Any]) -> Any:
    """Let a request pass the gate, then handle it.

    Args:
        gate: the service's.
        key: the request's API.
        caller: its connection.
        request: the decoded message; None where it was not read.
        context: of the request.
        handle: handles it; returns what a handler returns.

    Returns:
        A message, ``Held``, ``Encoded`` or ``Silent``.

    Raises:
        CloseConnection: rule 1, or what the handler raises.
    """
    name = APIS[key].name
    named = list(named_partitions(request, lambda topic_id: _topic_name(topic_id, context)))
    if key == FETCH and request.session_id:
        named += _of_session(request.session_id, context)
    asked = GatedRequest(API_NAMES.get(name, name), caller, named, named_group(request))
    try:
        return await through(gate, asked, _Form(key, request), lambda: _handled(handle))
    except CallRefused as refused:
        raise CloseConnection(str(refused)) from None


def _topic_name(topic_id: bytes, context: Context) -> str | None:
    return context.service.topic_name(topic_id_text(topic_id))


def _of_session(session_id: int, context: Context) -> Iterator[TopicPartition]:
    """Yield what an incremental fetch is about besides what it names."""
    for topic, partition in context.sessions.standing(session_id):
        name = topic if isinstance(topic, str) else _topic_name(topic, context)
        if name is not None:
            yield TopicPartition(name, partition)


async def _handled(handle: Callable[[], Any]) -> Any:
    response = handle()
    if isinstance(response, Pending):
        return response.respond(await response.future)
    return await response if asyncio.iscoroutine(response) else response


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """The form of the response to a request of an API."""

    key: int
    request: Any

    def refusal(self, error: int) -> Any:
        """Return the response to a request that is not handled; None for one that only reads. Rule 3."""
        return None if APIS[self.key].name in _READS else _refusal(self.key, self.request, error)

    def with_error(self, response: Any, injected: InjectedError) -> Any:
        """Put the error into the response; rule 2."""
        message = response.message if isinstance(response, Held) else response
        if isinstance(message, (Silent, Encoded)):
            raise CallRefused(INJECTED)
        _put(message, injected.error)
        return response

    def discard(self, response: Any) -> None:
        """Release the memory that the response takes."""
        if isinstance(response, Held):
            response.pending.release()


def _refusal(key: int, request: Any, error: int) -> Any:
    """Return the response to a request that is not handled; rule 3."""
    if key == PRODUCE:
        if request.acks == 0:
            raise CallRefused(INJECTED)
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    [PartitionProduceResponse(item.index, error, -1) for item in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )
    response = message_class(key, response=True)()
    if not hasattr(response, "error_code"):
        raise CallRefused(f"{INJECTED}: the response has no place for an error before its effect")
    response.error_code = error
    return response


def _put(response: Any, error: int) -> None:
    """Put an error into a response; rule 2."""
    items = list(_items(response))
    for item in items or [response]:
        if hasattr(item, "error_code"):
            item.error_code = error
            for name, value in _CLEARED.items():
                if hasattr(item, name):
                    setattr(item, name, value)


def _items(message: Any) -> Iterator[Any]:
    """Yield the outermost parts of a message that have an error code of their own."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, (list, tuple)):
            for part in value:
                if hasattr(part, "error_code"):
                    yield part
                elif dataclasses.is_dataclass(part):
                    yield from _items(part)
