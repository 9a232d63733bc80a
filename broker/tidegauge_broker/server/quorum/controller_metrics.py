"""The metrics of a process that is a controller alone; without ``metrics.listener`` there are none.

A process that is a broker, too, has the broker's metrics, which include the active controller's figures.
"""

from __future__ import annotations

from itertools import chain

from tidegauge_broker.server.metrics.controller_families import ControllerCounts, controller_families
from tidegauge_broker.server.metrics.endpoint import SETTING, MetricsEndpoint, parse_address
from tidegauge_broker.server.metrics.exposition import exposition
from tidegauge_broker.server.metrics.process_families import process_families
from tidegauge_broker.server.quorum.controller.controller_parts import ControllerParts
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_controller.raft.node import RaftNode


class ControllerMetrics:
    """Serves the metrics of a controller.

    Args:
        settings: the node's.
        node: its node in the quorum.
        parts: its controller.
    """

    def __init__(self, settings: NodeSettings, node: RaftNode, parts: ControllerParts) -> None:
        is_alone = len(settings.values["process.roles"]) == 1
        self._address = settings.values.text(SETTING) if is_alone else ""
        self._first = settings.bound[0]
        self._node, self._parts = node, parts
        self._counts = ControllerCounts()
        self._endpoint = MetricsEndpoint(self._page)
        if self._address:
            parts.on_step = self._counts.image_changed

    async def listen(self) -> None:
        """Serve the page, if there is an address.

        Raises:
            TidegaugeError: the setting is wrong, or the address can't be bound.
        """
        if self._address:
            await self._endpoint.start(*parse_address(self._address, self._first))

    async def close(self) -> None:
        """Stop serving it."""
        await self._endpoint.close()

    async def _page(self) -> str:
        is_active = self._parts.controller.active is not None
        image = self._parts.committed.image
        own = controller_families(self._node, image, self._counts, is_active=is_active)
        return exposition(chain(own, process_families()))
