"""The form of an injected error in gRPC: Kafka's error put where the RPC's response has a place for it.

Rules:
    1. A response with a field for an error of the whole carries it there. Else it names each partition of the request
       with the error, as Kafka's ``getErrorResponse`` does. Else (Metadata, topics) every item of the real response
       gets it.
    2. An RPC that changes something, and whose response has errors only in its items, can't fail so before its effect:
       ``after_effect`` is needed, or a gRPC status.
    3. ``Produce`` means ProduceStream too: which of the two a client uses is not the fault's business.
"""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import (
    admin_service_pb2,
    broker_service_pb2,
    control_service_pb2,
    controller_service_pb2,
    group_service_pb2,
    lab_pb2,
    replication_service_pb2,
)

_FILES = (
    broker_service_pb2,
    admin_service_pb2,
    replication_service_pb2,
    control_service_pb2,
    controller_service_pb2,
    group_service_pb2,
)
METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""By name; no two services have a method of the same name."""
_ALIASES = {"ProduceStream": "Produce"}
_READS = frozenset({"Metadata", "ListOffsets", "DescribeConfigs", "Fetch", "OffsetsForLeaderEpoch", "DescribeReplicas"})
AnyMessage = TypeVar("AnyMessage", bound=Message)


def names(fault: lab_pb2.ErrorFault, rpc: str) -> bool:
    """Whether the fault means calls of this RPC; rule 3."""
    return _ALIASES.get(fault.rpc, fault.rpc) == _ALIASES.get(rpc, rpc)


def check(fault: lab_pb2.ErrorFault) -> None:
    """Refuse what this broker's RPCs can't do; the fault's declaration has been checked.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    if fault.rpc not in METHODS:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"there is no RPC {fault.rpc!r}; there are {', '.join(sorted(METHODS))}"
        )
    if fault.grpc_status:
        if fault.grpc_status == "OK" or fault.grpc_status not in grpc.StatusCode.__members__:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"gRPC has no status {fault.grpc_status} of a failure")
        return
    if int(ErrorCode.of(fault.error)) != int(fault.error):
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no error with the number {fault.error}")
    method = METHODS[fault.rpc]
    if not _has_place(method.output_type):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the response of {fault.rpc} has no place for an error; give a gRPC status instead",
        )
    if not fault.after_effect and not can_refuse(fault.rpc):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{fault.rpc} can respond with {ErrorCode.of(fault.error).name} only after its effect, or fail with a gRPC "
            "status before it",
        )


def is_for_the_whole(rpc: str) -> bool:
    """Whether the RPC's response has a field for an error of the whole."""
    return bool({"error", "status"} & set(METHODS[rpc].output_type.fields_by_name))


def can_refuse(rpc: str) -> bool:
    """Whether a response can carry the error without any effect of the request; rule 2."""
    method = METHODS[rpc]
    return is_for_the_whole(rpc) or _by_partition(method.input_type, method.output_type) or rpc in _READS


def must_run(rpc: str) -> bool:
    """Whether the response is made from the real one, since the request does not say what it would name."""
    method = METHODS[rpc]
    return not is_for_the_whole(rpc) and not _by_partition(method.input_type, method.output_type)


def empty_response(rpc: str) -> Message:
    """Return an empty response of this RPC."""
    return GetMessageClass(METHODS[rpc].output_type)()


def refusal(error: int, request: Message, response: AnyMessage) -> AnyMessage:
    """Fill an empty response so that it refuses the request; return it."""
    for shared in ("correlation_id", "request_id"):
        if shared in request.DESCRIPTOR.fields_by_name and shared in response.DESCRIPTOR.fields_by_name:
            setattr(response, shared, getattr(request, shared))
    if not {"error", "status"} & set(response.DESCRIPTOR.fields_by_name):
        for asked in request.partitions:  # type: ignore[attr-defined]  # _by_partition holds: both have them
            response.partitions.add(topic=asked.topic, partition=asked.partition)  # type: ignore[attr-defined]  # the same
    return with_error(error, response)


def with_error(error: int, response: AnyMessage) -> AnyMessage:
    """Put the error into a response and return it; rule 1."""
    if _put(error, response):
        return response
    for field, items in response.ListFields():
        if field.message_type is not None and _has_place(field.message_type):
            for item in items:
                _put(error, item)
    return response


def _put(error: int, message: Message) -> bool:
    """Set the error, or that of the status; False: it has neither."""
    fields = message.DESCRIPTOR.fields_by_name
    if "status" in fields:
        message = message.status  # type: ignore[attr-defined]  # it has the field
    elif "error" not in fields:
        return False
    message.error = error  # type: ignore[attr-defined]  # it has the field
    for words in {"error_message", "message"} & set(message.DESCRIPTOR.fields_by_name):
        setattr(message, words, "injected by the lab")
    return True


def _has_place(descriptor: Descriptor) -> bool:
    fields = descriptor.fields_by_name
    return bool({"error", "status"} & set(fields)) or any(
        field.message_type is not None and _has_place(field.message_type) for field in fields.values()
    )


def _by_partition(request: Descriptor, response: Descriptor) -> bool:
    """Whether both name partitions by topic and index."""
    found = [descriptor.fields_by_name.get("partitions") for descriptor in (request, response)]
    return all(
        field is not None
        and field.message_type is not None
        and {"topic", "partition"} <= set(field.message_type.fields_by_name)
        for field in found
    )
