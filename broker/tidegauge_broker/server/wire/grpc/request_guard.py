"""Rejects malformed or memory-exhausting requests with a descriptive status, before a handler sees them.

Rules:
    1. Bytes that can't be parsed as the message: INVALID_ARGUMENT with a sentence, and no traceback in the broker's
       log. It ends a stream.
    2. A request has at most ``MAX_ELEMENTS`` elements, at any depth: in a repeated field two bytes become some
       hundred in memory, so a request that keeps ``socket.request.max.bytes`` could take gigabytes. They are counted
       before anything is made of them, and only if the request is long enough to hold too many. Kafka refuses
       arrays that are longer than what follows them, and has no more of a limit.
    3. If the broker's membership ends while a request is handled, its outcome is unknown: UNAVAILABLE, as when the
       connection is lost, and clients retry.

It wraps handlers as services are added, so that a call pays nothing for it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tidegauge.cluster_metadata import MembershipEnded

MAX_ELEMENTS = 200_000
_LEAST_ELEMENT_BYTES = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_TEXTS = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}
_MORE = 0x80

Context = grpc.aio.ServicerContext[Any, Any]


class MalformedRequest(Exception):
    """The bytes are not accepted as a request; the message says why."""


class GuardedServer:
    """Stands in for a server while services are added to it.

    Args:
        server: takes their handlers, guarded.
        around: wraps a handler, given a service's full name, a method's name and the handler.
        max_elements: of a request.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        around: Callable[[str, str, Any], Any] = lambda _service, _method, handler: handler,
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        self._server = server
        self._around = around
        self._max_elements = max_elements

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Ignore these: the generated code gives the same handlers by name, too."""

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        """Add a service's methods."""
        guarded = {name: self._guarded(self._around(service_name, name, handler)) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, guarded),))

    def _guarded(self, handler: Any) -> Any:
        """Return a handler whose requests are checked first."""
        read = reader(handler.request_deserializer, self._max_elements)
        write = handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(_stream_stream(handler.stream_stream), read, write)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_unary_stream(handler.unary_stream), read, write)
        return grpc.unary_unary_rpc_method_handler(_unary_unary(handler.unary_unary), read, write)


def reader(deserialize: Callable[[bytes], Any], max_elements: int) -> Callable[[bytes], Any]:
    """Return a reader of messages that returns MalformedRequest for malformed ones.

    gRPC would log a traceback of an exception.
    """
    shape = _Shape(deserialize.__self__.DESCRIPTOR)  # type: ignore[attr-defined]  # a class method of the message's type
    short_bytes = max_elements * _LEAST_ELEMENT_BYTES

    def read(data: bytes) -> Any:
        try:
            if len(data) > short_bytes:
                shape.check(data, max_elements)
            return deserialize(data)
        except (DecodeError, MalformedRequest) as problem:
            text = str(problem) if isinstance(problem, MalformedRequest) else f"it is no {shape.name}"
            return MalformedRequest(f"The request can't be read: {text}")

    return read


async def _refuse(problem: MalformedRequest, context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(problem))
    raise problem


def _unary_unary(handle: Any) -> Any:
    async def guarded(request: Any, context: Context) -> Any:
        if isinstance(request, MalformedRequest):
            await _refuse(request, context)
        try:
            return await handle(request, context)
        except NotImplementedError:  # of the generated code; gRPC would log a traceback for each
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This method is not offered here")
        except MembershipEnded as ended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, ended.sentence)

    return guarded


def _unary_stream(handle: Any) -> Any:
    if not inspect.isasyncgenfunction(handle):  # one that writes its responses itself, as the health service's Watch
        return _unary_unary(handle)

    async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
        if isinstance(request, MalformedRequest):
            await _refuse(request, context)
        async for response in handle(request, context):
            yield response

    return guarded


def _stream_stream(handle: Any) -> Any:
    async def guarded(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        try:
            async for response in handle(_sound(requests), context):
                yield response
        except MalformedRequest as problem:
            await _refuse(problem, context)

    return guarded


async def _sound(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, MalformedRequest):
            raise request
        yield request


class _Shape:
    """The fields of a message type that take memory: messages, and numbers that may be packed."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.name = descriptor.full_name
        self._messages: dict[int, _Shape] = {}
        self._packed: set[int] = set()
        for field in descriptor.fields:
            if field.message_type is not None:
                self._messages[field.number] = _Shape(field.message_type)
            elif field.is_repeated and field.type not in _TEXTS:
                self._packed.add(field.number)

    def check(self, data: bytes, max_elements: int) -> None:
        """Hold the limit; raises MalformedRequest."""
        if self._count(memoryview(data), max_elements) < 0:
            raise MalformedRequest(f"it has more than {max_elements} elements; ask for fewer at a time")

    def _count(self, data: memoryview, left: int) -> int:
        """Return the number of elements that may still come; negative: too many.

        Bytes that are no message end the count.
        """
        at, end = 0, len(data)
        while at < end and left >= 0:
            key, at = _varint(data, at)
            field, kind = key >> 3, key & 7
            left -= field in self._packed or field in self._messages
            if kind == _VARINT:
                _, at = _varint(data, at)
            elif kind == _BYTES:
                length, at = _varint(data, at)
                if field in self._messages:
                    left = self._messages[field]._count(data[at : at + length], left)  # noqa: SLF001 - of this class
                elif field in self._packed:
                    left -= length
                at += length
            elif kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
        return left


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number and its end; behind the data are zeros."""
    number = shift = 0
    while at < len(data):
        byte = data[at]
        number |= (byte & (_MORE - 1)) << shift
        at += 1
        if byte < _MORE:
            break
        shift += 7
        if shift > 63:
            break
    return number, at
