"""Extension points for the lab in a controller's process. These defaults are what a controller without the lab has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.server.quorum.calls import Served
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.way_to_controllers import PLAIN_WAY, Way

Note = Callable[[Mapping[str, Any]], None]
"""Writes a fault into the node's event log, with these fields."""


class NodeLab:
    """Extension points for the lab in a controller's process.

    Attributes:
        way: how channels to controllers connect; set before the first one is opened.
    """

    def __init__(self) -> None:
        self.way: Way = PLAIN_WAY

    def disk_of(self, directory: Path) -> Disk:
        """Return what changes the files of a directory."""
        del directory
        return DISK

    def open_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to another node."""
        return KafkaChannel(address, client_id, self.way.dial, self.way.login, protocol=KRAFT_PROTOCOL)

    def gated(self, handlers: Mapping[int, Served]) -> Mapping[int, Served]:
        """Return the handlers of the listener behind the lab's gate."""
        return handlers

    async def start(self, nodes: KnownNodes, note: Note) -> None:
        """Serve what the lab serves; the node runs, and a controller's listener is bound."""

    async def close(self) -> None:
        """Hold nothing back any more, and stop serving."""
