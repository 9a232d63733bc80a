"""The logical clock on calls between brokers: received with each request that carries it, sent with each response.

It wraps the handlers of the methods whose messages have a ``logical_time`` (requests of the controller have it in their
header) as services are added to a server, so that other calls pay nothing for it.
Source: rule IR2 of Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor

from tidegauge.logical_clock import LogicalClock

_FIELD = "logical_time"


class LogicalTime:
    """Wraps handlers; see the module."""

    def __init__(self, clock: LogicalClock) -> None:
        self._clock = clock

    def around(self, handler: Any) -> Any:
        """Return a handler that carries the clock, if its messages can."""
        time_of = _reader(handler.request_deserializer.__self__.DESCRIPTOR)
        if time_of is None:
            return handler
        read, write = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, time_of), read, write)
        return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, time_of), read, write)

    def _unary(self, handle: Any, time_of: Callable[[Any], int]) -> Any:
        async def timed(request: Any, context: Any) -> Any:
            self._clock.receive(time_of(request))
            response = await handle(request, context)
            response.logical_time = self._clock.value
            return response

        return timed

    def _stream(self, handle: Any, time_of: Callable[[Any], int]) -> Any:
        async def received(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
            async for request in requests:
                self._clock.receive(time_of(request))
                yield request

        async def timed(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for response in handle(received(requests), context):
                response.logical_time = self._clock.value
                yield response

        return timed


def _reader(request: Descriptor) -> Callable[[Any], int] | None:
    """Return what reads the time from a request; None: the request has none."""
    if _FIELD in request.fields_by_name:
        return _own_time
    header = request.fields_by_name.get("header")
    if header is not None and header.message_type is not None and _FIELD in header.message_type.fields_by_name:
        return _time_in_header
    return None


def _own_time(request: Any) -> int:
    return int(request.logical_time)


def _time_in_header(request: Any) -> int:
    return int(request.header.logical_time)
