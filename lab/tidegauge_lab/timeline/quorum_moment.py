"""The controllers of a KRaft quorum at a moment of the past, as far as events say. Pure.

The form is as of the controllers in ``tidegauge status -o json``, in which the page is given them while they run.
"""

from __future__ import annotations

from typing import Any

from tidegauge_lab.timeline.choice import Event

Json = dict[str, Any]
_STATES = {"kill": "down", "power-cut": "down", "stop": "down", "pause": "paused", "resume": "up", "start": "up"}
_CONTROLLER = "controller-"


class _Node:
    """One controller; epoch and offsets are None while no event has them."""

    __slots__ = ("epoch", "high_watermark", "log_end", "role", "state")

    def __init__(self) -> None:
        self.state = "up"
        self.forget()

    def forget(self) -> None:
        """Forget what a process that has ended had in memory."""
        self.role: str | None = None
        self.epoch: int | None = None
        self.log_end: int | None = None
        self.high_watermark: int | None = None


class QuorumMoment:
    """The controllers after some events."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}

    def take(self, event: Event) -> bool:
        """Take in an event; return whether it may have changed a controller.

        Raises:
            KeyError, TypeError, ValueError: the event lacks a field, as of another version; nothing was changed.
        """
        match event.get("kind"):
            case "quorum":
                return self._on_state(event)
            case "high_watermark":
                return self._on_high_watermark(event)
            case "fault":
                return self._on_fault(event)
        return False

    def view(self) -> list[Json]:
        """Return the controllers, by id."""
        return [_view(node_id, node) for node_id, node in sorted(self._nodes.items())]

    def _on_state(self, event: Event) -> bool:
        role, epoch, log_end = str(event["state"]).lower(), int(event["epoch"]), int(event["log_end_offset"])
        node_id = controller_named(event.get("source"))
        if node_id is None:
            return False
        node = self._nodes.setdefault(node_id, _Node())
        node.state, node.role, node.epoch, node.log_end = "up", role, epoch, log_end
        return True

    def _on_high_watermark(self, event: Event) -> bool:
        new = int(event["new"])
        node_id = controller_named(event.get("source"))
        if node_id is None:
            return False
        node = self._nodes.setdefault(node_id, _Node())
        node.high_watermark, node.log_end = new, max(new, node.log_end or 0)
        return True

    def _on_fault(self, event: Event) -> bool:
        state = _STATES.get(str(event["action"]))
        node_id = controller_named(event.get("process"))
        if node_id is None or state is None or node_id not in self._nodes:
            return False
        node = self._nodes[node_id]
        node.state = state
        if state == "down":
            node.forget()
        return True


def controller_named(name: object) -> int | None:
    """Return the id in a name such as ``controller-3000``, or None."""
    text = str(name)
    number = text.removeprefix(_CONTROLLER)
    return int(number) if text.startswith(_CONTROLLER) and number.isdecimal() else None


def _view(node_id: int, node: _Node) -> Json:
    is_up = node.state == "up"
    return {
        "id": node_id,
        "state": node.state,
        "pid": None,
        "responds": is_up,
        "end": None,
        "address": "",
        "dir": "",
        "role": node.role if is_up else None,
        "epoch": node.epoch if is_up else None,
        "log_end_offset": node.log_end if is_up else None,
        "high_watermark": node.high_watermark if is_up else None,
    }
