"""Why a broker would refuse the fault of a scenario's step, before anything runs.

A fault is checked by the rules of the broker that would take it: there is one place that knows which RPCs, errors and
operations exist.
"""

from __future__ import annotations

from tidegauge.errors import TidegaugeError
from tidegauge.faults.messages import to_message
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_client.cluster_file import ZOOKEEPER_MODE
from tidegauge_client.quorum_file import FIRST_CONTROLLER_ID
from tidegauge_lab.scenario import fault_steps


def problem_of(step: fault_steps.FaultStep, mode: str = ZOOKEEPER_MODE) -> str:
    """Return why the node would refuse the step's fault; empty if it would not."""
    broker_id = step.broker if isinstance(step.broker, int) else -1
    if problem := step.fault.problem(broker_id):
        return problem
    try:
        FaultTable(broker_id, DiskFaults(), place=_place(broker_id, mode)).set(to_message(step.fault))
    except TidegaugeError as refusal:
        return refusal.message
    return ""


def _place(node_id: int, mode: str) -> Place:
    if mode == ZOOKEEPER_MODE:
        return Place.BROKER
    return Place.CONTROLLER if node_id >= FIRST_CONTROLLER_ID else Place.KRAFT_BROKER
