"""Requests and periodic tasks as the controller's queue takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge_broker.server.quorum.calls import Refuse
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions.view import Decision

Decide = Callable[[ActiveController, int], Decision[Any]]
"""Decides from the active controller's memory and the time in ms; raises TidegaugeError for a refusal."""


def _nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class WriteEvent:
    """An event that may change the cluster's metadata (``QuorumController.ControllerWriteEvent``).

    Attributes:
        name: for the log.
        decide: makes the decision.
        done: takes the decision's response when its records are committed.
        failed: takes the error if there is no such response.
        appended: takes the controller, the response and the offset of the decision's last record when memory has
            changed.
        deadline_ms: when the event is no longer decided; None: always.
        expired: what an event that came too late still does; its error is sent all the same.
        partitions: how many partitions it decides about at most; None: maybe about all that there are.
        is_wanted: whether its client still waits for the response, as far as it matters: if not, it is not decided.
        is_large: whether its request is; then it is decided in a thread, and ``done`` and ``failed`` run in one.
    """

    name: str
    decide: Decide
    done: Callable[[Any], None] = _nothing
    failed: Refuse = _nothing
    appended: Callable[[ActiveController, Any, int], None] = _nothing
    deadline_ms: int | None = None
    expired: Callable[[ActiveController], None] = _nothing
    partitions: int | None = 0
    is_wanted: Callable[[], bool] = lambda: True
    is_large: bool = False
