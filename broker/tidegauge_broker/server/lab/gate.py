"""Calls that arrive: cut, delayed, lost, or answered with an error (rows B3, B5).

Contract: a server interceptor before all services. A call that is cut ends with UNAVAILABLE at once, as if the port
refused it; so do the calls under way, streams among them, when a cut comes into force. What they had begun goes on
here (a produce may be appended), only their answers are lost: the other end does not know the outcome.

Rules:
    1. A caller is the broker that says so in its call's metadata (``channels.py``), else a client. The Lab service
       and the health service are met by no fault; SteppedRound is a follower's fetch and is met as one.
    2. On a stream each request is a call of its own for delays, losses and errors. Requests of one stream that are
       delayed wait one after another.
    3. An error for a whole answer ends the stream after it, since what follows builds on what the answer promised.
       Other errors exchange one answer and leave the stream.
    4. While nothing is in force, a message passes with one look at the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.lab import fault_table, injection
from tidegauge_broker.server.lab.fault_table import CLIENT, IN, End, FaultTable
from tidegauge_broker.server.wire.grpc.callers import calling_broker

Context = grpc.aio.ServicerContext[Any, Any]
_FREE = ("/grpc.health.", "/grpc.reflection.", "/tidegauge.v1.LabService/")
_STEPPED_ROUND = "/tidegauge.v1.LabService/SteppedRound"


class _Refused(Exception):
    """The call ends with this status."""

    def __init__(self, status: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Answered(Exception):
    """The call ends with this answer."""

    def __init__(self, answer: Message) -> None:
        super().__init__()
        self.answer = answer


@dataclass(eq=False, slots=True)
class _Call:
    """One call under way.

    Attributes:
        exchanged: the error for an answer, and its request, by the number that both share.
    """

    rpc: str
    end: End
    task: asyncio.Task[Any]
    cut_words: str = ""
    exchanged: dict[int, tuple[lab_pb2.ErrorFault, Message]] = field(default_factory=dict)


class Gate(grpc.aio.ServerInterceptor):
    """See the module."""

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults
        self._under_way: dict[_Call, None] = {}
        faults.listeners.append(self._look_again)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Stand before the service's own handler."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or (method.startswith(_FREE) and method != _STEPPED_ROUND):
            return handler
        broker_id = calling_broker(handler_call_details.invocation_metadata)
        end = CLIENT if broker_id is None else fault_table.broker(broker_id)
        rpc = method.rpartition("/")[2]
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(handler, rpc, end),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if not handler.request_streaming and not handler.response_streaming:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(handler, rpc, end),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return handler

    # One call

    def _unary(self, handler: Any, rpc: str, end: End) -> Callable[[Any, Context], Awaitable[Any]]:
        async def answer(request: Any, context: Context) -> Any:
            call = self._begin(rpc, end)
            try:
                fault = None if self._faults.is_empty else await self._pass(call, request)
                real = await handler.unary_unary(request, context)
                return real if fault is None else _exchanged(fault, request, real)
            except _Answered as instead:
                return instead.answer
            except (_Refused, asyncio.CancelledError) as problem:
                refused = _why(call, problem)
            finally:
                self._under_way.pop(call, None)
            await context.abort(refused.status, str(refused))
            return None

        return answer

    def _stream(self, handler: Any, rpc: str, end: End) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def answers(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            call = self._begin(rpc, end)
            try:
                self._refuse_if_cut(call)
                async for real in handler.stream_stream(_Requests(self, call, requests), context):
                    other = call.exchanged.pop(_number_of(real), None) if call.exchanged else None
                    yield real if other is None else _exchanged(*other, real)
                    if other is not None and injection.is_for_the_whole(rpc):
                        return
                return
            except _Answered as instead:
                yield instead.answer
                return
            except (_Refused, asyncio.CancelledError) as problem:
                refused = _why(call, problem)
            finally:
                self._under_way.pop(call, None)
            await context.abort(refused.status, str(refused))

        return answers

    def _begin(self, rpc: str, end: End) -> _Call:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(rpc, end, task)
        self._under_way[call] = None
        return call

    def _refuse_if_cut(self, call: _Call) -> None:
        verdict = self._faults.network(IN, call.end, count=False)
        if verdict.refused_by is not None:
            self._faults.count(verdict.refused_by)
            raise _Refused(grpc.StatusCode.UNAVAILABLE, _words(verdict.refused_by))

    def _look_again(self) -> None:
        """The table has changed: end what is cut now."""
        for call in list(self._under_way):
            verdict = self._faults.network(IN, call.end, count=False)
            if verdict.refused_by is not None and not call.cut_words:
                self._faults.count(verdict.refused_by)
                call.cut_words = _words(verdict.refused_by)
                call.task.cancel()

    def admit(self, call: _Call, request: Any) -> Awaitable[Any] | None:
        """What a stream's next request has to wait for, if anything is in force."""
        return None if self._faults.is_empty else self._pass_on(call, request)

    async def _pass_on(self, call: _Call, request: Any) -> Any:
        """Rule 3; gives the request that the service is to see."""
        fault = await self._pass(call, request)
        if fault is not None:
            call.exchanged[_number_of(request)] = fault, request
            if not fault.after_effect:  # it must reach the service in its place, but without effect
                empty = type(request)()
                empty.CopyFrom(request)
                empty.ClearField("partitions")
                return empty
        return request

    async def _pass(self, call: _Call, request: Any) -> lab_pb2.ErrorFault | None:
        """Wait, or end the call, as the faults say; gives the error to be put into the real answer."""
        verdict = self._faults.network(IN, call.end)
        if verdict.delay_ms:
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.refused_by is not None:
            raise _Refused(grpc.StatusCode.UNAVAILABLE, _words(verdict.refused_by))
        fault = self._faults.error(call.rpc) if call.rpc in injection.METHODS else None
        if fault is None:
            return None
        status = injection.status_of(fault)
        if fault.after_effect or (status is None and injection.must_run(call.rpc)):
            return fault
        if status is not None:
            raise _Refused(status, "injected by the lab")
        if injection.METHODS[call.rpc].client_streaming and not injection.is_for_the_whole(call.rpc):
            return fault
        raise _Answered(injection.refusal(fault, request, injection.answer_to(call.rpc)))


class _Requests:
    """A stream's requests, each of which passes the gate."""

    def __init__(self, gate: Gate, call: _Call, requests: AsyncIterator[Any]) -> None:
        self._gate = gate
        self._call = call
        self._requests = requests

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        waiting = self._gate.admit(self._call, request)
        return request if waiting is None else await waiting


def _exchanged(fault: lab_pb2.ErrorFault, request: Message, real: Message) -> Message:
    """The answer with the error in it.

    Raises:
        _Refused: the fault is a gRPC status.
    """
    status = injection.status_of(fault)
    if status is not None:
        raise _Refused(status, "injected by the lab")
    if fault.after_effect or injection.must_run(fault.rpc):
        return injection.with_error(fault, real)
    return injection.refusal(fault, request, type(real)())


def _why(call: _Call, problem: BaseException) -> _Refused:
    """The status with which the call ends; a cancellation that is not the lab's goes on."""
    if isinstance(problem, _Refused):
        return problem
    if not call.cut_words:
        raise problem
    call.task.uncancel()
    return _Refused(grpc.StatusCode.UNAVAILABLE, call.cut_words)


def _words(fault_id: int) -> str:
    return f"refused by the lab (fault {fault_id})"


def _number_of(message: Any) -> int:
    """What an answer on a stream shares with its request."""
    number = getattr(message, "correlation_id", None)
    return int(getattr(message, "request_id", 0) if number is None else number)
