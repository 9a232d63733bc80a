"""Faults inside broker processes: holds and steps of followers, network partitions, errors, disks. Use ``Switches``."""

from __future__ import annotations

from typing import Any

from tidegauge.faults.model import Direction, Plane
from tidegauge_lab.switches.client import Switches
from tidegauge_lab.switches.deprecation import former
from tidegauge_lab.switches.former import FORMER
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


def __getattr__(name: str) -> Any:
    """Return what a former name stands for, with a warning."""
    if name not in FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found, replacement = FORMER[name]
    former(f"{__name__}.{name}", replacement)
    return found
