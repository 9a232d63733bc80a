"""The target of a process fault as a text: ``1``, ``controller``, ``leader-of:orders-0``, ``zookeeper``. Pure."""

from __future__ import annotations

from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge_lab.control.asked import is_number, partition_in
from tidegauge_lab.control.endpoints import TARGETS
from tidegauge_lab.control.problems import malformed
from tidegauge_lab.control.shapes import shown
from tidegauge_lab.local.roles import Role, RoleKind, read_coordinated

_OF_PARTITION = {"leader-of": RoleKind.LEADER, "follower-of": RoleKind.FOLLOWER}


def read_target(text: str) -> Target | Role:
    """Read a target.

    Raises:
        RefusedError: 400, it is none.
    """
    if is_number(text):
        return int(text)
    if text == ZOOKEEPER:
        return ZOOKEEPER
    if text == "controller":
        return Role(RoleKind.CONTROLLER)
    kind, separator, rest = text.partition(":")
    if separator and kind in _OF_PARTITION:
        return Role(_OF_PARTITION[kind], partition_in(rest))
    if separator and kind == "coordinator-of":
        try:
            return Role(RoleKind.COORDINATOR, of=read_coordinated(rest))
        except ValueError as wrong:
            raise malformed(str(wrong)) from None
    raise malformed(f"{shown(text)} is no target. {TARGETS}")
