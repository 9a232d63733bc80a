"""Faults inside broker processes: holds and steps of followers, cuts, errors, disks. Use ``Switches``."""

from __future__ import annotations

from tidegauge_lab.switches.client import Switches
from tidegauge_lab.switches.model import (
    BrokerSwitches,
    Change,
    Direction,
    DiskEffect,
    Fault,
    InjectedError,
    NetworkEffect,
    Plane,
    Step,
    Until,
)

__all__ = [
    "BrokerSwitches",
    "Change",
    "Direction",
    "DiskEffect",
    "Fault",
    "InjectedError",
    "NetworkEffect",
    "Plane",
    "Step",
    "Switches",
    "Until",
]
