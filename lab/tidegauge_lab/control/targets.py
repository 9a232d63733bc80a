"""The target of a fault in a path: ``1``, ``controller``, ``zookeeper``, and a role as a word or as an option. Pure.

A role as a word is ``leader-of:orders-0``; as the command line's option, its value in a part of the path of its own, it
is ``leader-of/orders-0``, and ``coordinator-of/group/orders-app``.
"""

from __future__ import annotations

from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge_lab.control.control_request import is_number
from tidegauge_lab.control.endpoints import TARGETS
from tidegauge_lab.control.problems import malformed
from tidegauge_lab.control.shapes import shown
from tidegauge_lab.local.roles import COORDINATED, Role, read_role, role_of


def read_target(text: str) -> Target | Role:
    """Read a target, in either form.

    Raises:
        RefusedError: 400, it is none.
    """
    if is_number(text):
        return int(text)
    if text == ZOOKEEPER:
        return ZOOKEEPER
    try:
        role = read_role(text) or _read_option(text)
    except ValueError as wrong:
        raise malformed(str(wrong)) from None
    if role is None:
        raise malformed(f"{shown(text)} is no target. {TARGETS}")
    return role


def _read_option(path: str) -> Role | None:
    """Return the role of ``option/value``; None: there is no such option.

    Raises:
        ValueError: the value has another form.
    """
    option, _, value = path.partition("/")
    kind, slash, name = value.partition("/")
    return role_of(option, f"{kind}:{name}" if slash and kind in COORDINATED else value)
