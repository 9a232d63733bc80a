"""Responses of unary calls count while they wait to be written; the rules are ``PendingResponses``'.

Fetch counts its own, before the records are read. The responses of other client methods are counted here, as
they are handed to gRPC. Responses among brokers and the controller, and of health checks, never wait for clients that
do not read. It wraps handlers as services are added to a server.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from tidegauge_broker.server.service.pending_responses import PendingResponse, PendingResponses

_CLIENT_SERVICES = {"tidegauge.v1.BrokerService", "tidegauge.v1.AdminService", "tidegauge.v1.ReplicaLogService"}
_NOT_COUNTED = {"Fetch", "Produce"}
"""Fetch counts its own; responses to Produce are small, and writes do not wait for readers."""
Context = grpc.aio.ServicerContext[Any, Any]


def release_when_done(pending: PendingResponse, context: Context) -> None:
    """Release a response when its call is done: it has been written, or its connection has closed."""
    if pending.size_bytes:
        context.add_done_callback(lambda _: pending.release())  # type: ignore[arg-type]  # the stubs want a class


class CountedResponses:
    """Wraps handlers; see the module."""

    def __init__(self, responses: PendingResponses) -> None:
        self._responses = responses

    def around(self, service: str, method: str, handler: Any) -> Any:
        """Return a handler whose responses are counted, if they have to be."""
        is_stream = handler.request_streaming or handler.response_streaming
        if service not in _CLIENT_SERVICES or method in _NOT_COUNTED or is_stream:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._counted(handler.unary_unary), handler.request_deserializer, handler.response_serializer
        )

    def _counted(self, handle: Any) -> Any:
        async def counted(request: Any, context: Context) -> Any:
            pending = await self._responses.room(context.peer(), for_records=False)
            response = await handle(request, context)
            pending.hold(response.ByteSize())
            release_when_done(pending, context)
            return response

        return counted
