"""The lab's part of a controller, or none.

Rule: without ``lab.listener`` nothing of the lab is loaded, listens, or can be asked for.
"""

from __future__ import annotations

from tidegauge_broker.server.quorum.node_lab import NodeLab


def lab_of(node_id: int, address: str) -> NodeLab:
    """Return the lab's part of a controller with an address, else defaults.

    Args:
        node_id: the controller's.
        address: of the lab's faults over gRPC (``lab.listener``); empty: it has none.
    """
    if not address:
        return NodeLab()
    from tidegauge_broker.server.lab.controller_lab import ControllerLab  # noqa: PLC0415 - a plain controller has no gRPC

    return ControllerLab(node_id, address)
