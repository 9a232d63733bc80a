"""Why a broker would refuse the fault of a scenario's step, before anything runs.

A fault is checked by the rules of the broker that would take it: there is one place that knows which RPCs, errors and
operations exist.
"""

from __future__ import annotations

from tidegauge.errors import TidegaugeError
from tidegauge.faults.messages import to_message
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_lab.scenario import steps


def problem_of(step: steps.FaultStep) -> str:
    """Return why the broker would refuse the step's fault; empty if it would not. Of a role it may still refuse one."""
    broker_id = step.broker if isinstance(step.broker, int) else -1
    if problem := step.fault.problem(broker_id):
        return problem
    try:
        FaultTable(broker_id, DiskFaults()).set(to_message(step.fault))
    except TidegaugeError as refusal:
        return refusal.message
    return ""
