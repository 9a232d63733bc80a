"""The form of an injected error in gRPC: Kafka's error in the RPC's own place for errors.

Rules:
    1. A response with a field for an error of the whole carries it there. Else it names each partition of the request,
       or of each of its markers, with the error, as Kafka's ``getErrorResponse`` does. Else (Metadata, topics) every
       item of the real response gets it.
    2. An RPC that changes something, and whose response has errors only in its items, can't fail so before its effect:
       ``after_effect`` is needed, or a gRPC status. If Kafka's response can, the fault is accepted, and a call of
       gRPC that meets it ends with UNAVAILABLE.
    3. An error of some partitions is in their results alone. Before its effect, a request that names others too is
       split, if Kafka treats its partitions one by one (``_ONE_BY_ONE``); else it fails as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidegauge.v1 import (
    admin_service_pb2,
    broker_service_pb2,
    control_service_pb2,
    controller_service_pb2,
    replica_log_service_pb2,
    replication_service_pb2,
)

_FILES = (
    broker_service_pb2,
    admin_service_pb2,
    replication_service_pb2,
    control_service_pb2,
    controller_service_pb2,
    replica_log_service_pb2,
)
METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""The methods, by name; no two services have a method of the same name."""
_READS = frozenset({"Metadata", "ListOffsets", "DescribeConfigs", "Fetch", "OffsetsForLeaderEpoch", "DescribeReplicas"})
_ONE_BY_ONE = frozenset({"Produce", "ProduceStream", "DeleteRecords"})
INJECTED = "injected by the lab"
Means = Callable[[str, int], bool]
"""Whether an error is about this partition of this topic; -1: about the topic."""
AnyMessage = TypeVar("AnyMessage", bound=Message)


def problem(rpc: str, *, after_effect: bool) -> str:
    """Return why an RPC's responses can't carry an injected error, or empty."""
    if not _has_place(METHODS[rpc].output_type):
        return f"the response of {rpc} has no place for an error; give a gRPC status instead"
    if not after_effect and not can_refuse(rpc):
        return f"{rpc} can respond with an error only after its effect, or fail with a gRPC status before it"
    return ""


def is_for_the_whole(rpc: str) -> bool:
    """Whether the RPC's response has a field for an error of the whole."""
    return bool({"error", "status"} & set(METHODS[rpc].output_type.fields_by_name))


def can_refuse(rpc: str) -> bool:
    """Whether a response can carry the error without any effect of the request; rule 2."""
    method = METHODS[rpc]
    return is_for_the_whole(rpc) or bool(_mirrored(method.input_type, method.output_type)) or rpc in _READS


def must_run(rpc: str) -> bool:
    """Whether the response is made from the real one, since the request does not say what it would name."""
    method = METHODS[rpc]
    return not is_for_the_whole(rpc) and not _mirrored(method.input_type, method.output_type)


def empty_response(rpc: str) -> Message:
    """Return an empty response of this RPC."""
    return GetMessageClass(METHODS[rpc].output_type)()


def refusal(error: int, request: Message, response: AnyMessage, words: str = INJECTED) -> AnyMessage:
    """Fill an empty response so that it refuses the request; return it."""
    for shared in ("correlation_id", "request_id"):
        if shared in request.DESCRIPTOR.fields_by_name and shared in response.DESCRIPTOR.fields_by_name:
            setattr(response, shared, getattr(request, shared))
    if not {"error", "status"} & set(response.DESCRIPTOR.fields_by_name):
        if "markers" in request.DESCRIPTOR.fields_by_name:
            response.markers.extend(request.markers)  # type: ignore[attr-defined]  # both have them
        else:
            for asked in request.partitions:  # type: ignore[attr-defined]  # _mirrored says it: both have them
                response.partitions.add(topic=asked.topic, partition=asked.partition)  # type: ignore[attr-defined]  # the same
    return with_error(error, response, words)


def with_error(error: int, response: AnyMessage, words: str = INJECTED) -> AnyMessage:
    """Put the error into a response, with words about it, and return it; rule 1."""
    if _put(error, response, words):
        return response
    for field, items in response.ListFields():
        if field.message_type is not None and _has_place(field.message_type):
            for item in items:
                with_error(error, item, words)
    return response


def split(rpc: str, request: AnyMessage, means: Means) -> tuple[AnyMessage, AnyMessage] | None:
    """Return the admitted and the refused part of a request, or None.

    None: it can't be split. Rule 3.
    """
    if rpc not in _ONE_BY_ONE or is_for_the_whole(rpc):
        return None
    parts = type(request)(), type(request)()
    for part in parts:
        part.CopyFrom(request)
        part.ClearField("partitions")
    for asked in request.partitions:  # type: ignore[attr-defined]  # requests of these RPCs have them
        parts[means(asked.topic, asked.partition)].partitions.append(asked)  # type: ignore[attr-defined]  # the same
    return parts if all(part.partitions for part in parts) else None  # type: ignore[attr-defined]  # the same


def reads_others(rpc: str, request: Any, means: Means) -> bool:
    """Whether a request that only reads names other partitions than the error's: these are read. Rule 3."""
    if rpc not in _READS or "partitions" not in request.DESCRIPTOR.fields_by_name:
        return False
    return not all(means(asked.topic, asked.partition) for asked in request.partitions)


def put_in_part(error: int, response: Message, means: Means) -> bool:
    """Put the error into the results that it is for; return whether others remain, and it is done. Rule 3."""
    found = list(_results(response, ""))
    meant = [one for one, topic, partition in found if means(topic, partition)]
    if not meant or len(meant) == len(found):
        return False
    for one in meant:
        _put(error, one, INJECTED)
    return True


def _results(message: Any, topic: str) -> Iterator[tuple[Any, str, int]]:
    """Yield a topic's places for errors, with topic and partition; -1: the place is the topic's."""
    for field, items in message.ListFields():
        if field.message_type is None or not field.is_repeated:
            continue
        for item in items:
            names = item.DESCRIPTOR.fields_by_name
            name = next((getattr(item, one) for one in ("topic", "name") if one in names), topic)
            if name and {"error", "status"} & set(names):
                yield item, name, item.partition if "partition" in names else -1
            yield from _results(item, name)


def _put(error: int, message: Message, words: str) -> bool:
    """Set the error, or the status's; False: it has neither."""
    fields = message.DESCRIPTOR.fields_by_name
    if "status" in fields:
        message = message.status  # type: ignore[attr-defined]  # it has the field
    elif "error" not in fields:
        return False
    message.error = error  # type: ignore[attr-defined]  # it has the field
    for field in {"error_message", "message"} & set(message.DESCRIPTOR.fields_by_name):
        setattr(message, field, words)
    return True


def _has_place(descriptor: Descriptor) -> bool:
    fields = descriptor.fields_by_name
    return bool({"error", "status"} & set(fields)) or any(
        field.message_type is not None and _has_place(field.message_type) for field in fields.values()
    )


def _mirrored(request: Descriptor, response: Descriptor) -> str:
    """Return the common list of both, or empty.

    It has partitions by topic and index, or markers with such.
    """
    if "markers" in request.fields_by_name and "markers" in response.fields_by_name:
        return "markers"
    found = [descriptor.fields_by_name.get("partitions") for descriptor in (request, response)]
    have_partitions = all(
        field is not None
        and field.message_type is not None
        and {"topic", "partition"} <= set(field.message_type.fields_by_name)
        for field in found
    )
    return "partitions" if have_partitions else ""
