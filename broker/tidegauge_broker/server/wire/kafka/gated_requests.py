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

from tidegauge.kafka.apis import APIS, PRODUCE, message_class
from tidegauge.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidegauge_broker.server.service import Caller
from tidegauge_broker.server.service.gate import CallRefused, Gate, InjectedError
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Encoded, Held, Pending, Silent

API_NAMES = {"OffsetForLeaderEpoch": "OffsetsForLeaderEpoch", "IncrementalAlterConfigs": "AlterConfigs"}
_READS = frozenset(
    {
        "ApiVersions",
        "DescribeCluster",
        "DescribeConfigs",
        "DescribeLogDirs",
        "DescribeTopicPartitions",
        "Fetch",
        "FindCoordinator",
        "ListOffsets",
        "ListPartitionReassignments",
        "Metadata",
        "OffsetForLeaderEpoch",
    }
)
_CLEARED = {"base_offset": -1, "high_watermark": -1, "records": None, "offset": -1}
"""What a partition's result does not say beside an error."""


async def gated(gate: Gate, key: int, caller: Caller, request: Any, handle: Callable[[], Any]) -> Any:
    """Let a request pass the gate, then handle it.

    Args:
        gate: the service's.
        key: the request's API.
        caller: its connection.
        request: the decoded message; None where it was not read.
        handle: handles it; returns what a handler returns.

    Returns:
        A message, ``Held``, ``Encoded`` or ``Silent``.

    Raises:
        CloseConnection: rule 1, or what the handler raises.
    """
    name = APIS[key].name
    try:
        injected = await gate.admit(API_NAMES.get(name, name), caller)
    except CallRefused as refused:
        raise CloseConnection(str(refused)) from None
    if injected is None:
        return await _handled(handle)
    if injected.status is not None and not injected.after_effect:
        raise CloseConnection("injected by the lab")
    if not injected.after_effect and name not in _READS:
        return _refusal(key, request, injected)
    response = await _handled(handle)
    if injected.status is not None or isinstance(response, Silent):
        _release(response)
        raise CloseConnection("injected by the lab")
    _put(response.message if isinstance(response, Held) else response, injected.error)
    return response


async def _handled(handle: Callable[[], Any]) -> Any:
    response = handle()
    if isinstance(response, Pending):
        return response.respond(await response.future)
    return await response if asyncio.iscoroutine(response) else response


def _release(response: Any) -> None:
    if isinstance(response, Held):
        response.pending.release()


def _refusal(key: int, request: Any, injected: InjectedError) -> Any:
    """Return the response to a request that is not handled; rule 3."""
    if key == PRODUCE:
        if request.acks == 0:
            raise CloseConnection("injected by the lab")
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    [PartitionProduceResponse(item.index, injected.error, -1) for item in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )
    response = message_class(key, response=True)()
    if not hasattr(response, "error_code"):
        raise CloseConnection("injected by the lab: the response has no place for an error before its effect")
    response.error_code = injected.error
    return response


def _put(response: Any, error: int) -> None:
    """Put an error into a response; rule 2."""
    if isinstance(response, Encoded):
        raise CloseConnection("injected by the lab")
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
