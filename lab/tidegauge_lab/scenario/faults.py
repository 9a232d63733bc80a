"""The faults of scenario steps as the lab's switches know them, and what is wrong with them before anything runs.

A fault is checked by the rules of the broker that would take it: there is one place that knows which RPCs, errors and
operations exist.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_lab.scenario import steps
from tidegauge_lab.switches import Direction, DiskEffect, InjectedError, NetworkEffect, Plane, wire

FaultStep = steps.Isolate | steps.InjectError | steps.InjectDisk


def ends_of(step: steps.Isolate) -> Plane | tuple[int, ...]:
    """The other end of what is cut."""
    return Plane(step.origin) if isinstance(step.origin, str) else step.origin


def effect_of(step: steps.Isolate) -> NetworkEffect:
    """A cut, or a delay, or a loss."""
    return NetworkEffect(step.delay_ms or 0, step.drop or 0.0, step.seed)


def injected_by(step: steps.InjectError) -> InjectedError:
    """Which calls fail, and how."""
    return InjectedError(
        rpc=step.rpc,
        error=step.error,
        grpc_status=step.grpc_status.upper(),
        after_effect=step.after_effect,
        skip=step.nth - 1,
        times=step.times,
        probability=step.probability,
        seed=step.seed,
    )


def disk_effect_of(step: steps.InjectDisk) -> DiskEffect:
    """Which operations are slow, or fail."""
    return DiskEffect(
        delay_ms=step.delay_ms or 0,
        errno_name=step.errno.upper(),
        operation=step.operation,
        path_contains=step.path,
        skip=step.nth - 1,
        times=step.times,
    )


def problem_of(step: FaultStep) -> str:
    """Why the broker would refuse the fault; empty if it would not."""
    match step:
        case steps.Isolate():
            if step.delay_ms is not None and step.drop is not None:
                return "calls are delayed or dropped, not both: give delay_ms or drop"
            fault = lab_pb2.LabFault(network=wire.to_network(ends_of(step), Direction(step.direction), effect_of(step)))
        case steps.InjectError():
            if (step.error is ErrorCode.NONE) == (not step.grpc_status):
                return "say with what the calls fail: error or grpc_status, one of both"
            fault = lab_pb2.LabFault(error=wire.to_error_fault(injected_by(step)))
        case steps.InjectDisk():
            if (step.delay_ms is None) == (not step.errno):
                return "say what the disk does: delay_ms or errno, one of both"
            fault = lab_pb2.LabFault(disk=wire.to_disk(disk_effect_of(step)))
    try:
        FaultTable(step.broker, DiskFaults()).set(fault)
    except TidegaugeError as problem:
        return problem.message
    return ""
