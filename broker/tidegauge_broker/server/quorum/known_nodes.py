"""The nodes of its quorum that a node knows, for the lab: their addresses, and whether they are controllers."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.host_addresses import address_of
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.raft.node import RaftNode


class KnownNodes:
    """The nodes of its quorum that a node knows, for the lab.

    Args:
        node: this process's node.
        image: returns the committed image.
    """

    def __init__(self, node: RaftNode, image: Callable[[], MetadataImage]) -> None:
        self._node = node
        self._image = image

    def at(self, address: str) -> int | None:
        """Return the voter that listens at an address; None: it is not known."""
        voters = self._node.history.current
        for voter_id in voters.ids:
            at = voters.endpoint(voter_id)
            if at is not None and address_of(at.host, at.port) == address:
                return voter_id
        return None

    def is_controller(self, node_id: int) -> bool:
        """Return whether a node is a voter, or is registered as a controller."""
        return node_id in self._node.history.current.ids or node_id in self._image().controllers
