"""A fault in one line for people: the same words in the event log, in ``tidegauge faults`` and in scenarios. Pure."""

from __future__ import annotations

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge.faults.apis import kind_of_id
from tidegauge.v1 import lab_pb2

_ENDS = {
    lab_pb2.LAB_PLANE_BROKERS: "all other brokers",
    lab_pb2.LAB_PLANE_ZOOKEEPER: "ZooKeeper",
    lab_pb2.LAB_PLANE_CLIENTS: "clients",
}
_CALLS = {lab_pb2.LAB_DIRECTION_IN: "calls from", lab_pb2.LAB_DIRECTION_OUT: "calls to"}
_BYTES = {lab_pb2.LAB_DIRECTION_IN: "what comes from", lab_pb2.LAB_DIRECTION_OUT: "what goes to"}


def describe_fault(message: lab_pb2.LabFault) -> str:
    """Return the fault in one line."""
    match message.WhichOneof("kind"):
        case "network":
            return _describe_network(message.network)
        case "error":
            return _describe_error(message.error)
        case "hold":
            return _describe_hold(message.hold)
        case "disk":
            return _describe_disk(message.disk)
    return "a fault of an unknown kind"


def _describe_network(fault: lab_pb2.NetworkFault) -> str:
    if fault.broker_ids:
        ends = f"broker{'s' if len(fault.broker_ids) > 1 else ''} {', '.join(map(str, fault.broker_ids))}"
    else:
        ends = _ENDS.get(fault.plane, "?")
    if fault.plane == lab_pb2.LAB_PLANE_ZOOKEEPER:
        ways = _BYTES.get(fault.direction, "the connection with")
    else:
        ways = _CALLS.get(fault.direction, "calls from and to")
    return f"{ways} {ends}: {_effect(fault)}"


def _effect(fault: lab_pb2.NetworkFault) -> str:
    if fault.delay_ms:
        return f"delayed by {fault.delay_ms} ms"
    if fault.drop_probability:
        return f"dropped with probability {fault.drop_probability:g} (seed {fault.seed})"
    return "partitioned"


def _describe_error(fault: lab_pb2.ErrorFault) -> str:
    error = fault.grpc_status or ErrorCode.of(fault.error).name
    chance = f" with probability {fault.probability:g} (seed {fault.seed})" if 0 < fault.probability < 1 else ""
    effect = ", although it takes effect" if fault.after_effect else ""
    return f"{fault.rpc}{_scope(fault)} responds with {error}{_count(fault.times, fault.skip)}{chance}{effect}"


def _describe_hold(fault: lab_pb2.HoldFault) -> str:
    what = "responses to " if fault.after_effect else ""
    return f"{what}{fault.rpc}{_scope(fault)} held{_count(fault.times, fault.skip)}"


def _scope(fault: lab_pb2.ErrorFault | lab_pb2.HoldFault) -> str:
    """Return which calls of the API are meant."""
    where = f"{fault.topic}-{fault.partition}" if fault.HasField("partition") else fault.topic
    caller = f"broker {fault.caller}" if fault.caller.isdigit() else fault.caller
    return (
        (f" from {caller}" if caller else "")
        + (f" from client {fault.client_id}" if fault.client_id else "")
        + (f" about {where}" if where else "")
        + (f" of {kind_of_id(fault.rpc)} {fault.group}" if fault.group else "")
    )


def _describe_disk(fault: lab_pb2.DiskFault) -> str:
    operation = fault.operation or "every disk operation"
    where = f" on files with {fault.path_contains!r} in their path" if fault.path_contains else ""
    effect = f"fails with {fault.errno_name}" if fault.errno_name else f"takes {fault.delay_ms} ms more"
    return f"{operation}{where} {effect}{_count(fault.times, fault.skip)}"


def _count(times: int, skip: int) -> str:
    which = f", {counted(times, 'time')}" if times else ""
    return which + (f" after {skip} that pass" if skip else "")
