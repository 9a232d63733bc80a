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

Context = grpc.aio.ServicerContext[Any, Any]
_OTHER_NAMES = {
    "AddOffsets": "AddOffsetsToTxn",
    "AddPartitions": "AddPartitionsToTxn",
    "CommitOffsetsInTransaction": "TxnOffsetCommit",
    "DescribeTransaction": "DescribeTransactions",
    "EndTransaction": "EndTxn",
    "InitTransactions": "InitProducerId",
    "ReplicaOffsetsForLeaderEpoch": "OffsetForLeaderEpoch",
    "WriteMarkers": "WriteTxnMarkers",
}
_MEASURED_BY_SERVICE = {"Produce", "Fetch", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition"}
_NAMES = {api.name for api in APIS.values()} - _MEASURED_BY_SERVICE


def measured_api(rpc: str) -> str | None:
    """Return Kafka's name of the API that an RPC is; None: it is none, or the service measures it."""
    name = api_of(_OTHER_NAMES.get(rpc, rpc))
    return name if name in _NAMES else None


def has_error(message: Message) -> bool:
    """Return whether there is an error in a response, at its top or in one of its items."""
    for field, value in message.ListFields():  # only those that are not zero
        if field.name == "error" and field.enum_type is not None:
            return True
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            items = (value,) if isinstance(value, Message) else value
            if any(map(has_error, items)):
                return True
    return False


class MeasuredCalls:
    """Wraps handlers; see the module.

    Args:
        responded: takes each response; None: there are no metrics.
    """

    def __init__(self, responded: Responded | None) -> None:
        self._responded = responded

    def around(self, method: str, handler: Any) -> Any:
        """Return a handler that is measured, or the handler itself if it is not."""
        api = measured_api(method)
        is_stream = handler.request_streaming or handler.response_streaming
        if self._responded is None or api is None or is_stream:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._measured(api, self._responded, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    @staticmethod
    def _measured(api: str, responded: Responded, handle: Any) -> Any:
        async def measured(request: Any, context: Context) -> Any:
            began = time.monotonic()
            response = await handle(request, context)
            responded(api, (time.monotonic() - began) * 1000, has_error(response))
            return response

        return measured
