"""The service's gate before gRPC's calls: names the caller, ends calls, and puts errors into responses.

Rules:
    1. The Lab service and the health service pass no gate; SteppedRound is a follower's fetch and is met as one.
    2. Each request of a stream is admitted by itself. Requests of one stream that are delayed or held wait one after
       another, as do its responses.
    3. An error for a whole response ends the stream after it, since what follows builds on what the response promised.
       Other errors replace one response and leave the stream.
    4. A call that the gate refuses or breaks ends with UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidegauge.faults.apis import api_of
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service.admission import INJECTED, Admission, admit, through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Entry, Gate, GatedRequest, InjectedError
from tidegauge_broker.server.wire.grpc import injected_responses as injection
from tidegauge_broker.server.wire.grpc.callers import calling_broker, is_of_lab
from tidegauge_broker.server.wire.grpc.named_partitions import named_partitions
from tidegauge_broker.server.wire.grpc.records_response import whole

Context = grpc.aio.ServicerContext[Any, Any]
_FREE = ("/grpc.health.", "/grpc.reflection.", "/tidegauge.v1.LabService/")
_SESSION_RPC = "ReplicaFetch"
_GROUP = ("group_id", "transactional_id")
_STEPPED_ROUND = "/tidegauge.v1.LabService/SteppedRound"


class _RespondedEarly(Exception):
    """The call ends with this response."""

    def __init__(self, response: Message) -> None:
        super().__init__()
        self.response = response


@dataclass(eq=False, slots=True)
class _Call:
    """One call in progress.

    Attributes:
        is_of_lab: whether the lab itself makes it.
        standing: the partitions of a follower's stream, which names one when it changes and means it until it is
            forgotten.
        replaced: what becomes of a response, by the number that it shares with its request.
    """

    rpc: str
    caller: Caller
    entry: Entry
    is_of_lab: bool = False
    replaced: dict[int, Admission] = field(default_factory=dict)
    standing: set[TopicPartition] = field(default_factory=set)


class GatedCalls(grpc.aio.ServerInterceptor):
    """Takes gRPC's calls through the service's gate.

    Args:
        gate: the service's.
        listener: name of the server's listener.
    """

    def __init__(self, gate: Gate, listener: str = "") -> None:
        self._gate = gate
        self._listener = listener

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Intercept the call before the service's own handler."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or (method.startswith(_FREE) and method != _STEPPED_ROUND):
            return handler
        # The gate distinguishes callers by broker only; a call's peer is not known before its handler runs.
        metadata = handler_call_details.invocation_metadata
        caller = Caller("", self._listener, calling_broker(metadata))
        rpc, of_lab = method.rpartition("/")[2], is_of_lab(metadata)
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(handler, rpc, caller, of_lab=of_lab),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if not handler.request_streaming and not handler.response_streaming:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(handler, rpc, caller, of_lab=of_lab),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return handler

    # One call

    def _unary(
        self, handler: Any, rpc: str, caller: Caller, *, of_lab: bool
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def respond(request: Any, context: Context) -> Any:
            call = self._begin(rpc, caller, of_lab=of_lab)
            try:
                if self._gate.is_open:
                    return await handler.unary_unary(request, context)
                form = _Form(rpc, request)
                return await through(
                    self._gate, _asked(call, request), form, lambda: handler.unary_unary(form.request, context)
                )
            except (CallRefused, asyncio.CancelledError) as problem:
                refused = _why(call, problem)
            finally:
                self._gate.leave(call.entry)
            await context.abort(grpc.StatusCode[refused.status], str(refused))
            return None

        return respond

    def _stream(
        self, handler: Any, rpc: str, caller: Caller, *, of_lab: bool
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def responses(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            call = self._begin(rpc, caller, of_lab=of_lab)
            try:
                self._gate.check(call.entry)
                async for real in handler.stream_stream(_Requests(self, call, requests), context):
                    other = call.replaced.pop(_number_of(real), None) if call.replaced else None
                    yield real if other is None else await other.finish(real)
                    if other is not None and other.injected is not None and injection.is_for_the_whole(rpc):
                        return
                return
            except _RespondedEarly as instead:
                yield instead.response
                return
            except (CallRefused, asyncio.CancelledError) as problem:
                refused = _why(call, problem)
            finally:
                self._gate.leave(call.entry)
            await context.abort(grpc.StatusCode[refused.status], str(refused))

        return responses

    def _begin(self, rpc: str, caller: Caller, *, of_lab: bool) -> _Call:
        task = asyncio.current_task()
        assert task is not None
        return _Call(rpc, caller, self._gate.enter(caller, task.cancel), of_lab)

    def admit(self, call: _Call, request: Any) -> Awaitable[Any] | None:
        """Return the awaitable of a stream's next request, if anything is in force."""
        if call.rpc == _SESSION_RPC:
            call.standing.update(TopicPartition(one.topic, one.partition) for one in request.partitions)
            call.standing.difference_update(TopicPartition(one.topic, one.partition) for one in request.forgotten)
        return None if self._gate.is_open else self._admit_one_of_many(call, request)

    async def _admit_one_of_many(self, call: _Call, request: Any) -> Any:
        """Return the request that the service is to see; rule 3."""
        form = _Form(call.rpc, request)
        admission = await admit(self._gate, _asked(call, request), form)
        if admission is None:
            return request
        if admission.refusal is not None and injection.is_for_the_whole(call.rpc):
            raise _RespondedEarly(await admission.finish(admission.refusal))
        call.replaced[_number_of(request)] = admission
        if admission.refusal is None:
            return form.request
        empty = type(request)()  # it must reach the service in its place, but without effect
        empty.CopyFrom(request)
        empty.ClearField("partitions")
        return empty


class _Requests:
    """A stream's requests, each of which passes the gate."""

    def __init__(self, calls: GatedCalls, call: _Call, requests: AsyncIterator[Any]) -> None:
        self._calls = calls
        self._call = call
        self._requests = requests

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        waiting = self._calls.admit(self._call, request)
        return request if waiting is None else await waiting


@dataclass(slots=True)
class _Form:
    """The form of the response to a request of an RPC.

    Attributes:
        request: the part to handle: without refused partitions, if there are others.
        refused: the results of the refused part.
    """

    rpc: str
    request: Message
    refused: Message | None = None

    def refusal(self, injected: InjectedError) -> Message | None:
        """Return the refusal; None if only the real response has the names.

        Raises:
            CallRefused: the request changes something, and its response has no place for the error before its effect.
        """
        if not injection.can_refuse(self.rpc):
            raise CallRefused(INJECTED)
        if injection.must_run(self.rpc) or injection.reads_others(self.rpc, self.request, injected.means):
            return None
        parts = injection.split(self.rpc, self.request, injected.means)
        if parts is not None:
            self.request, refused = parts
            self.refused = injection.refusal(injected.error, refused, injection.empty_response(self.rpc))
            return None
        return injection.refusal(injected.error, self.request, injection.empty_response(self.rpc))

    def with_error(self, response: Any, injected: InjectedError) -> Message:
        """Return the response with the error in it."""
        if not injected.error:
            return response  # type: ignore[no-any-return]  # a message, or one that is made when it is sent
        real: Message = whole(response)
        if self.refused is not None:
            real.MergeFrom(self.refused)
            return real
        if injection.put_in_part(injected.error, real, injected.means):
            return real
        return injection.with_error(injected.error, real)

    def discard(self, response: Any) -> None:
        """Release nothing: what a response holds is released with its call."""


def _asked(call: _Call, request: Message) -> GatedRequest:
    """Return the request in the form that the gate distinguishes."""
    named = call.standing if call.rpc == _SESSION_RPC else list(named_partitions(request))
    group = next((value for name in _GROUP if (value := getattr(request, name, ""))), "")
    return GatedRequest(
        api_of(call.rpc),
        call.caller,
        named,
        group,
        getattr(request, "client_id", ""),
        getattr(request, "transactional_id", ""),
        is_of_lab=call.is_of_lab,
        size_bytes=request.ByteSize(),
    )


def _why(call: _Call, problem: BaseException) -> CallRefused:
    """Return how the call ends; other cancellations are raised again."""
    if isinstance(problem, CallRefused):
        return problem
    if not call.entry.broken_by:
        raise problem
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    return CallRefused(call.entry.broken_by)


def _number_of(message: Any) -> int:
    """Return what a response on a stream shares with its request."""
    number = getattr(message, "correlation_id", None)
    return int(getattr(message, "request_id", 0) if number is None else number)
