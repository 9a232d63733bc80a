"""The service's gate before Kafka's requests: delays and losses, and errors in Kafka's form of the response.

Rules:
    1. A request that is lost, or whose caller is partitioned from this broker, closes its connection; so does an
       injected gRPC status.
    2. ``error_responses`` has the form of a response with an error. A request that only reads is handled, and its
       response carries the error; one that expects no response is not handled, and its connection is closed.
    3. While a request or its response is held, the connection begins no other one: responses keep their order.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tidegauge.kafka.apis import APIS, FETCH, PRODUCE
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service import Caller
from tidegauge_broker.server.service.admission import INJECTED, through
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError
from tidegauge_broker.server.wire.kafka import error_responses
from tidegauge_broker.server.wire.kafka.handlers.common import topic_id_text
from tidegauge_broker.server.wire.kafka.named_partitions import (
    named_group,
    named_partitions,
    named_resources,
    named_transaction,
)
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context, Encoded, Held, Pending, Silent


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
    named = list(named_partitions(request, lambda topic_id: _topic_name(topic_id, context)))
    if key == FETCH and request.session_id:
        named += _of_session(request.session_id, context)
    asked = GatedRequest(
        api=APIS[key].name,
        caller=caller,
        partitions=named,
        group=named_group(request),
        client_id=context.header.client_id,
        transactional_id=named_transaction(request),
        resources=named_resources(request),
        is_of_kafka=True,
    )
    try:
        return await through(gate, asked, _Form(key, context.version, request), lambda: _handled(handle))
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
    version: int
    request: Any

    def refusal(self, error: int) -> Any:
        """Return the response to a request that is not handled; None for one that only reads."""
        if error_responses.only_reads(self.key):
            return None
        if self.key == PRODUCE and self.request.acks == 0:
            raise CallRefused(INJECTED)
        response = error_responses.refusal(self.key, self.version, self.request, error)
        if response is None:
            raise CallRefused(f"{INJECTED}: the response has no place for an error before its effect")
        return response

    def with_error(self, response: Any, injected: InjectedError) -> Any:
        """Put the error into the response."""
        message = response.message if isinstance(response, Held) else response
        if isinstance(message, (Silent, Encoded)):
            raise CallRefused(INJECTED)
        error_responses.put(message, injected.error, top_level=injected.top_level)
        return response

    def discard(self, response: Any) -> None:
        """Release the memory that the response takes."""
        if isinstance(response, Held):
            response.pending.release()
