"""Faults inside broker processes: holds and steps of followers, network partitions, errors, disks. Use ``Switches``."""

from __future__ import annotations

from tidegauge.faults.model import Direction, Plane
from tidegauge_lab.switches.client import Switches
from tidegauge_lab.switches.model import (
    BrokerSwitches,
    Change,
    Fault,
    RuleInForce,
    Step,
    Until,
)

__all__ = [
    "BrokerSwitches",
    "Change",
    "Direction",
    "Fault",
    "Plane",
    "RuleInForce",
    "Step",
    "Switches",
    "Until",
]
