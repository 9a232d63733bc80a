"""Measures unary calls of gRPC by Kafka's names of their APIs, as services are added to a server.

Streams, Fetch and Produce are measured by the service (``server.metrics.metered_requests``); calls that are no API of
Kafka's are not measured.
"""

from __future__ import annotations

import time
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidegauge.faults.apis import api_of
from tidegauge.kafka.apis import APIS
from tidegauge_broker.server.service.middleware import Responded
from tidegauge_broker.server.wire.grpc.callers import caller_of

Context = grpc.aio.ServicerContext[Any, Any]
_OTHER_NAMES = {"ReplicaOffsetsForLeaderEpoch": "OffsetForLeaderEpoch"}
_MEASURED_BY_SERVICE = {"Produce", "Fetch", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition"}
_NAMES = {api.name for api in APIS.values()} - _MEASURED_BY_SERVICE


def measured_api(rpc: str) -> str | None:
    """Return Kafka's API of an RPC; None: unknown, or measured elsewhere."""
    name = api_of(_OTHER_NAMES.get(rpc, rpc))
    return name if name in _NAMES else None


def errors_in(message: Message) -> set[int]:
    """Return the errors in a response, at its top and in items."""
    found: set[int] = set()
    for field, value in message.ListFields():  # only those that are not zero
        if field.name == "error" and field.enum_type is not None:
            found.add(int(value))
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in (value,) if isinstance(value, Message) else value:
                found |= errors_in(item)
    return found


class MeasuredCalls:
    """Wraps handlers; see the module.

    Args:
        responded: takes each response; None: there are no metrics, and no request log.
        listener: name of the listener through which the calls come.
    """

    def __init__(self, responded: Responded | None, listener: str) -> None:
        self._responded = responded
        self._listener = listener

    def around(self, method: str, handler: Any) -> Any:
        """Return a handler that is measured, if it has to be."""
        api = measured_api(method)
        is_stream = handler.request_streaming or handler.response_streaming
        if self._responded is None or api is None or is_stream:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._measured(api, self._responded, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _measured(self, api: str, responded: Responded, handle: Any) -> Any:
        async def measured(request: Any, context: Context) -> Any:
            began = time.monotonic()
            response = await handle(request, context)
            took_ms = (time.monotonic() - began) * 1000
            responded(caller_of(context, self._listener), api, took_ms, errors_in(response))
            return response

        return measured
