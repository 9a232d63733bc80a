"""A fault as a ``LabFault`` message of the Lab service, and back.

The fields of the messages are those that the declarations name; only a network fault's peers and its partition are
written in a form of their own.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import Direction, Parameter, Plane, WantedFault
from tidegauge.faults.table import BY_MESSAGE
from tidegauge.v1 import common_pb2, lab_pb2

_PLANES = {
    lab_pb2.LAB_PLANE_BROKERS: Plane.BROKERS.value,
    lab_pb2.LAB_PLANE_ZOOKEEPER: Plane.ZOOKEEPER.value,
    lab_pb2.LAB_PLANE_CLIENTS: Plane.CLIENTS.value,
    lab_pb2.LAB_PLANE_CONTROLLERS: Plane.CONTROLLERS.value,
}
_DIRECTIONS = {
    lab_pb2.LAB_DIRECTION_UNSPECIFIED: Direction.BOTH.value,
    lab_pb2.LAB_DIRECTION_IN: Direction.IN.value,
    lab_pb2.LAB_DIRECTION_OUT: Direction.OUT.value,
    lab_pb2.LAB_DIRECTION_BOTH: Direction.BOTH.value,
}
_PLANE_NUMBERS = {word: number for number, word in _PLANES.items()}
_DIRECTION_NUMBERS = {word: number for number, word in _DIRECTIONS.items()}


def to_message(wanted: WantedFault) -> lab_pb2.LabFault:
    """Return the message of a fault; illegal values may raise protobuf's errors."""
    fault = lab_pb2.LabFault()
    message: Message = getattr(fault, wanted.kind.message)
    message.SetInParent()
    for parameter in wanted.kind.parameters:
        if parameter.name in wanted.values or parameter.default not in (None, "", "NONE"):
            _put(message, parameter, wanted[parameter.name])
    if wanted.kind.message == "network" and fault.network.WhichOneof("effect") is None:
        fault.network.partitioned = True
    return fault


def _put(message: Message, parameter: Parameter, value: Any) -> None:
    field = parameter.message_field
    if isinstance(message, lab_pb2.NetworkFault) and parameter.kind == "peers":
        message.plane = lab_pb2.LAB_PLANE_BROKERS if isinstance(value, list) else _PLANE_NUMBERS[value]
        message.broker_ids.extend(value if isinstance(value, list) else [])
    elif field == "direction":
        setattr(message, field, _DIRECTION_NUMBERS[value])
    elif parameter.kind == "error":
        setattr(message, field, common_pb2.ErrorCode.Value(f"ERROR_CODE_{value}"))
    elif parameter.kind == "integer":
        setattr(message, field, value - parameter.base)
    else:
        setattr(message, field, value)


def from_message(fault: lab_pb2.LabFault) -> WantedFault | None:
    """Return what a message asks for, unchecked; None if it names no fault."""
    kind = BY_MESSAGE.get(fault.WhichOneof("kind") or "")
    if kind is None:
        return None
    message = getattr(fault, kind.message)
    return kind.wanted({parameter.name: _taken(message, parameter) for parameter in kind.parameters})


def describe_fault(fault: lab_pb2.LabFault) -> str:
    """Return one line that describes a fault for people."""
    wanted = from_message(fault)
    return "a fault of an unknown kind" if wanted is None else wanted.text


def _taken(message: Any, parameter: Parameter) -> Any:
    """Return the value in the message; None if it has none."""
    field = message.DESCRIPTOR.fields_by_name[parameter.message_field]
    if isinstance(message, lab_pb2.NetworkFault) and parameter.kind == "peers":
        return list(message.broker_ids) or _PLANES.get(message.plane)
    value = getattr(message, field.name)
    if field.containing_oneof is not None:
        return value if message.HasField(field.name) else None
    if field.name == "direction":
        return _DIRECTIONS.get(value)
    if parameter.kind == "error":
        return ErrorCode.of(value).name
    if parameter.kind == "integer":
        return value + parameter.base
    # Proto3 does not distinguish an absent text or number from an empty one.
    return value or None
