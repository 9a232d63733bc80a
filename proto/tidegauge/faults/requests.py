"""A request for a declared fault or action, by its name and in values of JSON: read and checked. Pure.

``{"action": "kill", "broker": 1}`` of the page comes here as ``read_request("kill", 1, {})``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ACTIONS, WantedAction
from tidegauge.faults.model import WantedFault
from tidegauge.faults.table import FAULTS
from tidegauge.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultRequest:
    """A fault to put in force at a broker, checked by its declaration."""

    broker_id: int
    fault: WantedFault


def read_request(name: object, target: object, values: Mapping[str, Any]) -> WantedAction | FaultRequest:
    """Return the fault or the action of this name.

    Args:
        name: of the fault or the action.
        target: a broker's id; ``"zookeeper"`` too for an action on a process.
        values: of its parameters, by name.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is none of this name, or its declaration rejects the target or a value.
    """
    if isinstance(name, str) and name in ACTIONS:
        return ACTIONS[name].wanted(target, values)
    if not isinstance(name, str) or name not in FAULTS:
        known = ", ".join([*FAULTS, *ACTIONS])
        raise _invalid(f"there is no fault or action {name!r}; there is {known}")
    if not isinstance(target, int) or isinstance(target, bool) or target < 0:
        raise _invalid(f"{name} needs a broker's id")
    wanted = FAULTS[name].wanted(values)
    if problem := wanted.problem(target):
        raise _invalid(problem)
    return FaultRequest(target, wanted)


def _invalid(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)
