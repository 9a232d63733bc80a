"""The target of a fault as a text: ``1``, ``controller``, ``leader-of:orders-0``, ``zookeeper``. Pure."""

from __future__ import annotations

from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge_lab.control.asked import is_number
from tidegauge_lab.control.endpoints import TARGETS
from tidegauge_lab.control.problems import malformed
from tidegauge_lab.control.shapes import shown
from tidegauge_lab.local.roles import Role, read_role


def read_target(text: str) -> Target | Role:
    """Read a target.

    Raises:
        RefusedError: 400, it is none.
    """
    if is_number(text):
        return int(text)
    if text == ZOOKEEPER:
        return ZOOKEEPER
    try:
        role = read_role(text)
    except ValueError as wrong:
        raise malformed(str(wrong)) from None
    if role is None:
        raise malformed(f"{shown(text)} is no target. {TARGETS}")
    return role
