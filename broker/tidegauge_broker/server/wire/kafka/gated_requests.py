"""The service's gate before Kafka's requests: delays and losses, and errors in Kafka's form of the response.

Rules:
    1. A request that is lost, or whose caller is partitioned from this broker, closes its connection; so does an
       injected gRPC status.
    2. ``error_forms`` and ``error_responses`` have the form of a response with an error. A request that only reads is
       handled, and its response carries the error; one that expects no response is not handled, and its connection is
       closed.
    3. While a request or its response is held, the connection begins no other one: responses keep their order.
    4. An error of some of a request's partitions is in their results alone (``partial_errors``).
    5. A follower's Fetch has the name that it has over gRPC.
    6. A client that names itself ``tidegauge-lab`` is the lab, as over gRPC: rules do not apply to its requests.
    7. SASL_AUTHENTICATION_FAILED in place of another request's response is the end of the SASL session: no request but
       SASL's own has that error, and the connection closes as it does when a session expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegauge.channel_options import LAB_AGENT
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FETCH, PRODUCE, SHARE_FETCH
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service.admission import INJECTED, through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError
from tidegauge_broker.server.wire.kafka import error_responses, partial_errors
from tidegauge_broker.server.wire.kafka.fetch_reader import is_followers
from tidegauge_broker.server.wire.kafka.named_partitions import (
    named_group,
    named_partitions,
    named_resources,
    named_transaction,
)
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context
from tidegauge_broker.server.wire.kafka.responses import Encoded, Held, Paced, Silent, settled
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.share.sessions import INITIAL_EPOCH, SessionKey

_FOLLOWERS_FETCH = "ReplicaFetch"


async def gated(
    gate: Gate,
    api: ServedApi,
    caller: Caller,
    request: Any,
    context: Context,
    handle: Callable[[Any], Any],
    size_bytes: int,
) -> Any:
    """Let a request pass the gate, then handle it.

    Args:
        gate: the service's.
        api: of the request.
        caller: its connection.
        request: the decoded message; None if it was not read.
        context: of the request.
        handle: handles it, or its admitted part; returns a handler's result.
        size_bytes: of its frame.

    Returns:
        A message, ``Held``, ``Encoded``, ``Silent``, or one of the first three as ``Paced``.

    Raises:
        CloseConnection: rule 1, or what the handler raises.
    """
    key = api.key
    named = list(named_partitions(request, lambda topic_id: _topic_name(topic_id, context)))
    if key == FETCH and request.session_id:
        named += _of_session(request.session_id, context)
    elif key == SHARE_FETCH:
        named += _of_share_session(request, context, named)
    asked = GatedRequest(
        api=_FOLLOWERS_FETCH if key == FETCH and is_followers(request, context.version) else api.name,
        caller=caller,
        partitions=named,
        group=named_group(request),
        client_id=context.header.client_id,
        transactional_id=named_transaction(request),
        resources=named_resources(request),
        is_of_kafka=True,
        is_of_lab=context.header.client_id == LAB_AGENT,
        size_bytes=size_bytes,
    )
    form = _Form(api, request, named, context)
    try:
        return await through(gate, asked, form, lambda: settled(handle(form.request)))
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


def _of_share_session(request: Any, context: Context, named: Sequence[TopicPartition]) -> Iterator[TopicPartition]:
    """Yield what a ShareFetch is about besides what it names: the partitions of the member's session."""
    share = context.service.share
    if share is None or request.share_session_epoch == INITIAL_EPOCH:
        return
    for topic_id, partition in share.session_partitions(SessionKey(request.group_id or "", request.member_id or "")):
        name = _topic_name(topic_id, context)
        if name is not None and TopicPartition(name, partition) not in named:
            yield TopicPartition(name, partition)


class _Form:
    """The form of the response to one request.

    Attributes:
        request: what of it is handled; rule 4.
    """

    def __init__(self, api: ServedApi, request: Any, named: Sequence[TopicPartition], context: Context) -> None:
        self._key = api.key
        self._api = api
        self._named = named
        self._context = context
        self._refused: Any = None
        self.request = request

    def refusal(self, injected: InjectedError) -> Any:
        """Return the response to an unhandled request; None: read-only, or split."""
        if injected.error == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise CallRefused(f"{INJECTED}: its SASL session has ended")
        if self._api.only_reads:
            return None
        if self._key == PRODUCE and self.request.acks == 0:
            raise CallRefused(INJECTED)
        refused, meant = self.request, self._part(injected)
        parts = None if meant is None else partial_errors.split(self._api.divisible, refused, meant, self._name_of)
        if parts is not None:
            self.request, refused = parts
        response = self._api.refusal(self._context.version, refused, injected.error)
        if response is None:
            raise CallRefused(f"{INJECTED}: the response has no place for an error before its effect")
        if parts is not None:
            self._refused = response
            return None
        return _sent(response, response, injected)

    def with_error(self, response: Any, injected: InjectedError) -> Any:
        """Put the error, and the rest, into the response."""
        message = response.message if isinstance(response, Held) else response
        if isinstance(message, (Silent, Encoded)):
            if injected.error:
                raise CallRefused(INJECTED)
            return response
        if self._refused is not None:
            partial_errors.join(message, self._refused)
        elif injected.error:
            self._put(message, injected)
        return _sent(response, message, injected)

    def discard(self, response: Any) -> None:
        """Release the memory that the response takes."""
        if isinstance(response, Held):
            response.pending.release()

    def _part(self, injected: InjectedError) -> partial_errors.RequestPart | None:
        """Return the part of the request that an error concerns, or None."""
        if not injected.topic or injected.top_level:
            return None
        meant = partial_errors.RequestPart(injected.topic, injected.partitions)
        return None if partial_errors.is_whole(meant, self._named) else meant

    def _put(self, message: Any, injected: InjectedError) -> None:
        meant = self._part(injected)
        if meant is None:
            error_responses.put(message, injected.error, top_level=injected.top_level)
            return
        is_named = partial_errors.put(message, injected.error, meant, self._name_of)
        if self._key == FETCH:
            partitions = [at.partition for at in self._named if meant.has(at.topic, at.partition)]
            topic = self._as_named(meant.topic)
            partial_errors.add_to_fetch(message, injected.error, topic, partitions, self._name_of)
        elif not is_named:
            error_responses.put(message, injected.error)

    def _name_of(self, topic_id: bytes) -> str | None:
        return _topic_name(topic_id, self._context)

    def _as_named(self, topic: str) -> str | bytes:
        """Return the topic's id if the session uses ids, else its name."""
        ids = [one.topic_id for one in self.request.topics]
        ids += [one for one, _ in self._context.sessions.standing(self.request.session_id) if isinstance(one, bytes)]
        return next((one for one in ids if any(one) and self._name_of(one) == topic), topic)


def _sent(response: Any, message: Any, injected: InjectedError) -> Any:
    """Return the response with its throttle time, paced at its rate."""
    if injected.throttle_time_ms and hasattr(message, "throttle_time_ms"):
        message.throttle_time_ms = injected.throttle_time_ms
    return Paced(response, injected.bytes_per_second) if injected.bytes_per_second else response
