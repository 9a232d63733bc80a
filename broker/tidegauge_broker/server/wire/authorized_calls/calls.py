"""Judges the calls of a gRPC listener by the guards of Kafka's APIs: refuses requests, or parts that are not allowed.

Rules:
    1. The guard is Kafka's own (``wire.kafka.authorization``): the operations, their order, the errors and the audit
       log follow the API's. It judges the request's form (``forms``); allowed items reach the handler, and refused
       items get their error in the response, behind the other results.
    2. The Lab service needs CLUSTER_ACTION. Health and reflection need nothing.
    3. A refusal for which a response has no place ends the call with PERMISSION_DENIED. For a Produce with acks=0,
       which has no response, it ends the stream with UNAVAILABLE, as Kafka closes the connection.

It wraps handlers as services are added to a server, if there is an authorizer.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import message_class
from tidegauge.kafka.frames import RequestHeader
from tidegauge_broker.server.cluster.ports import AccessLists
from tidegauge_broker.server.service.acting import ACTS_FOR, ACTS_FROM
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.authorized_calls.forms import FORMS, Form, form_of, name_of
from tidegauge_broker.server.wire.grpc import injected_responses as errors
from tidegauge_broker.server.wire.grpc.callers import calling_broker, host_of
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse
from tidegauge_broker.server.wire.kafka.authorization.asking import BY_CLUSTER, BY_TOPIC, Ask
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_controller.admin import NAMED_TWICE, NOT_CONTROLLER

GrpcContext = grpc.aio.ServicerContext[Any, Any]
LAB = "tidegauge.v1.LabService"
_PRODUCES, _FOLLOWS = "ProduceStream", "ReplicaFetch"
_SENTENCES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized to access topics: [{}]",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: NAMED_TWICE,
    ErrorCode.NOT_CONTROLLER: NOT_CONTROLLER,
    ErrorCode.OPERATION_NOT_ATTEMPTED: "The operation was not attempted: another topic of the request is refused.",
}


class Verdict(NamedTuple):
    """The verdict of a guard on a request.

    Attributes:
        whole: the error of the whole request; NONE: there is none.
        by_name: the errors of its items.
        was_handled: whether anything may be handled.
        left: Kafka's response, with what remains of a list.
    """

    whole: ErrorCode
    by_name: Mapping[str, ErrorCode]
    was_handled: bool
    left: Any


async def judged(form: Form, request: Any, ask: Ask, listed: Any = None) -> Verdict:
    """Let the guard of a request's API judge it.

    Args:
        form: of the request.
        request: gRPC's.
        ask: the questions.
        listed: Kafka's response with the names of what gRPC's lists; None: an empty one.

    Raises:
        CloseConnection: rule 3, acks=0.
    """
    was_handled = False

    def handler(_: Any, context: Context) -> Any:
        del context
        nonlocal was_handled
        was_handled = True
        return message_class(form.api, response=True)() if listed is None else listed

    made = form.to_kafka(request)
    guard = SERVED[form.api].guard
    assert guard is not None, "an API of gRPC needs something to be allowed"
    response = await settled(guard(made, ask, handler))
    by_name = dict(_errors_by_name(response))
    may_read = ask.context.may_read
    if may_read is not None:  # the guard of Fetch
        by_name |= {one.topic: BY_TOPIC for one in made.topics if not may_read(one.topic)}
    found = errors_in(response) | set(by_name.values())
    if form.items:
        whole = int(getattr(response, "error_code", 0))
    elif was_handled or found:
        whole = min(found, default=0)
    else:  # Kafka's response has no item that could carry the error
        whole = BY_CLUSTER
    return Verdict(ErrorCode.of(whole), by_name, was_handled, response)


def _errors_by_name(message: Any) -> list[tuple[str, ErrorCode]]:
    """Return the errors of the topics in a response of Kafka's."""
    found: list[tuple[str, ErrorCode]] = []
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for item in value if isinstance(value, list) else ():
            if not dataclasses.is_dataclass(item):
                continue
            names = [name for name in (getattr(item, "name", None), getattr(item, "topic", None)) if name is not None]
            inside = errors_in(item) if names else set()
            found += [(str(names[0]), ErrorCode.of(min(inside)))] if inside else _errors_by_name(item)
    return found


class _Denied(Exception):
    """The call ends with a status."""

    def __init__(self, status: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.status = status


class AuthorizedCalls:
    """Wraps the handlers of a listener; see the module.

    Args:
        acls: the lists.
        service: the broker's.
        listener: its name.
        now_ms: the broker's clock.
    """

    def __init__(self, acls: AccessLists, service: BrokerService, listener: str, now_ms: Callable[[], int]) -> None:
        self._acls = acls
        self._service = service
        self._listener = listener
        self._now_ms = now_ms
        self._sessions = FetchSessionCache(1, lambda: 1)  # gRPC has none of Kafka's

    def around(self, service: str, method: str, handler: Any) -> Any:
        """Return a handler behind the guard, if it needs one."""
        read, write = handler.request_deserializer, handler.response_serializer
        if service == LAB:
            judge_all, judge_each = self._lab(method, handler), self._lab_stream(method, handler)
        elif method in FORMS:
            judge_all, judge_each = self._unary(method, handler), self._stream(method, handler)
        else:
            return handler
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(judge_each, read, write)
        return grpc.unary_unary_rpc_method_handler(judge_all, read, write)

    def _ask(self, form: Form, context: GrpcContext) -> Ask:
        header = RequestHeader(form.api, form.version, 0, "", 0)
        caller = self._caller(context)
        about = Context(self._service, caller, self._sessions, self._now_ms, header)
        return Ask(self._acls, about, form.api, SERVED[form.api].form)

    def _caller(self, context: GrpcContext) -> Caller:
        peer = context.peer()
        broker_id = calling_broker(context.invocation_metadata())
        return Caller(peer, self._listener, broker_id, host_of(peer), ACTS_FOR.get())

    # One request

    def _unary(self, rpc: str, handler: Any) -> Callable[[Any, GrpcContext], Awaitable[Any]]:
        async def authorized(request: Any, context: GrpcContext) -> Any:
            try:
                return await self._respond(rpc, request, context, lambda it: handler.unary_unary(it, context))
            except _Denied as problem:
                await context.abort(problem.status, str(problem))

        return authorized

    async def _respond(
        self, rpc: str, request: Any, context: GrpcContext, handle: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        form = form_of(rpc, request)
        ask = self._ask(form, context)
        ACTS_FROM.set(ask.context.caller.host)
        if form.listed is not None and form.keep is not None:
            response = await handle(request)
            verdict = await judged(form, request, ask, form.listed(response))
            if verdict.whole is not ErrorCode.NONE:
                return _refused(rpc, request, verdict.whole)
            form.keep(response, verdict.left)
            return response
        verdict = await self._verdict(form, request, ask)
        if verdict.whole is not ErrorCode.NONE:
            return _refused(rpc, request, verdict.whole)
        if verdict.was_handled and not verdict.by_name:
            return await handle(request)
        allowed = _without(request, form, verdict)
        if verdict.was_handled and (getattr(allowed, form.items) or form.is_called_without_items):
            response = await handle(allowed)
        else:
            response = errors.empty_response(rpc)
        return _with_refusals(rpc, request, response, form, verdict)

    @staticmethod
    async def _verdict(form: Form, request: Any, ask: Ask) -> Verdict:
        try:
            return await judged(form, request, ask)
        except CloseConnection as problem:
            raise _Denied(grpc.StatusCode.UNAVAILABLE, str(problem)) from None

    # Streams

    def _stream(self, rpc: str, handler: Any) -> Callable[[Any, GrpcContext], AsyncIterator[Any]]:
        async def authorized(requests: AsyncIterator[Any], context: GrpcContext) -> AsyncIterator[Any]:
            refused: deque[Any] = deque()
            waiting: dict[int, tuple[Any, Form, Verdict]] = {}

            async def allowed() -> AsyncIterator[Any]:
                async for request in requests:
                    form = form_of(rpc, request)
                    verdict = await self._verdict(form, request, self._ask(form, context))
                    if rpc == _FOLLOWS and verdict.whole is not ErrorCode.NONE:
                        refused.append(_refused(rpc, request, verdict.whole))
                        return
                    if rpc == _PRODUCES and (verdict.by_name or not verdict.was_handled):
                        waiting[request.correlation_id] = (request, form, verdict)
                        yield _without(request, form, verdict)  # its response comes in its place, without effect
                    else:
                        yield request

            try:
                async for response in handler.stream_stream(allowed(), context):
                    known = waiting.pop(response.correlation_id, None) if waiting else None
                    yield response if known is None else _with_refusals(rpc, known[0], response, *known[1:])
                for response in refused:
                    yield response
            except _Denied as problem:
                await context.abort(problem.status, str(problem))

        return authorized

    # The lab

    def _check_lab(self, method: str, context: GrpcContext) -> None:
        if not self._acls.allows_cluster(self._caller(context), Operation.CLUSTER_ACTION, method):
            raise _Denied(grpc.StatusCode.PERMISSION_DENIED, _SENTENCES[BY_CLUSTER])

    def _lab(self, method: str, handler: Any) -> Callable[[Any, GrpcContext], Awaitable[Any]]:
        async def authorized(request: Any, context: GrpcContext) -> Any:
            try:
                self._check_lab(method, context)
            except _Denied as problem:
                await context.abort(problem.status, str(problem))
            return await handler.unary_unary(request, context)

        return authorized

    def _lab_stream(self, method: str, handler: Any) -> Callable[[Any, GrpcContext], AsyncIterator[Any]]:
        async def authorized(requests: AsyncIterator[Any], context: GrpcContext) -> AsyncIterator[Any]:
            try:
                self._check_lab(method, context)
            except _Denied as problem:
                await context.abort(problem.status, str(problem))
            async for response in handler.stream_stream(requests, context):
                yield response

        return authorized


def _refused(rpc: str, request: Any, error: ErrorCode) -> Message:
    """Return the response that refuses a request as a whole."""
    words = _words(error, getattr(request, "topic", "") or getattr(request, "resource_name", ""))
    if errors.must_run(rpc):
        raise _Denied(grpc.StatusCode.PERMISSION_DENIED, words)
    return errors.refusal(error, request, errors.empty_response(rpc), words)


def _without(request: Any, form: Form, verdict: Verdict) -> Any:
    """Return a request without the items that are refused."""
    copy = type(request)()
    copy.CopyFrom(request)
    items = getattr(copy, form.items)
    allowed = [one for one in items if verdict.was_handled and name_of(one) not in verdict.by_name]
    del items[:]
    items.extend(allowed)
    return copy


def _with_refusals(rpc: str, request: Any, response: Any, form: Form, verdict: Verdict) -> Any:
    """Add the results of the items that are refused; return the response."""
    into = errors.empty_response(rpc) if isinstance(response, RecordsResponse) else response
    refused = getattr(into, form.results)
    for one in getattr(request, form.items):
        name = name_of(one)
        error = verdict.by_name.get(name, ErrorCode.NONE if verdict.was_handled else BY_TOPIC)
        if error is ErrorCode.NONE:
            continue
        result = refused.add()
        if "topic" in result.DESCRIPTOR.fields_by_name:
            result.topic, result.partition = name, one.partition
        else:
            result.name = name
        errors.with_error(error, result, _words(error, name))
    if isinstance(response, RecordsResponse):
        response.add(refused)
    return response


def _words(error: ErrorCode, name: str) -> str:
    sentence = _SENTENCES[error]
    return sentence.format(name) if name else sentence.partition(":")[0]
