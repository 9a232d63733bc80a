"""Fetch responses whose records are copied once on their way to gRPC.

Put into a protobuf message, records are copied into it, then into its serialized form, then into gRPC's own buffer; the
first two copies live until the client has read the response. Here the message is made without records. They are written
behind each partition's other fields when the response is serialized, and the response drops them.
Source: the encoding of protobuf: a message is its fields one behind the other, in any order; a field of bytes or of a
message is a tag, a length and the content.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from tidegauge.v1 import fetch_pb2

FetchMessage: TypeAlias = fetch_pb2.FetchResponse | fetch_pb2.ReplicaFetchResponse
_METHODS = {"Fetch", "ReplicaFetch"}
_LENGTH_DELIMITED = 2
_MORE = 0x80


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number & (_MORE - 1) | _MORE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag(message: type[Message], field: str) -> bytes:
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


_PARTITIONS_TAG = {kind: _tag(kind, "partitions") for kind in (fetch_pb2.FetchResponse, fetch_pb2.ReplicaFetchResponse)}
_RECORDS_TAG = _tag(fetch_pb2.FetchPartitionResult, "records")


class RecordsResponse:
    """A fetch response, and the records beside it.

    Args:
        message: the response without partitions.
        partitions: each partition's result without records, and its records.
    """

    __slots__ = ("_message", "_partitions")

    def __init__(
        self, message: FetchMessage, partitions: Iterable[tuple[fetch_pb2.FetchPartitionResult, bytes]]
    ) -> None:
        self._message = message
        self._partitions = list(partitions)

    @property
    def request_id(self) -> int:
        """Number of the request that a follower's response belongs to; 0 in a client's."""
        return getattr(self._message, "request_id", 0)

    @property
    def logical_time(self) -> int:
        """The logical clock in a follower's response."""
        return getattr(self._message, "logical_time", 0)

    @logical_time.setter
    def logical_time(self, value: int) -> None:
        assert isinstance(self._message, fetch_pb2.ReplicaFetchResponse)
        self._message.logical_time = value

    def add(self, results: Iterable[fetch_pb2.FetchPartitionResult]) -> None:
        """Add results of partitions, without records."""
        self._partitions += [(one, b"") for one in results]

    def whole(self) -> FetchMessage:
        """Return the message with everything in it, as the receiver sees it."""
        return type(self._message).FromString(self._encoded())

    def serialize(self) -> bytes:
        """Return the message's bytes, and drop the records: call it once."""
        encoded = self._encoded()
        self._partitions = []
        return encoded

    def _encoded(self) -> bytes:
        tag = _PARTITIONS_TAG[type(self._message)]
        parts = [self._message.SerializeToString()]
        for result, records in self._partitions:
            head = result.SerializeToString()
            if records:
                head += _RECORDS_TAG + _varint(len(records))
            parts += (tag, _varint(len(head) + len(records)), head, records)
        return b"".join(parts)


def serialize(response: Message | RecordsResponse) -> bytes:
    """Serialize a response of a method that fetches."""
    return response.serialize() if isinstance(response, RecordsResponse) else response.SerializeToString()


def whole(response: Any) -> Any:
    """Return a response of any form as a protobuf message."""
    return response.whole() if isinstance(response, RecordsResponse) else response


def around(method: str, handler: Any) -> Any:
    """Return a handler that serializes both forms, if its method fetches."""
    if method not in _METHODS:
        return handler
    read = handler.request_deserializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(handler.stream_stream, read, serialize)
    return grpc.unary_unary_rpc_method_handler(handler.unary_unary, read, serialize)
